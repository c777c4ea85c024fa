"""Where the module divides zero by zero: a similar probe image replaces a flat one, or the export says what it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bcos_sdk.errors import ParityError
from bcos_sdk.exporters import export
from bcos_sdk.exporters.verify import LIMITS


class Gated(nn.Module):
    """Two linear maps of the three colours with a ReLU between them; a frozen gate multiplies the result."""

    def __init__(self, gate: Callable[[Tensor], Tensor], offset: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3 * 64, 16, bias=False), nn.Linear(16, 5, bias=False)
        self.gate, self.offset = gate, offset

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x[:, :3].flatten(1) + self.offset).relu())
        result: Tensor = x * self.gate(x.detach())
        return result


def reciprocal_norm(x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return 1 / norm


@pytest.mark.parametrize("offset", [0.0, 1e-60], ids=["in every precision", "in float32 only"])
def test_a_similar_image_replaces_a_flat_one_where_the_module_divides_zero_by_zero(
    offset: float, tmp_path: Path
) -> None:
    """As the cosines of CLIP with prompts: the features of a black image are zero if no layer has a bias."""
    module = Gated(reciprocal_norm, offset).eval()
    assert module(torch.zeros(1, 6, 8, 8)).isnan().all()
    manifest = export(module, tmp_path / "b", input_size=(8, 8), max_batch=2).manifest
    assert max(figures.weights for figures in manifest.parity) < LIMITS["weights"] / 10


def test_a_result_that_is_not_finite_for_similar_images_either_is_refused(tmp_path: Path) -> None:
    module = Gated(lambda x: 1 / (x.norm(dim=1, keepdim=True) > 0.05)).eval()
    assert module(torch.rand(1, 6, 8, 8)).isfinite().all()
    with pytest.raises(ParityError, match="NaN or infinity as its result on the probe image 'black'"):
        export(module, tmp_path / "b", input_size=(8, 8), max_batch=2)
    assert list(tmp_path.iterdir()) == []
