"""How fast models run, beside the reference package and conventional networks: `run_benchmark` and its report."""

from bcos_sdk.cli.benchmark._report import Report
from bcos_sdk.cli.benchmark._run import Options, run_benchmark

__all__ = ["Options", "Report", "run_benchmark"]
