"""The operators of our own that programs use beside aten's: each is plain torch, so programs can run.

A *cotangent* is [batch, targets, *sample] or [rows, *sample]: rows of W(x) on their way from the logits back to the
pixels. Convolutions see all leading axes as one.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "avg_pool_transpose",
    "conv_transpose",
    "flip",
    "flipped_conv",
    "from_half",
    "insert_zeros",
    "is_first_largest",
    "keep_where",
    "pick_every",
    "repeat_average",
    "reshape_cotangent",
    "reshape_sample",
    "scatter_windows",
    "spread",
    "to_half",
    "window_winners",
]

Pair = tuple[int, int]


def reshape_sample(x: Tensor, sample: tuple[int, ...]) -> Tensor:
    """[batch, …] → [batch, *sample]."""
    return x.reshape(x.shape[0], *sample)


def reshape_cotangent(ct: Tensor, sample: tuple[int, ...]) -> Tensor:
    """[batch, targets, …] → [batch, targets, *sample]."""
    return ct.reshape(*ct.shape[:2], *sample)


def spread(ct: Tensor, sample: tuple[int, ...]) -> Tensor:
    """Repeat along the sample's axes of length one until it has the shape `sample`: a sum's transpose."""
    return ct.expand(*ct.shape[: -len(sample)], *sample)


def pick_every(x: Tensor, stride: Pair) -> Tensor:
    """Every s-th row and column of a feature map."""
    return x[:, :, :: stride[0], :: stride[1]]


def keep_where(ct: Tensor, mask: Tensor) -> Tensor:
    """ct where the mask holds, else zero."""
    return torch.where(mask, ct, torch.zeros((), dtype=ct.dtype))


def to_half(x: Tensor) -> Tensor:
    """Rounded to eleven binary digits; beyond 65504 infinite."""
    return x.to(torch.float16)


def from_half(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The same numbers in the precision of the program."""
    return x.to(dtype)


def conv_transpose(
    ct: Tensor, weight: Tensor, stride: Pair, padding: Pair, output_padding: Pair, dilation: Pair, groups: int
) -> Tensor:
    """The transpose of conv2d with this weight; `output_padding` restores what its stride cut off."""
    out = F.conv_transpose2d(ct.flatten(0, -4), weight, None, stride, padding, output_padding, groups, dilation)
    return out.reshape(*ct.shape[:-3], *out.shape[1:])


def flipped_conv(ct: Tensor, weight: Tensor, padding: Pair, dilation: Pair, groups: int) -> Tensor:
    """A convolution, stride one, with the weights of another flipped in space and their channels swapped."""
    out = F.conv2d(ct.flatten(0, -4), flip(weight, groups), None, 1, padding, dilation, groups)
    return out.reshape(*ct.shape[:-3], *out.shape[1:])


def flip(weight: Tensor, groups: int) -> Tensor:
    """[g·o, i, kh, kw] → [g·i, o, kh, kw], rows and columns reversed."""
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    return grouped.transpose(1, 2).flatten(0, 1).flip(2, 3)


def avg_pool_transpose(ct: Tensor, kernel: Pair, stride: Pair, padding: Pair, size: Pair) -> Tensor:
    """The transpose of a k×k average pool that counts its padding: each value spread over its window, / k².

    `size` is what the pool read. Rows and columns that no window reached get zeros.
    """
    weight = ct.new_full((1, 1, *kernel), 1 / (kernel[0] * kernel[1]))
    left = unreached(size, kernel, stride, padding)
    grown = F.conv_transpose2d(ct.flatten(0, -3).unsqueeze(1), weight, None, stride, padding, left)
    return grown.reshape(*ct.shape[:-2], *size)


def unreached(size: Pair, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair = (1, 1)) -> Pair:
    """How many rows and columns at the end of the padded input lie in no window, cut off by the stride."""
    rows, columns = ((size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) % stride[i] for i in range(2))
    return rows, columns


def repeat_average(ct: Tensor, kernel: Pair, size: Pair) -> Tensor:
    """Every value, divided by the size of its window, repeated over it; zeros beyond the last window."""
    share = ct / (kernel[0] * kernel[1])
    blocks = share.repeat_interleave(kernel[0], dim=-2).repeat_interleave(kernel[1], dim=-1)
    return F.pad(blocks, (0, size[1] - blocks.shape[-1], 0, size[0] - blocks.shape[-2]))


def insert_zeros(ct: Tensor, axis: int, step: int, start: int, size: int) -> Tensor:
    """The transpose of x[start::step] along an axis of length `size`."""
    positions = torch.arange(ct.shape[axis]) * step + start
    out = ct.new_zeros(*ct.shape[:axis], size, *ct.shape[axis + 1 :])
    return out.index_copy(axis, positions, ct)


def is_first_largest(x: Tensor, axis: int) -> Tensor:
    """True at the largest value along the axis; among equals at the first."""
    steps = torch.arange(x.shape[axis]).view(-1, *[1] * (x.ndim - axis - 1))
    return x.argmax(axis, keepdim=True) == steps


def window_winners(x: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    """[batch, channels, k², rows, columns]: which value of each window is its first largest."""
    padded = F.pad(x, (padding[1], padding[1], padding[0], padding[0]), value=torch.finfo(x.dtype).min)
    rows = (padded.shape[2] - kernel[0]) // stride[0] + 1
    columns = (padded.shape[3] - kernel[1]) // stride[1] + 1
    windows = [
        padded[
            :,
            :,
            i : i + (rows - 1) * stride[0] + 1 : stride[0],
            j : j + (columns - 1) * stride[1] + 1 : stride[1],
        ]
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]
    return is_first_largest(torch.stack(windows, dim=2), 2)


def scatter_windows(ct: Tensor, winners: Tensor, kernel: Pair, stride: Pair, padding: Pair, size: Pair) -> Tensor:
    """The transpose of a max pool: each cotangent to the winner of its window."""
    count = kernel[0] * kernel[1]
    shares = keep_where(ct.unsqueeze(-3), winners)
    weight = torch.eye(count, dtype=ct.dtype).view(count, 1, *kernel)
    left = unreached(size, kernel, stride, padding)
    grown = F.conv_transpose2d(shares.flatten(0, -4), weight, None, stride, padding, left)
    return grown.reshape(*ct.shape[:-2], *size)
