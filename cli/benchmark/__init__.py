"""`bcos-sdk benchmark`: measure models, and compare them with the reference package and with conventional networks."""

from bcos_sdk.cli.benchmark._benchmark_command import benchmark
from bcos_sdk.cli.benchmark._conventional import import_torchvision
from bcos_sdk.cli.benchmark._goals import GOALS
from bcos_sdk.cli.benchmark._measurements import (
    DeviceRecord,
    FolderRecord,
    ImportRecord,
    Machine,
    ModelRecord,
    Report,
    Side,
    Timing,
    What,
)
from bcos_sdk.cli.benchmark._plot import draw_plot
from bcos_sdk.cli.benchmark._run import Options
from bcos_sdk.cli.benchmark._tables import (
    Table,
    describe_timing,
    goal_table,
    machine_rows,
    model_title,
    process_table,
    ratio_table,
    timing_table,
)

__all__ = [
    "GOALS",
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
    "describe_timing",
    "draw_plot",
    "goal_table",
    "import_torchvision",
    "machine_rows",
    "model_title",
    "process_table",
    "ratio_table",
    "timing_table",
]
