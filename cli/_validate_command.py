"""`bcos-sdk validate`: check that a bundle is unchanged and matches its golden record on a device."""

from __future__ import annotations

import click

from bcos_sdk.bundle import find_bundle, signature_kind
from bcos_sdk.cli._common import device_option, tf32_option, trust_engines_option
from bcos_sdk.cli._terminal import print_lines
from bcos_sdk.cli._trust_options import Trust, trust_options
from bcos_sdk.images import stand_in

__all__ = ["validate"]


@click.command()
@click.argument("model", metavar="DIR|NAME")
@device_option
@tf32_option
@trust_engines_option
@trust_options
def validate(model: str, device: str, tf32: bool, trust_engines: bool, trust: Trust) -> None:
    """Check the bundle DIR, or the stored export NAME: who made it, file hashes, self-test, completeness.

    Who made it is checked if you say who must have: pass --public-key, or --certificate-chain and the --identity in the
    certificate, or --identity and --issuer for Sigstore. --sha256 accepts one bundle only.
    The self-test compares logits and W(x) with the golden record of the bundle. Exit code 1 if a file was changed or
    the bundle is of somebody else, 3 if the self-test fails, 4 if an explanation is incomplete (does not add up to the
    logit).

    \b
    Examples:
      bcos-sdk validate out/resnet50
      bcos-sdk validate resnet50 --device cuda
      bcos-sdk validate out/resnet50 --public-key public.pem
      bcos-sdk validate out/resnet50 --identity me@example.com --issuer https://accounts.google.com
    """
    from bcos_sdk.client import Client, target_at

    bundle = find_bundle(model, **trust.arguments)
    print_lines(f"ok  hashes        {len(bundle.manifest.files)} files of {bundle.path}")
    if trust.sha256 is not None:
        print_lines(f"ok  sha256        {bundle.sha256}")
    if trust.verify is not None:
        print_lines(f"ok  signature     verified with {trust.verify}")
    elif bundle.signature is not None:
        print_lines(f"--  signature     {signature_kind(bundle.signature)}, not checked: no signer was named")
    with Client(bundle.path, device=device, tf32=tf32, trust_engines=trust_engines, **trust.arguments) as client:
        golden = bundle.golden()
        image = stand_in(golden.pixels, bundle.manifest.input)
        client.predict(image)
        print_lines(f"ok  predict       logits agree with the golden record on {client.device}")
        (explained,) = client.explain(image, targets=target_at(bundle.manifest, golden.target))
        print_lines(f"ok  explain       logits and W(x) agree with the golden record on {client.device}")
        for layer in client.layers:
            client.explain_features(image, layer=layer, target=target_at(bundle.manifest, golden.target))
            client.explain_layer(image, layer=layer, direction=0)
            print_lines(f"ok  {layer:<12}  features and W agree with the golden record on {client.device}")
        figures = explained.explanations[0].completeness
    tolerance = f"tolerance {figures.tolerance:.0e} of {figures.precision}"
    print_lines(f"ok  completeness  residual {figures.relative_residual:.1e}, {tolerance}")
