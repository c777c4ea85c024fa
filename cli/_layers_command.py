"""`bcos-sdk layers`: list the inner layers of a model that can be explained."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import click

from bcos_sdk.bundle import LayerRecord, find_folder, read_manifest
from bcos_sdk.cli._common import channels_option, columns, json_option, output_name_option, parse_size, registry_option
from bcos_sdk.cli._terminal import print_json, print_lines, print_message
from bcos_sdk.cli.export import Choices, from_factory, from_registry, is_factory
from bcos_sdk.registry import Registry, model_registry

__all__ = ["layers"]


@click.command()
@click.argument("model")
@registry_option
@click.option("--input-size", callback=parse_size, metavar="H[xW]", help="Input size; default: the model's, or 224.")
@channels_option
@output_name_option
@json_option
def layers(
    model: str,
    registries: tuple[Path, ...],
    input_size: tuple[int, int] | None,
    channels: str | None,
    output_name: str | None,
    as_json: bool,
) -> None:
    """List the inner layers of MODEL that `bcos-sdk export --layers` accepts, with their shapes.

    MODEL is a registry name or package.module:factory, as for `export`: the network is built with random weights and
    run once. MODEL can also be the folder of a bundle, or the name of an export that is no registry name: then the
    layers are listed that it was exported with.
    COMPLETE says whether every path from the image to the logits passes the layer. COST is the part of the
    network's multiplications that is needed to compute the layer.

    \b
    Examples:
      bcos-sdk layers resnet50
      bcos-sdk layers my_package.networks:make --channels rgb --input-size 64
      bcos-sdk layers out/resnet50 --json
    """
    registry = model_registry(*registries)
    is_network = is_factory(model) or model in registry
    if not is_network and (input_size, channels, output_name) != (None, None, None):
        raise click.UsageError("--input-size, --channels and --output-name are for networks; a bundle has its own")
    if is_network:
        rows = _of_network(model, registries, input_size, channels, output_name)
    else:
        rows = _of_bundle(model, registry)
    if as_json:
        print_json(json.dumps(rows, indent=2))
        return
    header = ("LAYER", "CLASS", "SHAPE", "KB", "COMPLETE", "COST")
    if rows:
        print_lines(*columns(header, [_cells(row) for row in rows], right=("KB", "COST")))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    cost = "" if row["cost"] is None else f"{row['cost']:.0%}"
    shape = "×".join(map(str, row["shape"]))
    return row["path"], row["class"], shape, f"{row['bytes'] / 1e3:,.0f}", "yes" if row["complete"] else "partial", cost


def _of_bundle(model: str, registry: Registry) -> list[dict[str, Any]]:
    manifest = read_manifest(find_folder(model, registry=registry))
    if not manifest.layer_records:
        name = manifest.model.name if manifest.model.name in registry else "MODEL"
        print_message(
            f"{model} has no inner layers. To add some, export the model again with --layers PATH,…: "
            f"`bcos-sdk layers {name}` lists the paths of a network"
        )
    return [_row(one) for one in manifest.layer_records]


def _row(record: LayerRecord) -> dict[str, Any]:
    return {
        "path": record.path,
        "class": record.kind,
        "shape": list(record.shape),
        "bytes": 4 * prod(record.shape),
        "complete": record.complete,
        "cost": None,
    }


def _of_network(
    model: str, registries: tuple[Path, ...], size: tuple[int, int] | None, channels: str | None, output: str | None
) -> list[dict[str, Any]]:
    choices = Choices(
        weights=None,
        random_weights=not is_factory(model),
        ema=True,
        weights_key=None,
        classes=None,
        labels=None,
        input_size=size,
        resize=None,
        no_resize=False,
        interpolation=None,
        probability=None,
        channels=channels,
    )
    spec = None if is_factory(model) else model_registry(*registries).find(model)
    source = from_factory(model, choices) if spec is None else from_registry(spec, choices)
    from bcos_sdk.exporters import list_layers

    taken = source.preprocessing
    return [
        {
            "path": one.path,
            "class": one.kind,
            "shape": list(one.shape),
            "bytes": 4 * prod(one.shape),
            "complete": one.complete,
            "cost": one.cost,
        }
        for one in list_layers(source.network, taken.size, output, channels=taken.depth)
    ]
