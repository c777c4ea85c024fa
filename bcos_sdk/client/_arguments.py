"""The arguments of the client's calls: their types, and checks that raise an `InputError` with the argument's name."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Literal, TypeAlias, get_args

from bcos_sdk.client._deadline import Deadline, deadline_exceeded
from bcos_sdk.errors import ImageTooLargeError, InputError, shown
from bcos_sdk.images import ImageSource, is_one_image
from bcos_sdk.limits import MOST_THREADS

__all__ = [
    "TOP_K",
    "Images",
    "OnError",
    "OnIncomplete",
    "check_choice",
    "check_count",
    "check_local",
    "check_remote",
    "check_size",
    "check_threads",
    "check_type",
    "image_collection",
    "image_list",
]

TOP_K = 5
"""How many classes a prediction lists by default."""

_MOST_SHOWN = 60

Images: TypeAlias = "ImageSource | Iterable[ImageSource]"
OnError = Literal["raise", "return"]
OnIncomplete = Literal["raise", "flag"]


def check_count(name: str, value: Any, *, largest: int | None = None, advice: str = "") -> int:
    """Return the value as an int if it is a whole number from 1 to `largest`. Numpy's integers are accepted."""
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if isinstance(value, bool) or number < 1 or (largest is not None and number > largest):
        upper = " or more" if largest is None else f" to {largest}"
        expected = f"a whole number, 1{upper}"
        raise InputError(
            f"{name} is {shown(value, most=_MOST_SHOWN)}, expected {expected}",
            source=name,
            hint=f"Pass {expected}.{advice}",
        )
    return number


def check_size(name: str, value: Any) -> tuple[int, int]:
    """Return height and width: two whole numbers, or one for both."""
    height, width = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, value)
    return check_count(name, height), check_count(name, width)


def check_threads(value: Any) -> int:
    """Return the number of CPU threads as an int if it is from 1 to `MOST_THREADS`."""
    advice = f" This machine has {os.cpu_count() or 1} cores; more threads than cores make it slower."
    return check_count("threads", value, largest=MOST_THREADS, advice=advice)


def check_local(remote: Any) -> None:
    """Check that `remote` is not given for a model of this machine."""
    if remote is not None:
        raise InputError(
            "remote is given, but the model has no address",
            source="remote",
            hint='Pass an address such as "http://host:8000/NAME", or leave remote out.',
        )


def check_remote(options: Mapping[str, Any]) -> None:
    """Check that no option is given that the server decides."""
    usual = {"device": "auto", "threads": None, "tf32": False, "trust_engines": False, "cuda_graphs": False}
    for name, value in usual.items():
        if options[name] != value:
            raise InputError(
                f"{name} is {shown(options[name])}, but the model runs on a server, which decides this",
                source=name,
                hint=f"Leave {name} out.",
            )


def check_choice(name: str, value: Any, choices: Any) -> None:
    """Check that the value is one of the values of a Literal."""
    if value not in get_args(choices):
        allowed = " or ".join(f'"{choice}"' for choice in get_args(choices))
        raise InputError(f"{name} is {shown(value)}, expected {allowed}", source=name, hint=f"Use {allowed}.")


def check_type(name: str, value: Any, types: tuple[type, ...]) -> None:
    """Check that the value is an instance of one of these types."""
    if not isinstance(value, types):
        expected = " or ".join("None" if one is type(None) else one.__name__ for one in types)
        raise InputError(f"{name} is {shown(value)}, expected {expected}", source=name, hint=f"Pass {expected}.")


def image_collection(images: Any) -> Iterable[ImageSource]:
    """Return an iterable of images. A single image becomes a list with one entry."""
    if is_one_image(images):
        return [images]
    if not isinstance(images, Iterable):
        raise InputError(
            f"images is a {type(images).__name__}, which is neither an image nor a collection of images",
            hint="Pass a path, bytes, a file opened in binary mode, a PIL image, an array, or a list of these.",
        )
    return images


def image_list(images: Any, limit: int, deadline: Deadline) -> list[ImageSource]:
    """Return the list of at most `limit` images. A single image becomes a list with one entry.

    Raise `DeadlineError` if an iterator of the caller has not yielded all images before the deadline.
    """
    collection = image_collection(images)
    listed: list[ImageSource] = []
    for image in islice(collection, limit + 1):
        listed.append(image)
        if deadline.passed and not isinstance(collection, (list, tuple)):
            raise deadline_exceeded("the iterable of images did not end within the timeout of the call")
    if len(listed) > limit:
        raise ImageTooLargeError(
            f"more than {limit:,} images in one call",
            hint="Use predict_stream or explain_stream, or raise Limits(images=…).",
        )
    return listed
