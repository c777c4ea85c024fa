"""The graphs on WebGPU, which Chromium can emulate in software."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browsers import open_browser
from support.sites import SAMPLES, serving_files, site_of

from bcos_sdk.bundle import builtin_bundle, open_bundle


@pytest.mark.full
def test_webgpu_computes_what_the_golden_record_has(tmp_path: Path) -> None:
    emulated = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan")
    site_of(open_bundle(builtin_bundle()), tmp_path / "site", samples=SAMPLES)
    with serving_files(tmp_path) as address, open_browser(*emulated) as browser:
        page = browser.new_page()
        page.goto(f"{address}site/site.json")
        if not page.evaluate("navigator.gpu?.requestAdapter().then(Boolean)"):
            pytest.skip("this Chromium has no WebGPU")
        device, passed = page.evaluate("""async () => {
          const {load} = await import("./bcos/bcos.js");
          const client = await load("model/", {device: "webgpu"});
          const image = await (await fetch("samples/cat-1.jpg")).blob();
          const {explanations: [one]} = await client.explain(image);
          return [client.device, one.completeness.passed];
        }""")
    assert device == "WebGPU"
    assert passed
