"""The layouts of data sets: classes by name and index, official files, and hostile ones."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from bcos_sdk.errors import InputError
from bcos_sdk.evaluation import open_dataset
from bcos_sdk.evaluation.datasets import read_mask
from bcos_sdk.images import Geometry

LABELS = ("tabby, tabby cat", "lynx", "Red_fox")
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def picture(path: Path, size: tuple[int, int] = (4, 4)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size).save(path)
    return path


def test_class_folders_by_label_part_of_label_and_index(tmp_path: Path) -> None:
    for name in ("tabby cat/b.png", "tabby cat/deep/a.jpg", "1/c.png", "red fox/d.png", ".hidden/e.png"):
        picture(tmp_path / name)
    (tmp_path / "1" / "notes.txt").write_text("no image")
    data = open_dataset(tmp_path, LABELS)
    assert [(one.name, one.label) for one in data.samples] == [
        ("1/c.png", 1),
        ("red fox/d.png", 2),
        ("tabby cat/b.png", 0),
        ("tabby cat/deep/a.jpg", 0),
    ]


def test_folders_with_other_names_are_classes_in_order(tmp_path: Path) -> None:
    for name in ("n02/a.png", "n01/a.png", "n03/a.png"):
        picture(tmp_path / name)
    data = open_dataset(tmp_path, LABELS)
    assert [(one.name, one.label) for one in data.samples] == [("n01/a.png", 0), ("n02/a.png", 1), ("n03/a.png", 2)]
    assert "alphabetical" in data.notes[0]


def test_an_unknown_class_is_named(tmp_path: Path) -> None:
    picture(tmp_path / "lynx" / "a.png")
    picture(tmp_path / "dragon" / "a.png")
    with pytest.raises(InputError, match="dragon"):
        open_dataset(tmp_path, LABELS)


def test_masks_of_class_folders(tmp_path: Path) -> None:
    picture(tmp_path / "data" / "lynx" / "a.jpg")
    picture(tmp_path / "data" / "lynx" / "b.jpg")
    mask = picture(tmp_path / "masks" / "lynx" / "a.png")
    data = open_dataset(tmp_path / "data", LABELS, masks=tmp_path / "masks")
    assert [one.mask for one in data.samples] == [mask, None]
    assert data.has_masks


@pytest.mark.parametrize("header", ["", "path,label\n"])
def test_csv_with_labels_indices_and_masks(tmp_path: Path, header: str) -> None:
    (tmp_path / "list.csv").write_text(f"{header}a.png,lynx\nsub/b.png,2,m.png\n")
    data = open_dataset(tmp_path / "list.csv", LABELS)
    assert [(one.name, one.label, one.source, one.mask) for one in data.samples] == [
        ("a.png", 1, tmp_path / "a.png", None),
        ("sub/b.png", 2, tmp_path / "sub/b.png", tmp_path / "m.png"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("a.png\n", "row 1"), ("a.png,7\n", "'7'"), ("a.png,1\na.png,1\n", "same name"), ("", "no images")],
)
def test_faulty_csv(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(InputError, match=reason):
        open_dataset(tmp_path / "list.csv", LABELS)


def cifar_rows(count: int = 6) -> tuple[list[int], npt.NDArray[np.uint8]]:
    random = np.random.default_rng(1)
    return [at % 10 for at in range(count)], random.integers(0, 256, (count, 3072), dtype=np.uint8)


def check_cifar(folder: Path) -> None:
    classes, rows = cifar_rows()
    data = open_dataset(folder, CIFAR[::-1])
    assert [one.label for one in data.samples] == [9 - one for one in classes]
    for sample, row in zip(data.samples, rows, strict=True):
        assert isinstance(sample.source, np.ndarray)
        assert sample.source.shape == (32, 32, 3)
        for y, x, channel in ((0, 0, 0), (3, 17, 1), (31, 30, 2)):
            assert sample.source[y, x, channel] == row[channel * 1024 + y * 32 + x]


def test_cifar10_binary(tmp_path: Path) -> None:
    classes, rows = cifar_rows()
    content = b"".join(bytes([label]) + row.tobytes() for label, row in zip(classes, rows, strict=True))
    (tmp_path / "test_batch.bin").write_bytes(content)
    check_cifar(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(content[:-1])
    with pytest.raises(InputError, match="multiple of 3,073"):
        open_dataset(tmp_path, CIFAR)


@pytest.mark.parametrize("protocol", [2, 4])
def test_cifar10_pickle(tmp_path: Path, protocol: int) -> None:
    classes, rows = cifar_rows()
    content = {b"labels": classes, b"data": rows, b"batch_label": b"testing batch 1 of 1", b"filenames": [b"a"] * 6}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content, protocol=protocol))
    check_cifar(tmp_path)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "harm"),)

    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"labels": [Attack()]}))
    with pytest.raises(InputError, match="mkdir"):
        open_dataset(tmp_path, CIFAR)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("data", [np.zeros((6, 3072), object), np.zeros((6, 30), np.uint8), np.zeros((6, 3072))])
def test_a_pickle_with_other_arrays_is_refused(tmp_path: Path, data: object) -> None:
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"labels": [0] * 6, b"data": data}, protocol=2))
    with pytest.raises(InputError, match="cannot read"):
        open_dataset(tmp_path, CIFAR)


def pets(folder: Path) -> Path:
    rows = ["Abyssinian_100 1 1 1", "american_bulldog_7 2 2 1"]
    for row in rows:
        picture(folder / "images" / f"{row.split()[0]}.jpg")
    picture(folder / "annotations" / "trimaps" / "Abyssinian_100.png")
    (folder / "annotations" / "list.txt").write_text("\n".join(["#Image CLASS-ID SPECIES BREED ID", *rows, ""]))
    (folder / "annotations" / "test.txt").write_text(rows[1] + "\n")
    return folder


def test_pets_by_breed(tmp_path: Path) -> None:
    labels = ("American Bulldog", "Abyssinian")
    (one,) = open_dataset(pets(tmp_path), labels).samples
    assert (one.name, one.label, one.mask) == ("american_bulldog_7", 0, None)
    first, second = open_dataset(tmp_path, labels, split="list").samples
    assert (first.label, second.label) == (1, 0)
    assert first.mask == tmp_path / "annotations" / "trimaps" / "Abyssinian_100.png"


def test_pets_by_breed_and_species(tmp_path: Path) -> None:
    samples = open_dataset(
        pets(tmp_path), ("american bulldog dog", "beagle dog", "Abyssinian cat"), split="list"
    ).samples
    assert [one.label for one in samples] == [2, 0]


def test_pets_by_species(tmp_path: Path) -> None:
    samples = open_dataset(pets(tmp_path), ("dog", "cat"), split="list").samples
    assert [one.label for one in samples] == [1, 0]


def many_pets(folder: Path) -> Path:
    """Seven photographs of beagles in test.txt, two in trainval.txt."""
    pets(folder)
    test, trainval = [f"beagle_{at} 5 2 1" for at in range(7)], ["beagle_8 5 2 1", "beagle_9 5 2 1"]
    for name, rows in (("list", [*test, *trainval]), ("test", test), ("trainval", trainval)):
        (folder / "annotations" / f"{name}.txt").write_text("\n".join(rows) + "\n")
    return folder


def test_pets_that_the_built_in_model_has_not_seen(tmp_path: Path) -> None:
    data = open_dataset(many_pets(tmp_path), ("beagle dog",), split="held-out")
    assert [one.name for one in data.samples] == ["beagle_0", "beagle_3", "beagle_6"]
    assert data.layout == "Oxford-IIIT Pet, held-out"
    assert data.training_notes("pets37_resnet18_w32") == ()


@pytest.mark.parametrize(("split", "seen", "images"), [(None, 4, 7), ("trainval", 2, 2), ("list", 6, 9)])
def test_training_data_of_the_built_in_model_is_noted(
    tmp_path: Path, split: str | None, seen: int, images: int
) -> None:
    data = open_dataset(many_pets(tmp_path), ("beagle dog",), split=split)
    (note,) = data.training_notes("mine", "pets37_resnet18_w32", "pets37_resnet18_w32")
    assert f"was trained on {seen} of these {images} images" in note
    assert "--split held-out" in note
    assert data.training_notes("mine") == ()


def test_training_batches_of_cifar10_are_noted(tmp_path: Path) -> None:
    classes, rows = cifar_rows()
    content = b"".join(bytes([label]) + row.tobytes() for label, row in zip(classes, rows, strict=True))
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (tmp_path / name).write_bytes(content)
    (note,) = open_dataset(tmp_path / "data_batch_1.bin", CIFAR).training_notes("cifar10_resnet18_w16")
    assert "was trained on 6 of these 6 images" in note
    assert open_dataset(tmp_path, CIFAR).training_notes("cifar10_resnet18_w16") == ()


def test_only_pets_have_splits(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'foo'"):
        open_dataset(pets(tmp_path / "pets"), ("beagle",), split="foo")
    picture(tmp_path / "data" / "lynx" / "a.png")
    for split in ("foo", "test"):
        with pytest.raises(InputError, match="is class folders, which has no splits"):
            open_dataset(tmp_path / "data", LABELS, split=split)


def test_the_fingerprint_changes_with_files_and_labels(tmp_path: Path) -> None:
    path = picture(tmp_path / "lynx" / "a.png")
    before = open_dataset(tmp_path, LABELS).fingerprint
    assert open_dataset(tmp_path, LABELS).fingerprint == before
    picture(path, (5, 5))
    assert open_dataset(tmp_path, LABELS).fingerprint != before


def test_a_mask_is_cut_and_resized_as_the_image(tmp_path: Path) -> None:
    values = np.full((8, 12), 2, np.uint8)
    values[2:6, 4:8] = 1
    values[2, 4:8] = 3
    Image.fromarray(values).save(tmp_path / "trimap.png")
    mask = read_mask(tmp_path / "trimap.png", Geometry(original=(12, 8), box=(2.0, 0.0, 10.0, 8.0)), (8, 8))
    expected = np.zeros((8, 8), int)
    expected[2:6, 2:6] = 1
    expected[2, 2:6] = 2
    assert mask.tolist() == expected.tolist()
    half = read_mask(tmp_path / "trimap.png", Geometry(original=(12, 8), box=(2.0, 0.0, 10.0, 8.0)), (4, 4))
    assert half.tolist() == expected[1::2, 1::2].tolist()


def test_other_masks_are_zero_or_object(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 255], [7, 0]], np.uint8)).save(tmp_path / "mask.png")
    geometry = Geometry(original=(2, 2), box=(0, 0, 2, 2))
    assert read_mask(tmp_path / "mask.png", geometry, (2, 2)).tolist() == [[0, 1], [1, 0]]
    with pytest.raises(InputError, match="its image 3 × 2"):
        read_mask(tmp_path / "mask.png", Geometry(original=(3, 2), box=(0, 0, 3, 2)), (2, 2))
    (tmp_path / "mask.png").write_text("text")
    with pytest.raises(InputError, match="cannot read the mask"):
        read_mask(tmp_path / "mask.png", geometry, (2, 2))
