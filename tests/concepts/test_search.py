"""The search for concepts against a slow literal implementation, interrupted, and with images that fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bcos_sdk import Client
from bcos_sdk.bundle import builtin_bundle
from bcos_sdk.concepts import Concepts, _search, draw_concepts, find_concepts, sheet_picture
from bcos_sdk.errors import InputError, OutputExistsError

SAMPLES = Path(__file__).parents[2] / "samples"
LAYERS = ("layer3", "layer4")


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(builtin_bundle(), device="cpu", threads=1) as client:
        yield client


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Parts of the sample photographs, so that each class has several images."""
    folder = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for photograph in sorted(SAMPLES.glob("*.jpg")):
        with Image.open(photograph) as opened:
            whole = opened.convert("RGB").resize((64, 64))
        for number in range(4):
            left, top = (int(one) for one in generator.integers(0, 12, 2))
            whole.crop((left, top, left + 52, top + 52)).save(folder / f"{photograph.stem}.{number}.png")
    return sorted(folder.iterdir())


def search(client: Client, images: list[Path], **changes: object) -> Concepts:
    arguments: dict[str, object] = {"layers": LAYERS, "target": "automobile", "directions": 2, "examples": 3}
    return find_concepts(client, images, **(arguments | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def found(client: Client, images: list[Path]) -> Concepts:
    return search(client, images)


def test_directions_and_examples_are_those_of_a_literal_search(
    client: Client, images: list[Path], found: Concepts
) -> None:
    predicted = [one.classes[0].label for one in client.predict(images)]
    assert found.predicted == predicted.count("automobile") >= 3
    assert found.images == len(images)
    for layer in found.layers:
        taken_from = {one.source for one in layer.concepts}
        for concept in layer.concepts:
            assert predicted[images.index(Path(concept.source))] == "automobile"
            result = client.explain_features(concept.source, layer=layer.layer, target="automobile")
            assert concept.contribution == pytest.approx(result.per_position.max(), rel=1e-5)
            assert result.per_position[concept.position] == result.per_position.max()
            activation = result.activations[:, concept.position[0], concept.position[1]]
            vector = np.array(concept.vector)
            assert vector == pytest.approx(activation / np.linalg.norm(activation), abs=1e-6)
            ranking = []
            for image in images:
                maps = client.explain_features(image, layer=layer.layer, target="automobile").activations
                values = np.einsum("c,chw->hw", vector, maps)
                ranking.append((values.max(), str(image), np.unravel_index(values.argmax(), values.shape)))
            ranking.sort(key=lambda one: -one[0])
            expected = [one for one in ranking if one[1] not in taken_from][:3]
            assert [one.source for one in concept.examples] == [source for _, source, _ in expected]
            assert [one.position for one in concept.examples] == [place for _, _, place in expected]
            assert [one.value for one in concept.examples] == pytest.approx([v for v, _, _ in expected], rel=1e-4)
            assert sum(concept.class_counts.values()) == concept.counted <= 50
        first, second = (np.array(one.vector) for one in layer.concepts)
        assert first @ second <= layer.cosine_limit + 1e-6


def test_a_concept_has_examples_of_its_own_image_if_there_are_too_few_others(
    client: Client, images: list[Path], found: Concepts
) -> None:
    automobiles = [path for path in images if path.name.startswith("automobile")]
    few = search(client, automobiles, examples=len(automobiles), layers="layer3")
    assert len(few.layers[0].concepts[0].examples) == len(automobiles)


@pytest.mark.parametrize("stop", [1, 7, 30, 52, 60, 75, 103])
def test_an_interrupted_search_continues(
    client: Client, images: list[Path], found: Concepts, tmp_path: Path, stop: int
) -> None:
    state = tmp_path / "state.json"
    seen: list[str] = []

    def interrupt(name: str, done: int, total: int) -> None:
        seen.append(name)
        if len(seen) == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(client, images, state_file=state, on_progress=interrupt)
    before = len([name for name in seen if name in ("predict", "features")])
    after: list[str] = []
    again = search(client, images, state_file=state, on_progress=lambda name, _done, _total: after.append(name))
    assert again == found
    passes = len([name for name in after if name in ("predict", "features")])
    assert passes <= 2 * len(images) - before + 1  # what was finished is not done again


def test_the_state_of_another_search_is_neither_used_nor_replaced(
    client: Client, images: list[Path], tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    search(client, images, state_file=state)
    before = state.read_bytes()
    for change in ({"target": "truck"}, {"directions": 1}, {"layers": "layer4"}):
        with pytest.raises(OutputExistsError, match="another model, other images or other arguments"):
            search(client, images, state_file=state, **change)
    with pytest.raises(OutputExistsError):
        search(client, images[1:], state_file=state)
    assert state.read_bytes() == before


DAMAGE: dict[str, Callable[[Any], object]] = {
    "more images done than there are": lambda state: state.update(features_done=10**9),
    "a negative number of images": lambda state: state.update(predicted_done=-5),
    "an image that does not exist": lambda state: state["confident"]["hits"][0].update(index=10**6),
    "a negative image": lambda state: state["layers"][0]["chosen"][0]["best"]["hits"][0].update(index=-1),
    "a position outside the layer": lambda state: state["layers"][0]["chosen"][0].update(position=64),
    "a short direction": lambda state: state["layers"][1]["chosen"][0]["vector"].pop(),
    "a number that is not finite": lambda state: state["layers"][0]["chosen"][0]["vector"].__setitem__(0, "NaN"),
    "a layer too few": lambda state: state["layers"].pop(),
    "nothing but the key": lambda state: [state.pop(name) for name in [*state] if name != "key"],
}


@pytest.mark.parametrize("damage", [None, *DAMAGE])
def test_a_damaged_state_is_not_used(
    client: Client,
    images: list[Path],
    found: Concepts,
    tmp_path: Path,
    damage: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = tmp_path / "state.json"
    state.write_text('{"key": "')
    if damage is not None:
        state.unlink()
        search(client, images, state_file=state)
        content = json.loads(state.read_text())
        DAMAGE[damage](content)
        state.write_text(json.dumps(content))
    assert search(client, images, state_file=state) == found
    assert "is damaged: the search begins again" in caplog.text


def test_images_that_fail_are_listed_and_nothing_else_is_lost(
    client: Client, images: list[Path], found: Concepts, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.png"
    bad.write_text("no image")
    missing = tmp_path / "missing.png"
    result = search(client, [*images[:5], bad, *images[5:], missing])
    assert [one.source for one in result.failures] == [str(bad), str(missing)]
    assert result.model_copy(update={"failures": ()}) == found


def test_wrong_arguments(client: Client, images: list[Path]) -> None:
    with pytest.raises(InputError, match="expected a label"):
        search(client, images, target="unicorn")
    with pytest.raises(InputError, match="no layer"):
        search(client, images, layers="layer9")
    with pytest.raises(InputError, match="takes none of the images for 'horse'"):
        search(client, [path for path in images if path.name == "truck.0.png"], target="horse")
    with pytest.raises(InputError, match="directions is 0"):
        search(client, images, directions=0)


def test_a_class_for_which_no_position_speaks(
    client: Client, images: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_search, "candidate_of", lambda _index, _result: None)
    with pytest.raises(InputError, match=r"no position of layer3 adds to the logit of 'automobile' in any of \d+"):
        search(client, images, layers="layer3")


def test_a_finished_search_is_not_repeated(client: Client, images: list[Path], found: Concepts, tmp_path: Path) -> None:
    """A sheet whose drawing was interrupted."""
    state = tmp_path / "state.json"
    search(client, images, state_file=state)
    seen: list[str] = []
    again = search(client, images, state_file=state, on_progress=lambda name, _done, _total: seen.append(name))
    assert again == found
    assert seen == []


def test_drawn_examples_are_complete_and_a_vanished_image_is_a_failure(
    client: Client, images: list[Path], found: Concepts
) -> None:
    drawn = list(draw_concepts(client, found))
    assert [(one.layer.layer, one.number) for one in drawn] == [
        ("layer3", 1), ("layer3", 2), ("layer4", 1), ("layer4", 2)
    ]  # fmt: skip
    for direction in drawn:
        for one in direction.drawn:
            assert one.example.completeness is not None
            assert one.example.completeness.passed
            assert one.value.contributions.sum() + sum(one.value.bias.values()) == pytest.approx(
                one.example.value, abs=1e-3
            )
    sheet = sheet_picture(found, drawn)
    assert np.asarray(sheet).std() > 10
    first = found.layers[0].concepts[0]
    gone = first.examples[0].model_copy(update={"source": "/gone.png"})
    concept = first.model_copy(update={"examples": (gone, *first.examples[1:])})
    layer = found.layers[0].model_copy(update={"concepts": (concept,)})
    (broken,) = draw_concepts(client, found.model_copy(update={"layers": (layer,)}))
    assert [one.source for one in broken.failures] == ["/gone.png"]
    assert len(broken.drawn) == len(broken.concept.examples) == 2


def test_json_restores_the_record(found: Concepts) -> None:
    assert Concepts.from_json(found.to_json()) == found
