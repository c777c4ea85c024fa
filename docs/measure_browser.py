"""Measure bundles in Chromium beside the Python client: `python docs/measure_browser.py BUNDLE... [--rounds N]`.

Both get the same JPEG file and return classes, or an explanation with W(x). Rounds are interleaved, because other work
on the machine slows down both; the table has medians and their ratios. It needs chromium and playwright.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from bcos_sdk import Client
from bcos_sdk.bundle import find_bundle
from bcos_sdk.web import write_site

IMAGE = Path(__file__).resolve().parents[1] / "samples" / "cat-2.jpg"
LOAD = """async threads => {
  const began = performance.now();
  const {load} = await import("./bcos/bcos.js");
  globalThis.client = await load("model/", {device: "wasm", threads});
  globalThis.image = await (await fetch("samples/cat-2.jpg")).blob();
  return (performance.now() - began) / 1000;
}"""
CALL = """async method => {
  const began = performance.now();
  await client[method](image);
  return performance.now() - began;
}"""
HEADER = ("| | threads | browser, ms | client, ms | browser ÷ client | load, s |", "|---|---|---|---|---|---|")
METHODS = ("predict", "explain")


class Isolated(http.server.SimpleHTTPRequestHandler):
    """Python's file server, with the headers that give WebAssembly threads."""

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *arguments: Any) -> None:
        pass


def milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began)


def measure(name: str, threads: int, rounds: int, browser: Any, address: str) -> list[str]:
    page = browser.new_page()
    page.goto(f"{address}site.json")
    loading = page.evaluate(LOAD, threads)
    with Client(name, device="cpu", threads=threads) as client:
        ours: dict[str, Callable[[], object]] = {
            "predict": lambda: client.predict(IMAGE),
            "explain": lambda: client.explain(IMAGE, weights=True),
        }
        found: dict[str, list[tuple[float, float]]] = {what: [] for what in METHODS}
        for round_ in range(rounds + 2):
            for what in METHODS:
                pair = page.evaluate(CALL, what), milliseconds(ours[what])
                if round_ >= 2:
                    found[what].append(pair)
    page.close()
    rows = []
    for what, pairs in found.items():
        there, here = (statistics.median(one) for one in zip(*pairs, strict=True))
        rows.append(f"| {what} | {threads} | {there:.0f} | {here:.0f} | {there / here:.1f} | {loading:.1f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundles", nargs="+")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    for name in given.bundles:
        with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
            bundle = find_bundle(name)
            site = write_site(bundle, Path(folder, "site"), samples=IMAGE.parent)
            size = sum(path.stat().st_size for path in (site / "model").iterdir()) / 1e6
            handler = functools.partial(Isolated, directory=str(site))
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            table = [f"{bundle.manifest.model.name}, {size:.1f} MB of model files", "", *HEADER]
            for threads in (1, 2):
                address = f"http://127.0.0.1:{server.server_port}/"
                table += measure(name, threads, given.rounds, browser, address)
            sys.stdout.write("\n".join(table) + "\n\n")
            browser.close()
            server.shutdown()


if __name__ == "__main__":
    main()
