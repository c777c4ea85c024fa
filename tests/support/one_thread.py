"""One thread per runtime, so that the worker processes of a test run do not compete for cores."""

from __future__ import annotations

from typing import Any

import onnxruntime

from support.export_extra import HAVE_TORCH, torch


class _Session(onnxruntime.InferenceSession):  # type: ignore[misc]
    """Uses one thread where the options leave the number of threads to ONNX Runtime."""

    def __init__(self, model: Any, sess_options: Any = None, *rest: Any, **more: Any) -> None:
        options = sess_options or onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.intra_op_num_threads or 1
        super().__init__(model, options, *rest, **more)


def install() -> None:
    """Change the defaults of torch and ONNX Runtime in this process."""
    onnxruntime.InferenceSession = _Session
    if HAVE_TORCH:
        torch.set_num_threads(1)
