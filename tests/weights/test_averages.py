"""Which of several copies in a training checkpoint is loaded, and what the log says about it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.checkpoints import State, holds, lightning, prefixed, saved

from bcos_sdk.errors import CheckpointError
from bcos_sdk.models import build_model
from bcos_sdk.weights import load_fine_tuned, load_model, load_weights

NAME = "cifar10_resnet20_bnu"


@pytest.fixture(scope="module")
def plain() -> State:
    return build_model(NAME).state_dict()


@pytest.fixture(scope="module")
def averaged(plain: State) -> State:
    return {key: value + 1 for key, value in plain.items()}


@pytest.mark.parametrize("prefer_ema", [True, False])
def test_the_averaged_copy_is_loaded_if_ema_is_preferred(
    tmp_path: Path, plain: State, averaged: State, prefer_ema: bool
) -> None:
    path = saved(tmp_path, lightning(plain, averaged), "last.ckpt")
    network = load_model(NAME, weights=path, prefer_ema=prefer_ema)
    assert holds(network, averaged if prefer_ema else plain)


def test_an_average_in_a_separate_dict_is_found(tmp_path: Path, plain: State, averaged: State) -> None:
    path = saved(tmp_path, {"model": prefixed("module.", plain), "model_ema": averaged})
    assert holds(load_model(NAME, weights=path), averaged)
    assert holds(load_model(NAME, weights=path, prefer_ema=False), plain)


AVERAGES = ["ema", "modelEma", "EMACallback", "ema_model.module", "averaged_model", "swa_state", "shadow"]


@pytest.mark.parametrize("where", AVERAGES)
def test_an_average_is_recognised_by_its_name(tmp_path: Path, plain: State, averaged: State, where: str) -> None:
    path = saved(tmp_path, {"model": plain, where: averaged})
    assert holds(load_model(NAME, weights=path), averaged)
    assert holds(load_model(NAME, weights=path, prefer_ema=False), plain)


@pytest.mark.parametrize("where", ["schema", "swap", "cinema", "demand"])
def test_ema_or_swa_inside_another_word_is_not_an_average(
    tmp_path: Path, plain: State, averaged: State, where: str
) -> None:
    path = saved(tmp_path, {"model": plain, where: averaged})
    with pytest.raises(CheckpointError, match="several complete copies of the weights, and they differ"):
        load_model(NAME, weights=path)
    assert holds(load_model(NAME, weights=path, key=where), averaged)


@pytest.mark.parametrize("order", [1, -1])
def test_copies_that_differ_need_a_choice_in_any_order(
    tmp_path: Path, plain: State, averaged: State, order: int, log: pytest.LogCaptureFixture
) -> None:
    copies = [prefixed("teacher.", averaged), prefixed("model.", plain)][::order]
    path = saved(tmp_path, {"state_dict": copies[0] | copies[1]})
    network = build_model(NAME)
    for load in (load_fine_tuned, lambda _, path: load_weights(network, path, name=NAME)):
        with pytest.raises(CheckpointError) as caught:
            load(NAME, path)
        assert "'state_dict.teacher'" in str(caught.value)
        assert "'state_dict.model'" in str(caught.value)
        assert "--weights-key state_dict." in str(caught.value)
    for key in ("teacher", "state_dict.teacher", "teacher."):
        assert holds(load_fine_tuned(NAME, path, key=key).network, averaged)
    assert load_weights(network, path, name=NAME, key="model") == "'state_dict.model'"
    assert holds(network, plain)
    assert not log_of(log, logging.WARNING)


def test_a_key_without_a_complete_copy_names_those_that_are_there(tmp_path: Path, plain: State) -> None:
    path = saved(tmp_path, {"model": plain, "part": incomplete(plain)})
    for key in ("part", "odel", ""):
        with pytest.raises(CheckpointError, match=f"no complete copy of the weights at '{key}'\nIt has one at 'model'"):
            load_model(NAME, weights=path, key=key)


def test_a_key_can_choose_the_average_or_the_top_level(tmp_path: Path, plain: State, averaged: State) -> None:
    path = saved(tmp_path, {**plain, "ema": averaged, "swa": plain})
    with pytest.raises(CheckpointError, match="they differ: 'ema' and 'swa'"):
        load_model(NAME, weights=path)
    assert holds(load_model(NAME, weights=path, key="ema"), averaged)
    assert holds(load_model(NAME, weights=path, key=""), plain)


def test_equal_copies_need_no_choice(tmp_path: Path, plain: State) -> None:
    same = {key: value.clone() for key, value in plain.items()}
    assert holds(load_model(NAME, weights=saved(tmp_path, {"best_model": plain, "model": same})), plain)


def log_of(caplog: pytest.LogCaptureFixture, level: int) -> str:
    return "\n".join(record.getMessage() for record in caplog.records if record.levelno == level)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "bcos_sdk")
    return caplog


@pytest.mark.parametrize(("prefer_ema", "where"), [(True, "'state_dict.ema.module'"), (False, "'state_dict.model'")])
def test_the_log_names_the_loaded_copy(
    tmp_path: Path, plain: State, averaged: State, log: pytest.LogCaptureFixture, prefer_ema: bool, where: str
) -> None:
    path = saved(tmp_path, lightning(plain, averaged), "last.ckpt")
    load_model(NAME, weights=path, prefer_ema=prefer_ema)
    assert where in log_of(log, logging.INFO)
    assert not log_of(log, logging.WARNING)


def test_a_plain_file_is_loaded_without_a_warning(tmp_path: Path, plain: State, log: pytest.LogCaptureFixture) -> None:
    averaged_by_torch = {**prefixed("module.", plain), "n_averaged": torch.tensor(5)}
    for contents, where in [(plain, "its top level"), (averaged_by_torch, "'module'")]:
        log.clear()
        load_model(NAME, weights=saved(tmp_path, contents))
        assert where in log_of(log, logging.INFO)
        assert not log_of(log, logging.WARNING)


def incomplete(state: State) -> State:
    return {key: value for key, value in state.items() if not key.startswith("fc.")}


def renamed(state: State) -> State:
    """Remove the dots from the keys, as one common EMA implementation does."""
    return {key.replace(".", ""): value for key, value in state.items()}


@pytest.mark.parametrize("spoil", [incomplete, renamed])
def test_an_unusable_average_is_logged_as_a_warning(
    tmp_path: Path, plain: State, averaged: State, log: pytest.LogCaptureFixture, spoil: Callable[[State], State]
) -> None:
    path = saved(tmp_path, lightning(plain, spoil(averaged)), "last.ckpt")
    assert holds(load_model(NAME, weights=path), plain)
    assert "'state_dict.ema.module." in log_of(log, logging.WARNING)
    log.clear()
    assert holds(load_model(NAME, weights=path, prefer_ema=False), plain)
    assert not log_of(log, logging.WARNING)


def test_an_average_that_was_not_preferred_is_logged_as_a_warning(
    tmp_path: Path, averaged: State, log: pytest.LogCaptureFixture
) -> None:
    path = saved(tmp_path, {"ema": averaged})
    assert holds(load_model(NAME, weights=path, prefer_ema=False), averaged)
    assert "loaded the averaged weights at 'ema'" in log_of(log, logging.WARNING)
