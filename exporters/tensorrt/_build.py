"""`build_engines`: one plan and one record per graph, written into `engines/` of the bundle when complete."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from bcos_sdk._aside import written_aside
from bcos_sdk._hashing import sha256_of
from bcos_sdk.bundle import Bundle, InputShapes
from bcos_sdk.errors import EngineError
from bcos_sdk.exporters.tensorrt._flavours import Flavour, choose_flavour

__all__ = ["EngineRecord", "build_engines"]


class EngineRecord(BaseModel):
    """What a plan was built from, with what, and for which GPUs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: str
    plan_sha256: str
    size: int
    graph: str
    graph_sha256: str
    weights_sha256: str
    flavour: Flavour
    version: str
    compute_capabilities: tuple[str, ...]
    profile: InputShapes
    tf32: bool
    seconds: float


def build_engines(
    bundle: Bundle,
    *,
    compute_capabilities: Sequence[str] = (),
    progress: Callable[[str], None] = lambda _stage: None,
) -> list[EngineRecord]:
    """Engines of both graphs, for the GPU at hand or ahead of time for these compute capabilities."""
    flavour = choose_flavour(compute_capabilities)
    folder = bundle.path / "engines"
    folder.mkdir(exist_ok=True)
    records = []
    for graph in (bundle.predict_graph, bundle.explain_graph):
        progress(f"building an engine of {graph.name}")
        records.append(_build(bundle, graph, folder, flavour, tuple(compute_capabilities)))
    return records


def _build(bundle: Bundle, graph: Path, folder: Path, flavour: Flavour, capabilities: tuple[str, ...]) -> EngineRecord:
    where = "-".join(f"sm{capability.replace('.', '')}" for capability in capabilities) or "this-gpu"
    plan = folder / f"{graph.stem}.{flavour}.{where}.plan"
    job = {
        "flavour": flavour,
        "graph": str(graph),
        "profile": bundle.input_shapes(graph),
        "capabilities": capabilities,
    }
    began = time.monotonic()
    with written_aside(plan) as aside:
        said = _run({**job, "plan": str(aside)}, graph.name)
        manifest = bundle.manifest
        record = EngineRecord(
            plan=plan.name,
            plan_sha256=sha256_of(aside),
            size=aside.stat().st_size,
            graph=graph.name,
            graph_sha256=sha256_of(graph),
            weights_sha256=manifest.files[manifest.weights].sha256,
            flavour=flavour,
            version=said["version"],
            compute_capabilities=capabilities,
            profile=bundle.input_shapes(graph),
            tf32=False,
            seconds=round(time.monotonic() - began, 1),
        )
    with written_aside(plan.with_suffix(".json")) as aside:
        aside.write_text(record.model_dump_json(indent=2) + "\n", "utf-8")
    return record


def _run(job: dict[str, Any], name: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "bcos_sdk.exporters.tensorrt._worker"]
    done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        reason = f"crashed with signal {-done.returncode}" if done.returncode < 0 else "; ".join(lines[-3:])
        raise EngineError(f"no engine of {name} was built: {reason}", source=name)
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said
