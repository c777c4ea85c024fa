"""What is imported only when it is used: names of the package, and commands."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

import bcos_sdk
from bcos_sdk import weights
from bcos_sdk.cli import main
from bcos_sdk.cli._commands import COMMANDS


def loaded_by(statement: str) -> set[str]:
    """The modules of a process after the statement."""
    program = f"import sys\n{statement}\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_import_of_the_package_imports_no_other_package() -> None:
    assert not loaded_by("import bcos_sdk") & {"numpy", "pydantic", "PIL", "yaml", "bcos_sdk.client"}


def test_the_list_of_commands_imports_no_command() -> None:
    statement = "from bcos_sdk.cli import main; main(['--help'], standalone_mode=False)"
    assert not loaded_by(statement) & {
        "numpy",
        "pydantic",
        *(f"bcos_sdk.cli.{one.module}" for one in COMMANDS.values()),
    }


def test_every_public_name_is_found() -> None:
    for package in (bcos_sdk, weights):
        for name in package.__all__:
            assert getattr(package, name) == vars(package).get(name, bcos_sdk.__version__)
    assert set(bcos_sdk.__all__) <= set(dir(bcos_sdk))


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'bcos_sdk' has no attribute 'Cleint'"):
        _ = bcos_sdk.Cleint  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_name_and_a_summary_of_one_line(name: str) -> None:
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None
    assert command.name == name
    summary = COMMANDS[name].summary
    assert summary.endswith(".")
    assert [name, summary] in [line.split(maxsplit=1) for line in main.get_help(context).splitlines()]
