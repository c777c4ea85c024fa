"""The options of `bcos-sdk predict --engine ray`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any, get_args

import click

from bcos_sdk.errors import InputError
from bcos_sdk.ray import Maps, Ship, is_url, local_path

__all__ = ["FolderOrUrl", "RayOptions", "ray_options"]


class FolderOrUrl(click.Path):
    """A folder of this machine as a path, or the URL of a store as text."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str):
            if is_url(value):
                return value
            try:
                value = str(local_path(value))
            except InputError as error:
                self.fail(error.message, param, ctx)
        return super().convert(value, param, ctx)


@dataclass(frozen=True)
class RayOptions:
    """What the options say; None where one was not given."""

    engine: str = "local"
    workers: int | None = None
    address: str | None = None
    gpus_per_worker: float | None = None
    maps: Maps | None = None
    images_per_file: int | None = None
    ship: Ship | None = None

    @property
    def chosen(self) -> bool:
        return self.engine == "ray"

    def refuse_without_engine(self) -> None:
        """Raise a usage error if an option of the engine was given without it."""
        given = [
            field.name for field in fields(self) if field.name != "engine" and getattr(self, field.name) is not None
        ]
        if given and not self.chosen:
            raise click.UsageError(f"--{given[0].replace('_', '-')} needs --engine ray")


def ray_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command, which gets them as `ray`."""

    @click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help="ray: on a cluster, from and to folders and URLs; Parquet files in OUT.",
    )
    @click.option("--workers", type=click.IntRange(1), help="ray: number of workers; default: as many as fit.")
    @click.option(
        "--address", metavar="HOST:PORT", help="ray: the cluster; default: RAY_ADDRESS, else one on this machine."
    )
    @click.option(
        "--gpus-per-worker",
        type=click.FloatRange(0),
        help="ray: GPUs of a worker, also a fraction; default: 1 on a GPU, else 0.",
    )
    @click.option("--maps", type=click.Choice(get_args(Maps)), help="ray: store contributions; default: float16.")
    @click.option("--images-per-file", type=click.IntRange(1), help="ray: rows of a file; default: up to 1,000.")
    @click.option(
        "--ship",
        type=click.Choice(get_args(Ship)),
        help="ray: workers get the bundle by its path or from Ray's object store; default: auto.",
    )
    @wraps(command)
    def with_ray(*arguments: Any, **options: Any) -> None:
        values = {field.name: options.pop(field.name) for field in fields(RayOptions)}
        ray = RayOptions(**values)
        ray.refuse_without_engine()
        command(*arguments, ray=ray, **options)

    return with_ray
