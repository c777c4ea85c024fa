"""Post-hoc methods of Captum on the same network, with its dynamic weights not detached. Needs the extra `evaluate`.

In eval mode B-cos layers detach their dynamic weights: any gradient is then W(x), and input × gradient is the model's
own explanation. Post-hoc methods are for networks without this property, so they get true gradients.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bcos_sdk._extras import require
from bcos_sdk.errors import InputError

__all__ = ["METHODS", "Method", "PostHoc", "last_feature_map", "true_gradients"]

_GREY = 0.5
_STEPS = 50
_LIME_SAMPLES = 500
_AT_ONCE = 25


@contextmanager
def true_gradients(network: nn.Module) -> Iterator[None]:
    """Let gradients flow through dynamic weights: layers are in training mode, but those with running statistics.

    The outputs stay those of eval mode.
    """
    before = {module: module.training for module in network.modules()}
    try:
        for module in before:
            has_statistics = "running_var" in module._buffers or "running_var" in module._parameters
            module.training = not has_statistics and not isinstance(module, nn.modules.dropout._DropoutNd)
        yield
    finally:
        for module, training in before.items():
            module.training = training


def last_feature_map(network: nn.Module, image: Tensor, classes: int) -> nn.Module:
    """The module whose output is the last map [batch, channels, height, width] before the maps of the classes."""
    found: list[nn.Module] = []

    def note(module: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.ndim == 4 and output.shape[1] != classes and output.shape[-1] > 1:
            found.append(module)

    hooks = [module.register_forward_hook(note) for module in network.modules()]
    try:
        with torch.no_grad():
            network(image)
    finally:
        for hook in hooks:
            hook.remove()
    if not found:
        raise InputError(
            "GradCAM needs a network with feature maps", source="gradcam", hint="Leave gradcam out of --against."
        )
    return found[-1]


class _Ridge:
    """Weighted least squares with a small penalty: the linear model that LIME fits."""

    def __init__(self, penalty: float = 1e-3) -> None:
        self._penalty = penalty
        self._coefficients = torch.zeros(0)

    def fit(self, train_data: Any, **_options: Any) -> dict[str, float]:
        ((samples, values, weights),) = list(train_data)
        features = torch.cat([samples.double(), samples.new_ones(len(samples), 1).double()], 1)
        weighted = features * weights.double().reshape(-1, 1)
        normal = weighted.T @ features + self._penalty * torch.eye(features.shape[1], dtype=torch.float64)
        self._coefficients = torch.linalg.solve(normal, weighted.T @ values.double().reshape(-1))[:-1]
        return {}

    def representation(self) -> Tensor:
        return self._coefficients.float().unsqueeze(0)


@dataclass(frozen=True)
class Method:
    """A post-hoc method. `alias` says what it equals on a B-cos network."""

    title: str
    slow: bool = False
    smoothed: bool = True
    alias: str | None = None


METHODS: Mapping[str, Method] = {
    "intgrad": Method("Integrated Gradients, grey baseline", slow=True),
    "ixg": Method("input × gradient"),
    "gradcam": Method("GradCAM", smoothed=False),
    "deeplift": Method("DeepLIFT", alias="input × gradient, since the network has no piecewise linear activations"),
    "guided": Method("guided backpropagation", alias="the gradient, since the network has no ReLU"),
    "lime": Method("LIME, 500 samples", slow=True),
    "occlusion": Method("occlusion", slow=True),
}


class PostHoc:
    """Explains classes on an image by the methods of Captum. `side` is that of one cell: windows are parts of it."""

    def __init__(self, network: nn.Module, *, side: int, classes: int) -> None:
        require("captum", purpose="Comparing with post-hoc methods")
        self._network = network.eval()
        self._side = side
        self._classes = classes
        self._layer: nn.Module | None = None

    def explain(
        self, method: str, image: npt.NDArray[np.float32], classes: Sequence[int]
    ) -> tuple[npt.NDArray[np.float64], float]:
        """The maps [classes, H, W] of an encoded image [6, H, W], and the seconds per explanation."""
        maps: Callable[[Tensor, list[int]], Tensor] = getattr(self, f"_{method}")
        one = torch.from_numpy(np.ascontiguousarray(image))[None]
        if method == "gradcam" and self._layer is None:
            self._layer = last_feature_map(self._network, one, self._classes)
        with true_gradients(self._network), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Captum says that it sets hooks and gradients
            began = time.perf_counter()
            found = maps(one, list(classes))
            seconds = (time.perf_counter() - began) / len(classes)
        return found.detach().sum(1).double().numpy(), seconds

    def _copies(self, image: Tensor, classes: list[int]) -> tuple[Tensor, Tensor]:
        return image.repeat(len(classes), 1, 1, 1).requires_grad_(), torch.tensor(classes)

    def _ixg(self, image: Tensor, classes: list[int]) -> Tensor:
        from captum.attr import InputXGradient

        images, targets = self._copies(image, classes)
        return _tensor(InputXGradient(self._network).attribute(images, target=targets))

    def _intgrad(self, image: Tensor, classes: list[int]) -> Tensor:
        from captum.attr import IntegratedGradients

        method = IntegratedGradients(self._network)
        return torch.cat(
            [
                _tensor(
                    method.attribute(
                        image,
                        baselines=torch.full_like(image, _GREY),
                        target=one,
                        n_steps=_STEPS,
                        internal_batch_size=_AT_ONCE,
                    )
                )
                for one in classes
            ]
        )

    def _deeplift(self, image: Tensor, classes: list[int]) -> Tensor:
        from captum.attr import DeepLift

        images, targets = self._copies(image, classes)
        return _tensor(DeepLift(self._network).attribute(images, torch.zeros_like(images), target=targets))

    def _guided(self, image: Tensor, classes: list[int]) -> Tensor:
        from captum.attr import GuidedBackprop

        images, targets = self._copies(image, classes)
        return _tensor(GuidedBackprop(self._network).attribute(images, target=targets))

    def _gradcam(self, image: Tensor, classes: list[int]) -> Tensor:
        from captum.attr import LayerAttribution, LayerGradCam

        assert self._layer is not None
        images, targets = self._copies(image, classes)
        coarse = LayerGradCam(self._network, self._layer).attribute(images, target=targets, relu_attributions=True)
        return _tensor(LayerAttribution.interpolate(_tensor(coarse), tuple(image.shape[2:]), "bilinear"))

    def _lime(self, image: Tensor, classes: list[int]) -> Tensor:
        from captum.attr import Lime

        part = max(1, self._side // 4)
        rows, columns = (torch.arange(size) // part for size in image.shape[2:])
        squares = (rows[:, None] * (int(columns.max()) + 1) + columns[None])[None, None].expand(
            1, image.shape[1], -1, -1
        )
        method = Lime(self._network, interpretable_model=_Ridge())
        found = []
        for one in classes:
            torch.manual_seed(0)
            found.append(
                _tensor(
                    method.attribute(
                        image,
                        baselines=_GREY,
                        target=one,
                        feature_mask=squares,
                        n_samples=_LIME_SAMPLES,
                        perturbations_per_eval=_AT_ONCE,
                    )
                )
            )
        return torch.cat(found)

    def _occlusion(self, image: Tensor, classes: list[int]) -> Tensor:
        from captum.attr import Occlusion

        window, stride = max(1, self._side // 4), max(1, self._side // 8)
        method = Occlusion(self._network)
        return torch.cat(
            [
                _tensor(
                    method.attribute(
                        image,
                        (image.shape[1], window, window),
                        strides=(image.shape[1], stride, stride),
                        baselines=_GREY,
                        target=one,
                        perturbations_per_eval=_AT_ONCE,
                    )
                )
                for one in classes
            ]
        )


def _tensor(found: Any) -> Tensor:
    assert isinstance(found, Tensor)
    return found
