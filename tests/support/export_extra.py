"""torch, onnx and the exporter for test modules that also run where the export extra is not installed.

`from support.export_extra import torch` gives the real module if it is installed. Otherwise it gives a stand-in
that skips the test which uses it. Only names imported from here are replaced: if bcos_sdk itself imports torch where it
should not, the test fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bcos_sdk._extras import is_installed

__all__ = ["HAVE_TORCH", "export", "import_reference", "load_model", "numpy_helper", "onnx", "torch"]

HAVE_TORCH = is_installed("torch")
_NEEDS_TORCH = "needs torch: pip install 'bcos-sdk[export]'"


class _Missing:
    """Skips the test that reads an attribute of it or calls it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "pytest")):  # pytest itself looks for these in every object of a test module
            raise AttributeError(name)
        pytest.skip(_NEEDS_TORCH)

    def __call__(self, *_: Any, **__: Any) -> Any:
        pytest.skip(_NEEDS_TORCH)


if TYPE_CHECKING or HAVE_TORCH:
    import onnx
    import torch
    from onnx import numpy_helper

    from bcos_sdk.exporters import export
    from bcos_sdk.weights import load_model
else:
    export = load_model = numpy_helper = onnx = torch = _Missing()


def import_reference() -> None:
    """Make the packages `bcos` and `torchvision` importable, or skip the test."""
    if not HAVE_TORCH:
        pytest.skip(_NEEDS_TORCH)
    from support import reference  # noqa: F401 - importing it is what makes them importable
