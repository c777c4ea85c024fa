"""Real Ray clusters on this machine, runs of the command on them, and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

__all__ = [
    "Nodes",
    "RunningCommand",
    "environment",
    "kill_what_still_runs",
    "listening_addresses",
    "three_nodes",
    "wait_for",
]

_SECONDS = 900
_ROOT = Path(__file__).resolve().parents[2]
_COMMAND = "import sys; from bcos_sdk.cli import main; sys.argv[0] = 'bcos-sdk'; main()"


def environment(**more: str) -> dict[str, str]:
    """The environment of a command: this checkout, and nothing but the loopback interface."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "tests")]),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_worker_niceness": "0",
        "OMP_NUM_THREADS": "1",
        **more,
    }


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """The first true value of the condition."""
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.2)
    raise AssertionError(f"{what} did not happen in {_SECONDS} s")


def listening_addresses() -> set[str]:
    """The addresses at which this process and its children listen."""
    found = set()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            found |= {
                one.laddr.ip.removeprefix("::ffff:") for one in process.net_connections() if one.status == "LISTEN"
            }
    return found


_started: list[subprocess.Popen[str]] = []


def kill_what_still_runs() -> None:
    """End the commands of a test that has failed, so that they do not hold the CPUs of the next one."""
    while _started:
        process = _started.pop()
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@dataclass
class RunningCommand:
    """A run of `bcos-sdk predict --engine ray`, or of a Python script, in a process group of its own."""

    process: subprocess.Popen[str]
    out: Path

    @classmethod
    def start(cls, out: Path, *arguments: object, script: str | None = None, **more: str) -> RunningCommand:
        command = [sys.executable, "-c", script or _COMMAND]
        command += [*map(str, arguments)] if script else ["predict", *map(str, arguments), "--engine", "ray"]
        command += [] if script else ["--out", str(out)]
        process = subprocess.Popen(
            command,
            env=environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        _started.append(process)
        return cls(process, out)

    def files(self) -> int:
        return len(list(self.out.glob("*.parquet"))) if self.out.is_dir() else 0

    def wait_for_files(self, count: int) -> None:
        """Wait until so many files are written, and fail if the command ends before."""

        def there() -> bool:
            assert self.process.poll() is None, f"the command has ended\n{self.end()}"
            return self.files() >= count

        wait_for(there, f"{count} files in {self.out}")

    def end(self, exit_code: int | None = None) -> str:
        """Wait for the end, and return what the command printed."""
        try:
            printed, _ = self.process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            printed, _ = self.process.communicate()
            raise AssertionError(f"the command did not end in {_SECONDS} s\n{printed[-4000:]}") from None
        if exit_code is not None:
            assert self.process.returncode == exit_code, printed[-6000:]
        return printed

    def kill(self) -> None:
        """SIGKILL to the driver, and to nothing else."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@dataclass
class Nodes:
    """A cluster of several nodes. Each is a raylet process with workers of its own."""

    cluster: Any
    address: str
    members: list[Any] = field(default_factory=list)

    def add(self) -> None:
        self.members.append(
            self.cluster.add_node(num_cpus=1, object_store_memory=80 << 20, node_ip_address="127.0.0.1")
        )

    def kill_last(self) -> None:
        """SIGKILL to the raylet of the node that was added last, and to all its workers."""
        node = self.members.pop()
        raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
        children = raylet.children(recursive=True)
        for process in [raylet, *children]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.cluster.remove_node(node, allow_graceful=False)

    def actors(self) -> list[psutil.Process]:
        """The workers that explain images."""
        raylets = [psutil.Process(node.all_processes["raylet"][0].process.pid) for node in self.members]
        found = []
        for process in (child for raylet in raylets for child in raylet.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                if any("MapWorker" in part for part in process.cmdline()):
                    found.append(process)
        return found


@contextmanager
def three_nodes(cpus: Sequence[int] = (1, 1, 1)) -> Iterator[Nodes]:
    """A head node without CPUs, and one node for each number."""
    os.environ.update({name: value for name, value in environment().items() if name.startswith(("RAY_", "PYTHONPATH"))})
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "object_store_memory": 80 << 20, "node_ip_address": "127.0.0.1"},
    )
    nodes = Nodes(cluster, cluster.address)
    try:
        for _ in cpus:
            nodes.add()
        yield nodes
    finally:
        cluster.shutdown()
