"""A run of `bcos-sdk predict --engine ray`: cut the images into shards, explain them on the cluster, count."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bcos_sdk._files import remove_leftovers
from bcos_sdk.bundle import Bundle
from bcos_sdk.errors import BcosError, ClusterError
from bcos_sdk.ray._cluster import nodes_of_cluster, quiet_data_context
from bcos_sdk.ray._dataset import is_gpu, settings_for
from bcos_sdk.ray._delivery import Ship
from bcos_sdk.ray._parts import paths_in
from bcos_sdk.ray._record import Start, begin, check_start, discard, file_names, prefix_of, read_record, replace_earlier
from bcos_sdk.ray._resources import Workers, choose_workers
from bcos_sdk.ray._settings import Question, batch_of
from bcos_sdk.ray._shards import Outcome, Plan, plan_shards, shard_size
from bcos_sdk.ray._storage import Folder
from bcos_sdk.ray._workers import ShardWorker, unpacked_error

__all__ = ["Job", "local_cpus"]


@dataclass
class Job:
    """Explains images on the cluster that this process is connected to. One row per image goes to `folder`."""

    bundle: Bundle
    model: str
    question: Question
    folder: Folder
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of `Client`."""
    start: Start = Start.NEW
    workers: int | None = None
    threads: int | None = None
    gpus: float | None = None
    images_per_file: int | None = None
    ship: Ship = "auto"

    def choose_workers(self) -> Workers:
        """The workers of this run; a `ClusterError` if they do not fit."""
        nodes = nodes_of_cluster()
        on_gpu = is_gpu(self.options.get("device", "auto"), nodes)
        return choose_workers(nodes, self.workers, self.threads, self.gpus, on_gpu=on_gpu)

    def run(self, images: Sequence[str], began: Callable[[Plan, Workers], None]) -> Generator[Outcome, None, None]:
        """Yield the outcome of each shard as soon as its file is written. `began` is called with the plan.

        Close the iterator to stop early: the files that are written count.
        """
        check_start(self.folder, self.start)
        workers = self.choose_workers()
        options = {**self.options, "threads": workers.cpus}
        local = len(nodes_of_cluster()) == 1
        settings = settings_for(self.bundle, self.model, self.question, options, ship=self.ship, local=local)
        if self.folder.local is not None:
            remove_leftovers(self.folder.local)
        record = begin(self.folder, self.start)
        files = {} if self.start is Start.OVERWRITE else self._recorded()
        batch = batch_of(self.bundle, options.get("max_batch"), self.question)
        size = self.images_per_file or shard_size(len(images), workers.count, batch)
        plan = plan_shards(images, files, size=size, prefix=prefix_of(record.session))
        began(plan, workers)
        for outcome in self._outcomes(plan, workers, (settings, self.folder.place, record.session)):
            if record.session not in record.valid and outcome.done:
                record = replace_earlier(self.folder, record)
            yield outcome
        discard(self.folder, record)

    def _recorded(self) -> dict[str, list[str]]:
        """The paths in each file of earlier runs."""
        return {name: paths_in(self.folder, name) for name in file_names(self.folder, read_record(self.folder))}

    def _outcomes(self, plan: Plan, workers: Workers, arguments: tuple[Any, ...]) -> Iterator[Outcome]:
        if not plan.shards:
            return
        import ray

        with quiet_data_context():
            rows = [{"shard": shard.to_json()} for shard in plan.shards]
            outcomes = ray.data.from_items(rows, override_num_blocks=len(rows)).map_batches(
                ShardWorker,
                fn_constructor_args=arguments,
                batch_size=1,
                batch_format="pyarrow",
                compute=ray.data.ActorPoolStrategy(size=min(workers.count, len(rows))),
                num_cpus=workers.cpus,
                num_gpus=workers.gpus,
            )
            del rows
            try:
                for row in outcomes.iter_rows():
                    if row["error"] is not None:
                        raise unpacked_error(row["error"])
                    yield Outcome.from_json(row["outcome"])
            except ray.exceptions.RayError as error:
                raise _lost(error) from error


def local_cpus(workers: int | None, threads: int | None, cores: int) -> int:
    """The CPUs to declare for a local cluster: those of the machine, or what the user asked for explicitly."""
    return max(cores, (workers or 1) * (threads or 1))


def _lost(error: Exception) -> BcosError:
    reason = str(error).strip().splitlines()
    return ClusterError(
        f"the cluster could not finish the run: {type(error).__name__}: {reason[-1] if reason else 'no reason given'}",
        hint="The files that are written count: use --resume. The logs of Ray have the details.",
    )
