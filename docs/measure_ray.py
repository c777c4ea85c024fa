"""Measure the figures of docs/ray.json on this machine, then run `python docs/make_ray.py`.

`--throughput out/resnet50` compares a worker with a plain loop. It needs Ray and takes minutes. `--plan out/resnet50`
measures what the plan of ten million images needs of one image.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from statistics import median
from typing import Any

DOCS = Path(__file__).resolve().parent
DATA = DOCS / "ray.json"
_ROUNDS, _FILES = 3, 3
"""Rounds, and in each the files that are timed, after one that is not."""
_WARM, _TIMED = 16, 48
"""For the plan: images that are not timed, and those that are."""

Figures = dict[str, Any]


def measure(model: str, device: str, size: tuple[int, int], timed: int) -> Figures:
    """Throughput of one worker against a plain loop, interleaved, and the figures of one image."""
    from bcos_sdk.bundle import find_bundle
    from bcos_sdk.ray import connected

    with tempfile.TemporaryDirectory() as folder:
        images = _photographs(Path(folder) / "images", timed + timed // _FILES, size)
        rounds = []
        with connected(None, 2):
            for number in range(_ROUNDS):
                plain = _plain(model, device, Path(folder) / "images", timed)
                rounds.append((plain, _on_ray(model, device, images, Path(folder) / f"out{number}")))
                sys.stderr.write(f"round {number + 1}: {rounds[-1]}\n")
    name = find_bundle(model).manifest.model.name
    return {
        "model": name,
        "device": device,
        "images": timed,
        "wall": median(plain["wall"] / ray["wall"] for plain, ray in rounds),
        "cpu": median(plain["cpu"] / ray["cpu"] for plain, ray in rounds),
    }


def _photographs(folder: Path, count: int, size: tuple[int, int]) -> list[str]:
    """JPEGs with the structure of photographs: a sample photograph, turned and shifted."""
    from PIL import Image, ImageChops

    folder.mkdir()
    samples = sorted((DOCS.parent / "samples").glob("*.jpg"))
    paths = []
    for number in range(count):
        with Image.open(samples[number % len(samples)]) as opened:
            picture = ImageChops.offset(opened.convert("RGB").resize(size), 7 * number, 3 * number)
        paths.append(str(folder / f"{number:04d}.jpg"))
        picture.save(paths[-1], quality=90)
    return paths


def _plain(model: str, device: str, folder: Path, timed: int) -> dict[str, float]:
    """Seconds and CPU seconds of a plain loop in a process of its own, without the first images."""
    done = subprocess.run(  # noqa: S603 - this script
        [
            sys.executable,
            __file__,
            "--plain",
            str(folder),
            "--throughput",
            model,
            "--device",
            device,
            "--images",
            str(timed),
        ],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def plain_loop(model: str, device: str, folder: Path, timed: int) -> dict[str, float]:
    from bcos_sdk import Client

    paths = sorted(folder.iterdir())
    with Client(model, device=device, threads=1) as client:
        for _ in client.explain_stream(paths[:-timed]):
            pass
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in client.explain_stream(paths[-timed:]):
            pass
        return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def _on_ray(model: str, device: str, images: list[str], out: Path) -> dict[str, float]:
    """The same of the files that one worker writes, without the first one."""
    from bcos_sdk.bundle import find_bundle
    from bcos_sdk.ray import Folder, Job, Question

    options = {"device": device}
    job = Job(
        find_bundle(model),
        model,
        Question(),
        Folder(str(out)),
        options,
        workers=1,
        threads=1,
        images_per_file=len(images) // (_FILES + 1),
    )
    outcomes = list(job.run(images, lambda _plan, _workers: None))
    assert sum(outcome.done for outcome in outcomes) == len(images)
    first = min(range(len(outcomes)), key=lambda place: outcomes[place].began)
    rest = [outcome for place, outcome in enumerate(outcomes) if place != first]
    return {"wall": sum(one.seconds for one in rest), "cpu": sum(one.cpu_seconds for one in rest)}


def memory_of_plan(count: int = 200_000) -> dict[str, float]:
    """Bytes of Python objects in the driver for each image: names, plan, and shards as they are sent."""
    from bcos_sdk.ray import LARGEST_SHARD, plan_shards

    def names() -> list[str]:
        return [f"s3://a-bucket-of-images/train/n{number // 1000:08d}/n{number:012d}.jpeg" for number in range(count)]

    tracemalloc.start()
    listed = names()
    plan = plan_shards(listed, {}, size=LARGEST_SHARD, prefix="part-")
    texts = [shard.to_json() for shard in plan.shards]
    fresh = tracemalloc.get_traced_memory()[1]
    sent = sum(map(len, texts))
    del plan, texts
    recorded = names()
    files = {str(start): recorded[start : start + LARGEST_SHARD] for start in range(0, count, LARGEST_SHARD)}
    tracemalloc.reset_peak()
    texts = [shard.to_json() for shard in plan_shards(listed, files, size=LARGEST_SHARD, prefix="part-").shards]
    resumed = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(map(len, texts)) > 0
    return {"driver_bytes": fresh / count, "resume_bytes": resumed / count, "shard_bytes": sent / count}


def plan_of(model: str, device: str, size: tuple[int, int]) -> Figures:
    """The figures of one image, from a worker in this process: no cluster is needed."""
    from bcos_sdk import Client
    from bcos_sdk.bundle import find_bundle
    from bcos_sdk.images import load_image
    from bcos_sdk.limits import Limits
    from bcos_sdk.pictures import enlargement
    from bcos_sdk.ray import Question, row_of, write_rows

    with tempfile.TemporaryDirectory() as folder:
        images = _photographs(Path(folder) / "images", _WARM + _TIMED, size)
        spec = find_bundle(model).manifest.input
        with Client(model, device=device, threads=1, fixed_batch=True) as client:
            for _ in client.explain_stream(images[:_WARM]):
                pass
            began = time.process_time()
            results = list(client.explain_stream(images[_WARM:]))
            graph_and_host = time.process_time() - began
        began = time.process_time()
        for path in images[_WARM:]:
            load_image(path, path, spec, Limits(), enlarge=enlargement(spec.size))
        decoding = time.process_time() - began
        began = time.process_time()
        work = Question().work(find_bundle(model).manifest, tf32=False).model_dump_json()
        sizes, storing = {}, 0.0
        for maps in ("float16", "int8", "none"):
            began = time.process_time()
            rows = [row_of(one, image_sha256="0" * 64, device=device, work=work, maps=maps) for one in results]
            write_rows(Path(folder) / maps, rows)
            storing = storing or time.process_time() - began
            sizes[maps] = (Path(folder) / maps).stat().st_size / len(rows)
    return {
        "explain_cpu_seconds": (graph_and_host + storing) / _TIMED,
        "host_cpu_seconds": (decoding + storing) / _TIMED,
        "row_bytes": sizes,
        "worker_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "driver_base": 286e6,
        **memory_of_plan(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--throughput", metavar="MODEL")
    parser.add_argument("--plan", metavar="MODEL")
    parser.add_argument("--device", default="openvino")
    parser.add_argument("--side", type=int, default=500, help="width of the images")
    parser.add_argument("--images", type=int, default=48, help="images that are timed in each round")
    parser.add_argument("--plain", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.plain is not None:
        sys.stdout.write(
            json.dumps(plain_loop(arguments.throughput, arguments.device, arguments.plain, arguments.images))
        )
        return
    figures = json.loads(DATA.read_text("utf-8"))
    size = (arguments.side, arguments.side * 3 // 4)
    if arguments.plan is not None:
        figures["plan"] = plan_of(arguments.plan, arguments.device, size)
    if arguments.throughput is not None:
        measured = measure(arguments.throughput, arguments.device, size, arguments.images)
        key = measured["model"], measured["device"]
        others = [one for one in figures["throughput"] if (one["model"], one["device"]) != key]
        figures["throughput"] = [*others, measured]
    DATA.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
