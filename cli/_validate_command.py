"""`bcos-sdk validate`: check that a bundle is unchanged and matches its golden record on a device."""

from __future__ import annotations

import click

from bcos_sdk.bundle import find_bundle
from bcos_sdk.cli._common import device_option, tf32_option
from bcos_sdk.cli._terminal import print_lines
from bcos_sdk.images import encode

__all__ = ["validate"]


@click.command()
@click.argument("model", metavar="DIR|NAME")
@device_option
@tf32_option
def validate(model: str, device: str, tf32: bool) -> None:
    """Check the bundle DIR, or the stored export NAME: manifest and file hashes, self-test, completeness.

    The self-test compares logits and W(x) with the golden record of the bundle. Exit code 1 if a file was changed, 3 if
    the self-test fails, 4 if an explanation is incomplete (does not add up to the logit).

    \b
    Examples:
      bcos-sdk validate out/resnet50
      bcos-sdk validate resnet50 --device cuda
    """
    from bcos_sdk.client import Client

    bundle = find_bundle(model)
    print_lines(f"ok  hashes        {len(bundle.manifest.files)} files of {bundle.path}")
    with Client(bundle.path, device=device, tf32=tf32) as client:
        golden = bundle.golden()
        image = encode(golden.pixels)
        client.predict(image)
        print_lines(f"ok  predict       logits agree with the golden record on {client.device}")
        (explained,) = client.explain(image, targets=golden.target)
        print_lines(f"ok  explain       logits and W(x) agree with the golden record on {client.device}")
        figures = explained.explanations[0].completeness
    print_lines(f"ok  completeness  residual {figures.relative_residual:.1e}, tolerance {figures.tolerance:.0e}")
