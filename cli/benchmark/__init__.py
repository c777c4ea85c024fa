"""`bcos-sdk benchmark`: measure models, and compare them with the reference package and with conventional networks."""

from bcos_sdk.cli.benchmark._benchmark_command import benchmark
from bcos_sdk.cli.benchmark._conventional import import_torchvision
from bcos_sdk.cli.benchmark._goals import GOALS
from bcos_sdk.cli.benchmark._measurements import (
    CallsRecord,
    DeviceRecord,
    FolderRecord,
    ImportRecord,
    Machine,
    ModelRecord,
    Report,
    Side,
    Timing,
    What,
    describe_machine,
)
from bcos_sdk.cli.benchmark._plot import draw_plot
from bcos_sdk.cli.benchmark._run import Options
from bcos_sdk.cli.benchmark._subject import sample_images, top_targets
from bcos_sdk.cli.benchmark._tables import (
    Table,
    calls_table,
    describe_timing,
    goal_table,
    machine_rows,
    model_title,
    process_table,
    ratio_table,
    timing_table,
)
from bcos_sdk.cli.benchmark._timing import round_order

__all__ = [
    "GOALS",
    "CallsRecord",
    "DeviceRecord",
    "FolderRecord",
    "ImportRecord",
    "Machine",
    "ModelRecord",
    "Options",
    "Report",
    "Side",
    "Table",
    "Timing",
    "What",
    "benchmark",
    "calls_table",
    "describe_machine",
    "describe_timing",
    "draw_plot",
    "goal_table",
    "import_torchvision",
    "machine_rows",
    "model_title",
    "process_table",
    "ratio_table",
    "round_order",
    "sample_images",
    "timing_table",
    "top_targets",
]
