"""Arguments of another kind than is taken are refused at once, by name."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, get_args

from bcos_sdk.errors import InputError
from bcos_sdk.images import ImageSource, is_one_image

__all__ = ["image_collection", "of_a_kind", "one_of", "whole_number"]


def whole_number(name: str, value: Any, *, largest: int | None = None, advice: str = "") -> int:
    """1 or more; numpy's integers are fine, numbers with a point are not."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or number < 1 or (largest is not None and number > largest):
        most = " or more" if largest is None else f" to {largest}"
        raise InputError(f"{name} is {value!r}", source=name, hint=f"It is a whole number, 1{most}.{advice}")
    return number


def one_of(name: str, value: Any, choices: Any) -> None:
    """One of the values of a Literal."""
    if value not in get_args(choices):
        allowed = " or ".join(f'"{choice}"' for choice in get_args(choices))
        raise InputError(f"{name} is {value!r}", source=name, hint=f"Use {allowed}.")


def of_a_kind(name: str, value: Any, kinds: tuple[type, ...]) -> None:
    if not isinstance(value, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise InputError(f"{name} is {value!r}", source=name, hint=f"It is a {wanted}.")


def image_collection(images: Any) -> Iterable[ImageSource]:
    """Images to be taken one after the other; one image alone is a collection of one."""
    if is_one_image(images):
        return [images]
    if not isinstance(images, Iterable):
        raise InputError(f"{type(images).__name__} is neither an image nor a collection of images")
    return images
