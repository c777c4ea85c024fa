"""`explain_dataset`: a Ray Dataset of image files becomes a Dataset of rows."""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

from bcos_sdk.bundle import Bundle, Verification
from bcos_sdk.client import Targets
from bcos_sdk.limits import Limits
from bcos_sdk.ray._cluster import address_of_cluster, connect, is_connected, nodes_of_cluster, require_ray
from bcos_sdk.ray._delivery import Delivery, Ship, contents_of, open_model
from bcos_sdk.ray._maps import Maps
from bcos_sdk.ray._places import is_url
from bcos_sdk.ray._resources import choose_workers
from bcos_sdk.ray._settings import Question, WorkerSettings, batch_of
from bcos_sdk.ray._workers import BatchWorker

__all__ = ["explain_dataset", "is_gpu", "settings_for"]

_BATCHES_PER_CALL = 8
"""A worker computes one batch while it decodes the next. The first batch of a call waits for its images."""


def explain_dataset(
    dataset: Any,
    model: str | os.PathLike[str],
    *,
    targets: Targets = None,
    top_k: int | None = None,
    explain: bool = True,
    maps: Maps = "float16",
    pictures: tuple[str, ...] = (),
    concurrency: int | None = None,
    threads: int | None = None,
    gpus: float | None = None,
    device: str = "auto",
    max_batch: int | None = None,
    tf32: bool = False,
    trust_engines: bool = False,
    limits: Limits | None = None,
    input_size: int | tuple[int, int] | None = None,
    sha256: str | None = None,
    verify: Verification | None = None,
    ship: Ship = "auto",
    contents: str = "bytes",
    path: str = "path",
) -> Any:
    """Return a Ray Dataset with one row per image of `dataset`, in the columns of docs/ray.md.

        with connected():  # before the first call of ray.data, which would start a cluster that the network can reach
            images = ray.data.read_binary_files("s3://bucket/images/", include_paths=True)
            explain_dataset(images, model="out/resnet50", concurrency=8).write_parquet("s3://bucket/results/")

    An image that cannot be used, and a row without path or contents, is a row with its error. A row does not depend on
    the other images, so that a task that Ray repeats gives the same bytes. Arguments are those of `Client` and
    `Client.explain`, and:

        explain: whether to explain the classes, or only to predict the `top_k` most likely ones (by default 5).
        maps: how contribution maps are stored: "none", "float16", "int8", or "float32", which is exact.
        pictures: which pictures to store as PNG: "overlay", "rgba", "heatmap".
        concurrency: the number of workers; by default as many as fit, with one CPU left to read and write. A
            `ClusterError` if that many do not fit the cluster, because Ray would wait for ever.
        threads: CPUs of a worker, and threads of its client. By default 1, or for a GPU its share of the CPUs.
        gpus: GPUs of a worker, by default 1 if the device is one, or if it is "auto" and the cluster has GPUs.
        ship: how a bundle in a folder reaches the workers. "path": all machines see this path. "store": through the
            object store of Ray. "auto": by path if the cluster is this machine. The URL of a bundle is read by each
            machine itself. Workers verify the hash of what they got.
        contents, path: the columns of `dataset` that have the contents of the files and their names.
    """
    require_ray()
    if not is_connected():  # the data set may have been made without a cluster
        connect(address_of_cluster(None))
    import ray

    top_k = top_k or (1 if explain else 5)
    question = Question(explain, targets, top_k, maps, tuple(pictures))
    nodes = nodes_of_cluster()
    workers = choose_workers(nodes, concurrency, threads, gpus, on_gpu=is_gpu(device, nodes), spare=1)
    options: dict[str, Any] = {
        "device": device,
        "threads": workers.cpus,
        "max_batch": max_batch,
        "tf32": tf32,
        "trust_engines": trust_engines,
        "limits": limits,
        "input_size": input_size,
    }
    bundle = open_model(os.fspath(model), sha256=sha256, verify=verify)
    settings = settings_for(bundle, os.fspath(model), question, options, ship=ship, local=len(nodes) == 1)
    return dataset.map_batches(
        BatchWorker,
        fn_constructor_args=(settings, contents, path, uuid4().hex[:12]),
        batch_size=_BATCHES_PER_CALL * batch_of(bundle, max_batch, question),
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=workers.count),
        num_cpus=workers.cpus,
        num_gpus=workers.gpus,
    )


def is_gpu(device: str, nodes: list[Any]) -> bool:
    """Whether workers with this device need GPUs. "auto" takes those of the cluster."""
    if device == "auto":
        return any(node.gpus for node in nodes)
    return device.startswith(("cuda", "tensorrt"))


def settings_for(
    bundle: Bundle, model: str, question: Question, options: dict[str, Any], *, ship: Ship, local: bool
) -> WorkerSettings:
    """What the workers need for this bundle. Targets and options are checked first."""
    size = options.get("input_size")
    at_size = bundle if size is None else bundle.at_size((size, size) if isinstance(size, int) else size)
    question.check(at_size.manifest, options.get("limits") or Limits())
    if is_url(model):
        delivery = Delivery(bundle.sha256, url=model)
    elif ship == "path" or (ship == "auto" and local):
        delivery = Delivery(bundle.sha256, path=str(bundle.path.resolve()))
    else:
        import ray

        delivery = Delivery(bundle.sha256, contents=ray.put(contents_of(bundle)))
    work = question.work(at_size.manifest, tf32=options.get("tf32", False)).model_dump_json()
    return WorkerSettings(delivery, question, work, options)
