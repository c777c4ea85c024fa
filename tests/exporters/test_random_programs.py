"""Random programs of supported operators: W(x) and b(x) equal the Jacobian in float64, also in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from support.compiling import check_against_jacobian
from support.operator_cases import Flat, constant
from torch import Tensor

Step = Callable[[Tensor], Tensor]


def gated(function: Step) -> Step:
    """x · f(x) with the gate frozen."""
    return lambda x: x * function(x.detach())


# Each step takes any feature map [batch, channels, height, width] with sides of at least 2, and returns such a map.
STEPS: dict[str, Step] = {
    "convolve": lambda x: F.conv2d(x, constant(3, x.shape[1], 2, 2), constant(3), padding=1),
    "convolve with stride": lambda x: F.conv2d(F.pad(x, (2, 2, 2, 2)), constant(2, x.shape[1], 3, 3), stride=2),
    "convolve transposed": lambda x: F.conv_transpose2d(x, constant(x.shape[1], 2, 2, 2)),
    "relu": F.relu,
    "clamp": lambda x: x.clamp(-0.3, 0.4),
    "leaky": lambda x: F.leaky_relu(x, 0.1),
    "erf": gated(torch.erf),
    "sigmoid": gated(torch.sigmoid),
    "layer norm": gated(lambda x: F.layer_norm(x, x.shape[1:])),
    "softmax": gated(lambda x: x.softmax(1)),
    "norm": lambda x: x / (x.detach().norm(dim=1, keepdim=True) + 0.5),
    "flip": lambda x: x.flip(3),
    "roll": lambda x: x.roll(1, 2),
    "reflect": lambda x: F.pad(x, (1, 0, 0, 1), mode="reflect"),
    "turn": lambda x: x.transpose(2, 3),
    "max pool": lambda x: F.max_pool2d(x, 3, 1, 1),
    "average pool": lambda x: F.avg_pool2d(x, 3, 1, 1),
    "largest two": lambda x: x.topk(min(2, x.shape[1]), 1).values,
    "enlarge": lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"),
    "shift": lambda x: x + constant(x.shape[1], 1, 1),
    "subtract the mean": lambda x: x - x.mean((2, 3), keepdim=True),
    "join": lambda x: torch.cat([x, 2 * x[:, :1]], 1),
    "residual": lambda x: x + F.conv2d(x, constant(x.shape[1], x.shape[1], 1, 1)),
    "overwrite": lambda x: overwritten(x),
    "rows in the batch": lambda x: rows_in_the_batch(x),
    "batch in the middle": lambda x: (x.permute(1, 0, 2, 3) * constant(x.shape[1], 1, 1, 1)).permute(1, 0, 2, 3),
}


def overwritten(x: Tensor) -> Tensor:
    y = x * 1.0
    y[:, 0] = 0.5 * x[:, -1]
    return y


def rows_in_the_batch(x: Tensor) -> Tensor:
    """Attention inside each row of the map, with the rows folded into the batch."""
    batch, channels, height, width = x.shape
    rows = x.permute(0, 2, 3, 1).reshape(batch * height, width, channels)
    mixed = F.scaled_dot_product_attention(rows.detach(), rows.detach(), rows)
    return mixed.reshape(batch, height, width, channels).permute(0, 3, 1, 2)


@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=6), st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_random_programs(names: list[str], seed: int) -> None:
    def run(x: Tensor) -> Tensor:
        for name in names:
            x = STEPS[name](x)
        return (x * constant(*x.shape[2:])).mean((2, 3))

    image = torch.randn(2, 3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    check_against_jacobian(Flat(run), image)
