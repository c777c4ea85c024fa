"""`bcos-sdk validate`: is this bundle what was exported, and does it say here what it said then?"""

from __future__ import annotations

import click

from bcos_sdk.bundle import find_bundle
from bcos_sdk.images import encode

__all__ = ["validate"]


@click.command()
@click.argument("model", metavar="DIR|NAME")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, openvino, cuda, cuda:1, tensorrt, ...")
@click.option("--tf32", is_flag=True, help="Let a GPU multiply with 11 binary digits: faster, less exact.")
def validate(model: str, device: str, tf32: bool) -> None:
    """Check the bundle DIR, or the export of that NAME: hashes, golden outputs, completeness.

    Exit code 1 if a file was changed, 3 if logits or W(x) differ from those of the export, 4 if an explanation does not
    add up.

    \b
    Examples:
      bcos-sdk validate out/resnet50
      bcos-sdk validate resnet50 --device cuda
    """
    from bcos_sdk.client import Client

    bundle = find_bundle(model)
    click.echo(f"ok  hashes        {len(bundle.manifest.files)} files of {bundle.path}")
    with Client(bundle.path, device=device, tf32=tf32) as client:
        golden = bundle.golden()
        image = encode(golden.pixels)
        client.predict(image)
        click.echo(f"ok  predict       golden logits reproduced on {client.device}")
        (explained,) = client.explain(image, targets=golden.target)
        click.echo(f"ok  explain       golden logits and W(x) reproduced on {client.device}")
        figures = explained.explanations[0].completeness
    click.echo(f"ok  completeness  residual {figures.relative_residual:.1e}, tolerance {figures.tolerance:.0e}")
