"""The program of a child process that runs a bundle on a device as a client does, so that its caller sees it crash."""

from __future__ import annotations

import faulthandler
import json
import sys
from contextlib import suppress

import numpy as np

from bcos_sdk.backends._devices import parse_device
from bcos_sdk.backends._open import open_on_device
from bcos_sdk.backends._runtime import OpenOptions
from bcos_sdk.bundle import open_bundle
from bcos_sdk.contract import mean_target
from bcos_sdk.errors import BcosError
from bcos_sdk.images import stand_in

__all__ = ["main"]


def main() -> None:
    """Run the bundle with every number of images that the device compiles. Errors that are reported are no crashes."""
    faulthandler.disable()
    job = json.loads(sys.argv[1])
    device = parse_device(job["device"])
    assert device is not None
    with suppress(BcosError):
        bundle = open_bundle(job["path"], sha256=job["sha256"]).at_size(tuple(job["input_size"]))
        image = stand_in(bundle.golden().pixels, bundle.manifest.input)[None]
        target = mean_target(bundle.manifest.classes)
        backend = open_on_device(bundle, device, OpenOptions(job["threads"], by_name=False))
        for count in device.runtime.sizes(job["threads"], bundle.manifest):
            images = np.repeat(image, count, axis=0)
            with suppress(BcosError):
                backend.predict(images)
                backend.explain(images, np.full((count, 1), target), weights=True)
        with suppress(BcosError):
            backend.explain(image, np.full((1, 2), target), weights=True)
        backend.close()
        print("tried", flush=True)  # noqa: T201 - the reply
