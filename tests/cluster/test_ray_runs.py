"""Runs on a real Ray cluster: kills of actors, nodes and drivers, resuming, S3, and the example of the documentation.

`make test-ray` builds an environment with Ray and runs these tests. They take minutes.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import needs_ray  # noqa: F401
from support.batches import add_images, run_shards, table_of
from support.bundles import small_bundle
from support.poison import add_poison, poisoned_environment
from support.ray_runs import (
    Nodes,
    RunningCommand,
    environment,
    kill_what_still_runs,
    three_nodes,
    wait_for,
)

from bcos_sdk.limits import Limits
from bcos_sdk.ray import Folder, Question, Start, read_rows
from bcos_sdk.ray._explainer import load
from bcos_sdk.results import Failure

pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("ignore"),  # of Ray
]

IMAGES = 400
_LARGE = (500, 700)
"""Decoding such an image takes long enough that a kill hits a run in its middle."""


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with 400 images, one of them damaged."""
    folder = tmp_path_factory.mktemp("photographs")
    made = add_images(folder / "made", 5, size=_LARGE)
    for number in range(IMAGES):
        source = made[2 if number == 123 else number % 2 or 3]
        (folder / f"{number % 7}").mkdir(exist_ok=True)
        (folder / f"{number % 7}" / f"{number:04d}.png").hardlink_to(source)
    shutil.rmtree(folder / "made")
    return folder


@pytest.fixture(scope="module")
def expected(photographs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The rows that one process on one machine writes."""
    place = tmp_path_factory.mktemp("expected") / "out"
    run_shards(place, sorted(map(str, photographs.rglob("*.png"))), Start.NEW, Question(maps="float32"), size=IMAGES)
    rows = table_of(place)
    assert len(rows) == IMAGES
    return rows


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with three_nodes() as made:
        yield made


@pytest.fixture(autouse=True)
def _end() -> Iterator[None]:
    yield
    kill_what_still_runs()


def command(nodes: Nodes, photographs: Path, out: Path, *more: object) -> RunningCommand:
    options = ("--explain", "--maps", "float32", "--device", "cpu", "--images-per-file", "20", "--threads", "1")
    model = ("--model", small_bundle().path, "--address", nodes.address)
    return RunningCommand.start(out, photographs, *options, *model, *more)


def check(out: Path, expected: dict[str, Any]) -> None:
    """Every image once, with the bytes of one machine."""
    assert table_of(out) == expected
    assert len(list(read_rows(str(out)))) == len(expected)


def test_an_actor_is_killed(nodes: Nodes, photographs: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    run = command(nodes, photographs, tmp_path / "out", "--workers", "3")
    run.wait_for_files(3)
    victims = nodes.actors()
    assert len(victims) == 3
    for victim in victims[:2]:
        victim.kill()
    printed = run.end(5)
    assert "399 done, 1 failed" in printed
    check(tmp_path / "out", expected)


def test_a_node_is_killed(nodes: Nodes, photographs: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    run = command(nodes, photographs, tmp_path / "out", "--workers", "3")
    run.wait_for_files(3)
    nodes.kill_last()
    printed = run.end(5)
    nodes.add()
    assert "399 done, 1 failed" in printed
    check(tmp_path / "out", expected)


def test_the_driver_is_killed_and_resumed(
    nodes: Nodes, photographs: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run = command(nodes, photographs, out, "--workers", "3")
    run.wait_for_files(5)
    run.kill()
    wait_for(lambda: not nodes.actors(), "the end of the actors of a killed driver")
    finished = len(table_of(out))
    assert 0 < finished < IMAGES
    kept = finished - sum(row["status"] == "failed" for row in table_of(out).values())
    refused = command(nodes, photographs, out, "--workers", "3")
    assert "has the record of an earlier run" in refused.end(2)
    printed = command(nodes, photographs, out, "--workers", "3", "--resume").end(5)
    assert f"{399 - kept} done, 1 failed, {kept} from an earlier run" in printed
    check(out, expected)
    printed = command(nodes, photographs, out, "--workers", "3", "--resume").end(5)
    assert "0 done, 1 failed, 399 from an earlier run" in printed
    check(out, expected)


def test_an_interrupted_run_says_how_far_it_came(nodes: Nodes, photographs: Path, tmp_path: Path) -> None:
    run = command(nodes, photographs, tmp_path / "out", "--workers", "3")
    run.wait_for_files(4)
    run.process.send_signal(signal.SIGTERM)
    printed = run.end(143)
    assert "of 400 images are finished; continue with --resume" in printed
    assert not [path for path in (tmp_path / "out").iterdir() if path.suffix == ".partial"]
    wait_for(lambda: not nodes.actors(), "the end of the actors")


def test_too_few_cpus_are_refused_and_nothing_hangs(nodes: Nodes, photographs: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    printed = command(nodes, photographs, tmp_path / "out", "--workers", "4").end(1)
    assert "error [cluster_error]: 4 workers with 1 CPU each do not fit the cluster: it has 3 CPUs" in printed
    assert "use --workers 3" in printed
    printed = command(nodes, photographs, tmp_path / "out", "--threads", "2").end(1)
    assert "Not even one fits" in printed
    assert time.monotonic() - began < 200
    assert not list((tmp_path / "out").glob("*.parquet"))


SCRIPT = """
import sys
import ray
from bcos_sdk.ray import connected, explain_dataset

folder, model, out, address, concurrency = sys.argv[1:]
with connected(address, 2):
    results = explain_dataset(
        ray.data.read_binary_files(folder, include_paths=True, override_num_blocks=20),
        model=model, maps="float32", device="cpu", threads=1, concurrency=int(concurrency), ship="store",
    )
    results.write_parquet(out)
"""


def test_the_data_set_of_python_survives_kills(
    nodes: Nodes, photographs: Path, expected: dict[str, Any], tmp_path: Path
) -> None:
    arguments = (photographs, small_bundle().path, tmp_path / "out", nodes.address)
    run = RunningCommand.start(tmp_path / "out", *arguments, 2, script=SCRIPT)
    wait_for(lambda: len(nodes.actors()) >= 2 or run.process.poll() is not None, "the start of the actors")
    time.sleep(5)
    nodes.actors()[0].kill()
    time.sleep(2)
    nodes.kill_last()
    nodes.add()  # its tasks that read and write need a CPU beside those of the actors
    run.end(0)
    check(tmp_path / "out", expected)
    refused = RunningCommand.start(tmp_path / "no", *arguments[:2], tmp_path / "no", nodes.address, 3, script=SCRIPT)
    assert "3 workers with 1 CPU each, and 1 CPU for reading and writing do not fit" in refused.end(1)


def test_an_image_that_kills_its_workers_is_a_failed_row(photographs: Path, tmp_path: Path) -> None:
    """The other 9 images have the rows of one machine, and nothing is left to be tried without end."""
    deadly = tmp_path / "images" / "5.png"
    deadly.parent.mkdir()
    for number, image in enumerate(sorted(photographs.rglob("*.png"))[:10]):
        shutil.copyfile(image, deadly.with_name(f"{number}.png"))
    run_shards(tmp_path / "expected", sorted(map(str, deadly.parent.iterdir())), Start.NEW, Question(maps="float32"))
    expected = table_of(tmp_path / "expected")
    add_poison(str(deadly))
    path = poisoned_environment(tmp_path / "site")
    model = ("--model", small_bundle().path, "--device", "cpu", "--threads", "1")
    options = ("--explain", "--maps", "float32", "--images-per-file", "4", "--workers", "2", *model)
    run = RunningCommand.start(tmp_path / "out", deadly.parent, *options, PYTHONPATH=path)
    printed = run.end(5)
    assert f"error [worker_crashed]: {deadly} ended each process" in printed
    check_all_but(deadly, tmp_path / "out", expected)
    assert not list((tmp_path / "out").glob("_bcos_sdk_attempt*"))
    run = RunningCommand.start(tmp_path / "out", deadly.parent, *options, "--resume", PYTHONPATH=path)
    assert "0 done, 1 failed" in run.end(5)
    check_all_but(deadly, tmp_path / "out", expected)
    arguments = (deadly.parent, small_bundle().path, tmp_path / "python", "local", 1)
    more = {"PYTHONPATH": path, "BCOS_SDK_CACHE": str(tmp_path / "cache")}
    RunningCommand.start(tmp_path / "python", *arguments, script=SCRIPT, **more).end(0)
    check_all_but(deadly, tmp_path / "python", expected)
    assert not list((tmp_path / "cache" / "attempts").iterdir())


def check_all_but(deadly: Path, out: Path, expected: dict[str, Any]) -> None:
    """Every image once, with the bytes of one machine; the deadly one with its error."""
    rows = table_of(out)
    assert rows.pop(str(deadly))["error_code"] == "worker_crashed"
    assert rows == {path: row for path, row in expected.items() if path != str(deadly)}


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A local S3, whose address is in the environment."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    yield f"http://{host}:{port}"
    server.stop()


def test_keys_with_an_empty_part_are_failed_rows(moto: str) -> None:
    import boto3

    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="odd")
    for key in ("images/a.png", "images//b.png"):
        s3.put_object(Bucket="odd", Key=key, Body=b"contents")
    found = list(Folder("s3://odd/images/").files_below())
    assert sorted(found) == ["s3://odd/images//b.png", "s3://odd/images/a.png"]
    loaded = {path: load(path, Limits()) for path in found}
    assert loaded["s3://odd/images/a.png"].sha256 is not None
    failure = loaded["s3://odd/images//b.png"].image
    assert isinstance(failure, Failure)
    assert "Empty path component" in failure.message


def test_the_commands_and_the_example_as_printed(moto: str, tmp_path: Path) -> None:
    import boto3

    images = add_images(tmp_path / "images", 30)
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket="bucket")
    for path in images:
        s3.upload_file(path, "bucket", f"images/{Path(path).name}")
    for file in filter(Path.is_file, small_bundle().path.rglob("*")):
        s3.upload_file(str(file), "bucket", f"bundle/{file.relative_to(small_bundle().path)}")
    more = {"BCOS_SDK_MODEL": str(small_bundle().path), "BCOS_SDK_CACHE": str(tmp_path / "cache")}
    entry = [sys.executable, "-c", "import sys; from bcos_sdk.cli import main; sys.argv[0] = 'bcos-sdk'; main()"]

    def run(line: str, exit_code: int = 5) -> str:
        done = subprocess.run(
            [*entry, *line.split()[1:]],
            cwd=tmp_path,
            env=environment(**more),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == exit_code, done.stderr
        return done.stderr

    printed = run("bcos-sdk predict s3://bucket/images/ --explain --engine ray --out s3://bucket/results/ --resume")
    assert "29 done, 1 failed; written to s3://bucket/results" in printed
    printed = run(
        "bcos-sdk predict s3://bucket/images/ --explain --engine ray --out s3://bucket/results/ --resume "
        "--model s3://bucket/bundle"
    )
    assert "0 done, 1 failed, 29 from an earlier run" in printed
    assert "29 done, 1 failed" in run("bcos-sdk predict images/ --explain --engine ray --workers 4")
    example = """
import ray
from bcos_sdk.ray import connected, explain_dataset

with connected():
    images = ray.data.read_binary_files("s3://bucket/images/", include_paths=True)
    results = explain_dataset(images, model="s3://bucket/bundle", targets=["lynx"], concurrency=1)
    results.write_parquet("s3://bucket/python/")
    from support.ray_runs import listening_addresses
    assert listening_addresses() == {"127.0.0.1"}, listening_addresses()
"""
    done = subprocess.run(
        [sys.executable, "-c", example], env=environment(**more), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    from_python = {row.path: row for row in read_rows("s3://bucket/python/")}
    assert from_python.keys() == {f"bucket/images/{Path(path).name}" for path in images}
    assert sum(row.work.targets == ("lynx",) for row in from_python.values()) == 30
    in_store = {row.path.rpartition("/")[2]: row for row in read_rows("s3://bucket/results/")}
    here = {Path(row.path).name: row for row in read_rows(str(tmp_path / "bcos-out"))}
    assert in_store.keys() == here.keys() == {Path(path).name for path in images}
    for name, row in here.items():
        assert row.image_sha256 == in_store[name].image_sha256
        assert [one.tobytes() for one in row.maps if one is not None] == [
            one.tobytes() for one in in_store[name].maps if one is not None
        ]

    import duckdb

    found = duckdb.sql(f"select status, count(*), count(distinct path) from '{tmp_path}/bcos-out/*.parquet' group by 1")
    assert sorted(found.fetchall()) == [("failed", 1, 1), ("ok", 29, 29)]
