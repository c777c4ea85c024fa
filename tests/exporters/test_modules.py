"""Modules as people have them: wrapped, with several results, with a precision or gradients of their own."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.reference import norms
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.optim.swa_utils import AveragedModel

from bcos_sdk.contract import InputSpec
from bcos_sdk.errors import CaptureError
from bcos_sdk.exporters import export
from bcos_sdk.exporters.capture import capture
from bcos_sdk.exporters.compiler import compile_module
from bcos_sdk.exporters.verify import consult
from bcos_sdk.models.layers import BcosConv2d

SIZE = (8, 8)
Results = namedtuple("Results", ["logits", "features"])


class Network(nn.Module):
    """A convolution, a ReLU, a mean and a linear layer. `change` is applied to the features."""

    def __init__(self, change: Callable[[Tensor], Tensor] = lambda features: features) -> None:
        super().__init__()
        self.conv = nn.Conv2d(6, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)
        self.change = change
        self.matrix = torch.rand(8, 8)  # neither a parameter nor a buffer

    def features(self, x: Tensor) -> Tensor:
        return self.change(F.relu(self.conv(x)).mean((2, 3)))

    def forward(self, x: Tensor) -> Any:
        return self.head(self.features(x))


class Several(Network):
    """Returns features and logits in a form of choice."""

    def __init__(self, form: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.form = form

    def forward(self, x: Tensor) -> Any:
        features = self.features(x)
        return self.form(features, self.head(features))


class OneValue(Network):
    def forward(self, x: Tensor) -> Tensor:
        value: Tensor = super().forward(x)[:, 0]
        return value


class Squeezed(Network):
    """For one image the head gets a vector without batch axis."""

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(F.adaptive_avg_pool2d(F.relu(self.conv(x)), 1).squeeze())
        return logits


def gated_without_gradient(features: Tensor) -> Tensor:
    with torch.no_grad():
        gate = features.sigmoid()
    return features * gate


def in_autocast(features: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (features @ torch.eye(8)).float()


def gated_in_inference_mode(features: Tensor) -> Tensor:
    with torch.inference_mode():
        gate = features.sigmoid()
    return features * gate


def in_half(features: Tensor) -> Tensor:
    halves = F.linear(features.half(), torch.eye(8, dtype=torch.float16)).to(torch.float32)
    return halves + features.bfloat16() * (features > 0.1).half()


def changed_in_place(features: Tensor) -> Tensor:
    """Autograd needs the result of the ReLU, which changes afterwards."""
    return F.relu(features).mul_(2)


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clamp(min=0)

    @staticmethod
    def backward(_ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def straight(features: Tensor) -> Tensor:
    result: Tensor = Straight.apply(features)  # type: ignore[no-untyped-call]
    return result


def with_plain_tensor() -> nn.Module:
    network = Network()
    network.change = lambda features: features @ network.matrix
    return network


def compiled() -> nn.Module:
    module: Any = torch.compile(Network())
    assert isinstance(module, nn.Module)
    return module


def traced() -> nn.Module:
    trace: Any = torch.jit.trace
    module: nn.Module = trace(Network().eval(), torch.rand(1, 6, *SIZE))
    return module


def pruned() -> nn.Module:
    network = Network()
    prune.l1_unstructured(network.conv, "weight", 0.5)  # type: ignore[no-untyped-call]
    return network


def with_weight_norm(layer: Callable[[nn.Module], nn.Module]) -> nn.Module:
    network = Network()
    network.conv = layer(network.conv)  # type: ignore[assignment]
    return network


@dataclass
class Holder:
    logits: Tensor


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(1, keepdim=True)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "DataParallel": lambda: nn.DataParallel(Network()),
    "averaged": lambda: AveragedModel(Network()),
    "compiled": compiled,
    "pruned": pruned,
    "weight norm": lambda: with_weight_norm(parametrizations.weight_norm),
    "spectral norm": lambda: with_weight_norm(parametrizations.spectral_norm),
    "gate without gradient": lambda: Network(gated_without_gradient),
    "autocast": lambda: Network(in_autocast),
    "gate in inference mode": lambda: Network(gated_in_inference_mode),
    "fp16 and bfloat16 inside": lambda: Network(in_half),
    "changed in place": lambda: Network(changed_in_place),
    "dataclass of one": lambda: Several(lambda _features, logits: Holder(logits)),
    "logits that add up to zero": lambda: nn.Sequential(Network(), Centred()),
    "norm of flat images": lambda: nn.Sequential(
        nn.Conv2d(6, 8, 3),
        norms.DetachableGNInstanceNorm2d(8),
        BcosConv2d(8, 5, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ),
    "plain tensor": with_plain_tensor,
    "constant made in forward": lambda: Network(lambda features: features @ torch.eye(8).flip(0)),
    "other dtype inside": lambda: Network(lambda features: features.double().float()),
    "parameters without gradient": lambda: Network().requires_grad_(False),
    "dict of one": lambda: Several(lambda _features, logits: {"logits": logits}),
    "tuple of one": lambda: Several(lambda _features, logits: (logits,)),
    "one value": OneValue,
    "squeezed": Squeezed,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:.*deprecated.*:UserWarning")
@pytest.mark.parametrize("name", MODULES)
def test_a_module_in_this_form_is_exported(name: str, tmp_path: Path) -> None:
    module = MODULES[name]().eval()
    bundle = export(module, tmp_path / "bundle", max_batch=3, preprocessing=InputSpec.exact(SIZE))
    assert max(row.weights for row in bundle.manifest.parity) < 1e-4


class Constant(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.ones(len(x), 3)


FORMS: dict[str, tuple[Callable[[Tensor, Tensor], Any], str]] = {
    "dict": (lambda features, logits: {"features": features, "logits": logits}, "logits"),
    "tuple": (lambda features, logits: (features, logits), "1"),
    "named tuple": (lambda features, logits: Results(logits, features), "logits"),
    "nested": (lambda features, logits: {"features": features, "heads": [logits, features]}, "heads.0"),
}


@pytest.mark.parametrize("name", FORMS)
def test_one_of_several_results_is_chosen(name: str) -> None:
    form, output = FORMS[name]
    module = Several(form).eval()
    with pytest.raises(CaptureError, match=r"the module returns \d tensors \(.*\), expected the logits") as caught:
        capture(module, SIZE)
    assert output in str(caught.value)
    with pytest.raises(CaptureError, match=r"no result called 'nothing'; it returns \d tensors"):
        capture(module, SIZE, output="nothing")
    program = capture(module, SIZE, output=output)
    x = torch.rand(3, 6, *SIZE)
    expected = module.head(module.features(x)).detach()
    torch.testing.assert_close(program.run(x)["logits"].detach(), expected)
    targets = torch.tensor([[0], [1], [2]])
    np.testing.assert_allclose(consult(module, x, targets, output=output).logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "reason", "advice"),
    [
        (traced, "the module is scripted or traced", "Python module"),
        (lambda: nn.Sequential(traced()), "module '0' is scripted or traced", "Python module"),
        (
            lambda: torch.ao.quantization.quantize_dynamic(Network(), {nn.Linear}),  # type: ignore[no-untyped-call]
            r"module 'head' is quantised: Linear rounds",
            "before it was quantised",
        ),
        (
            lambda: Network(straight),
            "calls Straight, a torch.autograd.Function",
            "operators of torch",
        ),
        (lambda: Network(lambda features: features @ torch.eye(8).to_sparse()), "cannot be prepared", "Sparse tensors"),
        (lambda: Constant(), "the same for every image", "computed from the image"),
        (
            lambda: nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten()),
            r"fails for an image of shape \[1, 6, 8, 8\]",
            "input size",
        ),
        (
            lambda: Several(lambda _features, _logits: "text"),
            "no tensor of floating-point numbers",
            "tensor of floating",
        ),
        (lambda: Network(lambda features: features + torch.rand(8)), "so they are random", "Switch off dropout"),
        (lambda: nn.Bilinear(6, 6, 4), "missing 1 required positional argument", "one image"),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*quantize:UserWarning")
def test_a_module_that_cannot_be_run_is_refused_with_the_reason(
    make: Callable[[], nn.Module], reason: str, advice: str
) -> None:
    with pytest.raises(CaptureError, match=reason) as caught:
        capture(make().eval(), SIZE)
    assert caught.value.hint is not None
    assert advice in caught.value.hint


class LogitLayer(nn.Module):
    """A layer of the user's own with a well-known name."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.5


class Biases(nn.Module):
    """Adds a parameter, a function of the same parameter, a number, and Python's sum of two values."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.rand(4))
        self.own = LogitLayer()

    def forward(self, x: Tensor) -> Tensor:
        x = sum([x, x])  # type: ignore[assignment]
        return self.own(x + self.shift.view(1, -1) + self.shift.sigmoid())  # type: ignore[no-any-return]


def test_bias_terms_are_named_after_what_was_added() -> None:
    from bcos_sdk.models.layers import LogitLayer as OurLogitLayer

    body = nn.Sequential(nn.Conv2d(6, 4, 8, bias=False), nn.Flatten())
    assert set(compile_module(nn.Sequential(body, Biases()).eval(), SIZE).bias_terms) == {
        "1.shift",
        "1.shift.sigmoid",
        "1.own",
    }
    one = nn.Sequential(body, OurLogitLayer(bias=-1.0)).eval()
    assert compile_module(one, SIZE).bias_terms == ("logit_bias",)
    two = nn.Sequential(body, OurLogitLayer(bias=-1.0), OurLogitLayer(bias=2.0)).eval()
    assert set(compile_module(two, SIZE).bias_terms) == {"1.logit_bias", "2.logit_bias"}
