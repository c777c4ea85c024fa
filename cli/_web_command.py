"""`bcos-sdk web`: a bundle as static files that run in the browser."""

from __future__ import annotations

from pathlib import Path

import click

from bcos_sdk.bundle import find_bundle
from bcos_sdk.cli._terminal import print_lines
from bcos_sdk.cli._trust_options import Trust, trust_options
from bcos_sdk.web import write_site

__all__ = ["print_site", "samples_option", "web"]

samples_option = click.option(
    "--samples",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Photographs for the page; default: one of the package.",
)


@click.command()
@click.argument("model", metavar="DIR|NAME")
@click.argument("folder", type=click.Path(path_type=Path))
@samples_option
@click.option("--zip", "zipped", is_flag=True, help="Also write FOLDER.zip.")
@click.option("--force", is_flag=True, help="Replace an existing site.")
@trust_options
def web(model: str, folder: Path, samples: Path | None, zipped: bool, force: bool, trust: Trust) -> None:
    """Write the bundle DIR, or the stored export NAME, as a FOLDER of static files for any web server.

    The page in it explains images in the browser: they are not sent anywhere. It needs no server of this package.

    \b
    Examples:
      bcos-sdk web cifar10_resnet18_w16 out/web --samples samples
      python -m http.server -d out/web
    """
    print_site(write_site(find_bundle(model, **trust.arguments), folder, samples=samples, force=force, zipped=zipped))


def print_site(folder: Path) -> None:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print_lines(f"{folder}: {size / 1e6:.1f} MB", "", "Try it:", f"  python -m http.server -d {folder}")
