"""The oracle of every export: the module itself in float64, explained by autograd, on a few probe images.

This file shares no code with the transposed pass. W(x) is compared element by element, because completeness alone is a
weak test: B-cos layers are homogeneous, so their ordinary gradients add up to the logit as well, but differ from W(x).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import BcosError, ExportError, ParityError
from bcos_sdk.exporters.capture import explanation_mode, run_module
from bcos_sdk.exporters.verify._scales import Scales

__all__ = ["PROBES", "Truth", "check_finite", "consult", "default_precision", "in_precision", "near", "probe_images"]

PROBES = ("noise", "photograph", "black", "white", "grey")
_JITTER = 0.01


def probe_images(size: tuple[int, int], spec: InputSpec | None = None) -> Tensor:
    """[5, 6, *size]: one encoded image per name in PROBES. With `spec`, it has the channels of that input.

    The photograph is `cat.jpg`, by Stefan van der Walt, CC0.
    """
    height, width = size
    noise = torch.rand(3, height, width, generator=torch.Generator().manual_seed(0))
    with files(__package__).joinpath("cat.jpg").open("rb") as file, Image.open(file) as picture:
        fitted = ImageOps.fit(picture.convert("RGB"), (width, height), Image.Resampling.BILINEAR)
    photograph = torch.from_numpy(np.array(fitted)).permute(2, 0, 1) / 255
    flat = [torch.full((3, height, width), level) for level in (0.0, 1.0, 0.5)]
    rgb = torch.stack([noise, photograph, *flat])
    encoded = torch.cat([rgb, 1 - rgb], dim=1)
    if spec is None or spec.channels == "rgb+complement":
        return encoded
    if spec.channels.startswith("grey"):  # the green channel, and its complement
        return encoded[:, [1, 4][: spec.depth]]
    return encoded[:, torch.arange(spec.depth) % encoded.shape[1]]


def near(images: Tensor, index: int) -> Tensor:
    """An image similar to one of the probe images, without flat parts: 99 % of it and 1 % of noise."""
    return (1 - _JITTER) * images[index] + _JITTER * images[PROBES.index("noise")].flip(-1)


@dataclass(frozen=True)
class Truth:
    """Results of autograd for N images with K targets each: logits [N, C], and [N, K, …] for everything else."""

    logits: Tensor
    classes: Tensor
    weights: Tensor
    contributions: Tensor
    bias: Tensor
    scales: Scales

    def part(self, images: list[int], targets: int) -> Truth:
        """The part for these images and their first `targets` targets."""
        per_target = (self.classes, self.weights, self.contributions, self.bias)
        classes, weights, contributions, bias = (values[images, :targets] for values in per_target)
        scales = self.scales.part(images, targets)
        return Truth(self.logits[images], classes, weights, contributions, bias, scales)

    @classmethod
    def joined(cls, parts: Sequence[Truth]) -> Truth:
        """The results for the images of all parts, one after another."""
        logits, classes, weights, contributions, bias = (
            torch.cat([getattr(one, name) for one in parts])
            for name in ("logits", "classes", "weights", "contributions", "bias")
        )
        return cls(logits, classes, weights, contributions, bias, Scales.joined([one.scales for one in parts]))


def consult(
    module: nn.Module,
    images: Tensor,
    targets: Tensor,
    dtype: torch.dtype = torch.float64,
    *,
    output: str | None = None,
) -> Truth:
    """Explain every target of every image by autograd. Targets are encoded as the contract defines."""
    module = copy.deepcopy(module)
    module = module.double() if dtype is torch.float64 else module.float()  # `to` would make complex buffers real
    module.requires_grad_(False)
    # One image at a time: autograd's buffers for a whole batch in float64 would not fit into memory.
    with explanation_mode(module), in_precision(dtype):
        answers = [
            _answer(module, image[None].to(dtype), aims, output) for image, aims in zip(images, targets, strict=True)
        ]
    logits, classes, weights, contributions, bias = (torch.stack(parts) for parts in zip(*answers, strict=True))
    results = (weights.double(), contributions.double(), bias.double())
    return Truth(logits.double(), classes, *results, Scales.of(images.double(), logits.double(), *results))


def check_finite(truth: Truth) -> None:
    """Check that the module itself has finite results on the probe images. 0/0 is none, as of x / ‖x‖ where x = 0."""
    for name, *results in zip(PROBES, truth.logits, truth.weights, truth.bias, strict=True):
        if not all(bool(values.isfinite().all()) for values in results):
            raise ParityError(
                f"the module has NaN or infinity as its result on the probe image {name!r}, in torch in float64",
                hint="No bundle was written. Find the division by zero or the overflow: a norm that divides needs an "
                "addend or a minimum, as in `x / x.norm(dim=-1).clamp(min=1e-6).detach()[..., None]`.",
            )


@contextmanager
def in_precision(dtype: torch.dtype) -> Iterator[None]:
    """Let tensors that the module holds as plain attributes, or creates, and its own casts have this precision too."""
    with default_precision(dtype), _OnePrecision(dtype):
        yield


@contextmanager
def default_precision(dtype: torch.dtype) -> Iterator[None]:
    """Let functions of integers and booleans, such as a square root, have results of this precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _OnePrecision(TorchFunctionMode):
    """Convert float32 and float64 operands of every function to one precision; casts to the other one do nothing."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _ASSERTIONS:
            return None
        args, kwargs = tree_map(self._converted, (args, kwargs or {}))
        if func in (Tensor.float, Tensor.double):
            # A cast between the two precisions does nothing; truth values and integers do become numbers.
            return args[0].to(self._dtype) if args[0].dtype not in _PRECISIONS else args[0]
        return func(*args, **kwargs)

    def _converted(self, value: Any) -> Any:
        if isinstance(value, torch.dtype) and value in _PRECISIONS:
            return self._dtype
        if isinstance(value, Tensor) and value.dtype in _PRECISIONS and value.dtype != self._dtype:
            return value.to(self._dtype)
        return value


_PRECISIONS = (torch.float32, torch.float64)
# torch.export inserts this before a cast, with the precision that the tensor had without the mode.
_ASSERTIONS = (torch.ops.aten._assert_tensor_metadata, torch.ops.aten._assert_tensor_metadata.default)


def _answer(module: nn.Module, image: Tensor, targets: Tensor, output: str | None) -> tuple[Tensor, ...]:
    """`_explain`, also for a module that changes values in place which autograd needs. This copies them first."""
    try:
        try:
            return _explain(module, image, targets, output)
        except RuntimeError as error:
            if "inplace operation" not in str(error):
                raise
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            return _explain(module, image, targets, output)
    except BcosError:
        raise
    except Exception as error:  # the module itself decides what it raises
        raise ExportError(
            f"torch cannot explain {type(module).__name__} by autograd in {str(image.dtype).removeprefix('torch.')}: "
            f"{str(error).strip() or type(error).__name__}",
            hint="The graphs are compared with autograd: every operator of the module needs a gradient in torch.",
        ) from error


def _explain(module: nn.Module, image: Tensor, targets: Tensor, output: str | None) -> tuple[Tensor, ...]:
    x = image.clone().requires_grad_()
    (logits,) = run_module(module, x, output)
    ranked = logits.detach().argsort(descending=True, stable=True)
    classes = torch.where(targets < 0, ranked[(-targets - 1).clamp(min=0)], targets)
    aims = torch.cat([logits, logits.mean(0, keepdim=True)])[classes]
    rows = [torch.autograd.grad(aim, x, retain_graph=k + 1 < len(aims))[0] for k, aim in enumerate(aims)]
    weights = torch.cat(rows)
    contributions = (weights * image).sum(1)
    return logits.detach(), classes, weights, contributions, aims.detach() - contributions.sum((1, 2))
