"""Model of the Python backend of Triton: runs model.onnx in ONNX Runtime. Repositories get this file as model.py."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as triton

__all__ = ["TritonPythonModel"]


class TritonPythonModel:
    """One instance of the model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the graph that lies beside this file."""
        config = json.loads(args["model_config"])
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # its errors are raised, and go to the caller
        threads = config["parameters"].get("intra_op_thread_count", {}).get("string_value", "0")
        options.intra_op_num_threads = int(threads)
        path = Path(args["model_repository"]) / args["model_version"] / "model.onnx"
        self._session: Any = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._inputs: list[str] = [one["name"] for one in config["input"]]

    def execute(self, requests: list[Any]) -> list[Any]:
        """One response for each request. Requests whose inputs have equal shapes run as one batch."""
        feeds = [
            {name: triton.get_input_tensor_by_name(one, name).as_numpy() for name in self._inputs} for one in requests
        ]
        groups: dict[Any, list[int]] = {}
        for place, feed in enumerate(feeds):
            groups.setdefault(tuple(array.shape[1:] for array in feed.values()), []).append(place)
        responses: dict[int, Any] = {}
        for places in groups.values():
            answers = self._run([requests[place] for place in places], [feeds[place] for place in places])
            responses.update(zip(places, answers, strict=True))
        return [responses[place] for place in range(len(requests))]

    def finalize(self) -> None:
        """Close the graph."""
        self._session = None

    def _run(self, requests: list[Any], feeds: list[dict[str, Any]]) -> list[Any]:
        """The responses to requests that share one run."""
        wanted = [list(one.requested_output_names()) for one in requests]
        names = sorted({name for one in wanted for name in one})
        batch = {name: np.concatenate([feed[name] for feed in feeds]) for name in self._inputs}
        try:
            outputs = dict(zip(names, self._session.run(names, batch), strict=True))
        except Exception as error:  # the errors of ONNX Runtime have no other common base
            # One error object in several responses makes the server crash.
            return [triton.InferenceResponse(error=triton.TritonError(str(error))) for _ in requests]
        sizes = [len(feed[self._inputs[0]]) for feed in feeds]
        ends = np.cumsum(sizes)
        return [
            triton.InferenceResponse([triton.Tensor(name, outputs[name][end - size : end]) for name in own])
            for own, end, size in zip(wanted, ends, sizes, strict=True)
        ]
