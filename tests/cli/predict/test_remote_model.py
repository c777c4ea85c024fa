"""`bcos-sdk predict --model http://…`: the output is that of the bundle on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.bundles import small_bundle
from support.odd_server import odd_server

pytest.importorskip("urllib3")

from bcos_sdk.cli import main


def predicted(*arguments: str) -> tuple[int, list[dict[str, object]], str]:
    done = CliRunner().invoke(main, ["predict", *arguments, "--format", "jsonl"])
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_it_prints_what_the_bundle_on_this_machine_gives(images: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    with odd_server() as server:
        remote = ["--model", server.address, "--token-file", str(token), "--bundle", str(small_bundle().path)]
        code, results, errors = predicted(str(images), "--explain", *remote)
        assert (code, predicted(str(images), "--explain", "--device", "cpu")[1]) == (0, results)
        assert f"on {server.address}, 2 images" in errors
        assert {headers["Authorization"] for _, headers in server.requests} == {"Bearer s3cret"}
        out = str(tmp_path / "out")
        assert predicted(str(images), "--report", "--out", out, *remote)[0] == 0
        assert (tmp_path / "out" / "report.html").exists()
        server.requests.clear()
        code, _, _ = predicted(str(images), "--report", "--out", out, "--resume", "--model", str(small_bundle().path))
        assert (code, server.inferences) == (0, 0), "it is the same model, so nothing is left to do"


def test_a_token_from_the_environment_is_sent(images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCOS_SDK_REMOTE_TOKEN", "from outside")
    with odd_server() as server:
        assert predicted(str(images), "--model", server.address)[0] == 0
        assert {headers["Authorization"] for _, headers in server.requests} == {"Bearer from outside"}


def test_errors_of_servers_are_errors_of_the_command(images: Path) -> None:
    with odd_server() as server:
        server.golden = b""
        code, results, errors = predicted(str(images), "--model", server.address)
    assert (code, results) == (1, [])
    assert "golden record" in errors
    assert predicted(str(images), "--model", "http://127.0.0.1:1")[0] == 1
    code, _, errors = predicted(str(images), "--bundle", "x")
    assert code == 2
    assert "need a model with an address" in errors
