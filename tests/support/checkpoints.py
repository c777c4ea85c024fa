"""Weights files in the layouts that training tools write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

__all__ = ["State", "holds", "lightning", "prefixed", "saved"]

State = dict[str, Tensor]


def prefixed(prefix: str, state: State) -> State:
    return {prefix + key: value for key, value in state.items()}


def holds(network: nn.Module, state: State) -> bool:
    loaded = network.state_dict()
    return loaded.keys() == state.keys() and all(torch.equal(loaded[key], state[key]) for key in state)


def saved(tmp_path: Path, contents: Any, name: str = "weights.pth") -> Path:
    path = tmp_path / name
    if path.suffix == ".safetensors":
        save_file(contents, path)
    else:
        torch.save(contents, path)
    return path


def lightning(model: State, ema: State | None = None) -> dict[str, Any]:
    """Return the contents of a checkpoint of a Lightning training run of the B-cos project."""
    state = prefixed("model.", model)
    if ema is not None:
        state |= prefixed("ema.module.", ema) | {"ema.n_averaged": torch.tensor(5)}
    return {
        "epoch": 89,
        "global_step": 112590,
        "pytorch-lightning_version": "1.9.0",
        "state_dict": state,
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 1e-3}]}],
        "hparams": {"dataset": "ImageNet"},
    }
