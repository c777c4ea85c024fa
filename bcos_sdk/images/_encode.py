"""x = [r, g, b, 1 − r, 1 − g, 1 − b] with r, g, b in [0, 1], or the other channels that a network takes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bcos_sdk.contract import CHANNELS, Channels, InputSpec
from bcos_sdk.errors import InputError

__all__ = ["LEVELS", "check_encoded", "decode", "encode", "expected_arrays", "preview", "stand_in"]

LEVELS = np.arange(256, dtype=np.float32) / np.float32(255)
"""The value of each 8-bit level: level / 255 in float32."""
_COMPLEMENT_TOLERANCE = 1e-3  # float16 rounds rgb and 1 − rgb separately


def encode(pixels: npt.NDArray[np.uint8], channels: Channels = "rgb+complement") -> npt.NDArray[np.float32]:
    """Convert uint8 pixels [H, W, 3] to the network's input [6, H, W], or to that with other channels.

    A grey picture has three equal channels, of which one is taken.
    """
    if channels != "rgb+complement":
        colours = np.take(LEVELS, pixels.transpose(2, 0, 1)[: 3 if channels == "rgb" else 1], mode="clip")
        return np.concatenate([colours, np.float32(1) - colours]) if channels == "grey+complement" else colours
    encoded = np.empty((CHANNELS, *pixels.shape[:2]), np.float32)
    np.take(LEVELS, pixels.transpose(2, 0, 1), out=encoded[:3], mode="clip")
    np.subtract(np.float32(1), encoded[:3], out=encoded[3:])
    return encoded


def decode(encoded: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Convert the network's input [6, H, W], or that with other channels, to the nearest uint8 pixels [H, W, 3]."""
    colours = encoded[:3] if len(encoded) >= 3 else np.repeat(encoded[:1], 3, axis=0)
    levels: npt.NDArray[np.uint8] = np.rint(colours * 255).astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(1, 2, 0))


def stand_in(pixels: npt.NDArray[np.uint8], spec: InputSpec) -> npt.NDArray[np.float32]:
    """The network's input for a picture of the right size. If it takes no pictures: [rgb, 1 − rgb], repeated."""
    if spec.channels != "none":
        return encode(pixels, spec.channels)
    return encode(pixels)[np.arange(spec.depth) % CHANNELS]


def preview(array: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """The mean over the channels of an array [C, H, W] as a grey picture [H, W, 3], from its least to its largest."""
    mean = array.mean(0, dtype=np.float64)
    span = float(np.ptp(mean)) or 1.0
    levels: npt.NDArray[np.uint8] = np.rint((mean - mean.min()) / span * 255).astype(np.uint8)
    return np.repeat(levels[..., None], 3, axis=2)


def check_encoded(array: npt.NDArray[np.floating], spec: InputSpec, source: str) -> npt.NDArray[np.float32]:
    """Return a float32 copy of an encoded image, or raise an `InputError` with the reason why it is not one."""
    expected = expected_arrays(spec)
    if array.shape != spec.shape:
        raise InputError(
            f"{source} is not an encoded image: its shape is {list(array.shape)}", source=source, hint=expected
        )
    encoded = np.array(array, dtype=np.float32, order="C")  # a copy, because the caller may change the array later
    if not np.isfinite(encoded).all():
        raise InputError(
            f"{source} is not an encoded image: it has values that are NaN or infinite", source=source, hint=expected
        )
    if spec.channels == "none":
        return encoded
    if encoded.min() < 0 or encoded.max() > 1:
        raise InputError(
            f"{source} is not an encoded image: its values range from {encoded.min():.3g} to {encoded.max():.3g}",
            source=source,
            hint=f"{expected} Do not subtract a mean or divide by a standard deviation for B-cos networks.",
        )
    colours = spec.depth // 2
    if (
        spec.channels.endswith("+complement")
        and np.abs(encoded[:colours] + encoded[colours:] - 1).max() > _COMPLEMENT_TOLERANCE
    ):
        what = "channels 3 to 5 are not 1 − rgb" if colours == 3 else "channel 1 is not 1 − grey"
        raise InputError(f"{source} is not an encoded image: {what}", source=source, hint=expected)
    return encoded


_MEANINGS = {"rgb+complement": "[rgb, 1 − rgb]", "rgb": "rgb", "grey+complement": "[grey, 1 − grey]", "grey": "grey"}


def expected_arrays(spec: InputSpec) -> str:
    """The hint that lists the arrays that a network with this input takes."""
    shape = list(spec.shape)
    if spec.channels == "none":
        return f"Expected: an array float {shape} as in training, or a .npy file with one."
    return (
        "Expected: [H, W, 3] in RGB order or [H, W], as uint8, uint16 or float in [0, 1]; "
        f"or float {shape} = {_MEANINGS[spec.channels]} in [0, 1]."
    )
