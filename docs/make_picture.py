"""Make the picture of the README with the SDK: `python docs/make_picture.py`."""

from __future__ import annotations

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from bcos_sdk import Client
from bcos_sdk.bundle import DEFAULT_MODEL

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ("cat-1", "cat-2", "dog")
SIDE, GAP, TEXT = 260, 8, 26


def main() -> None:
    """Draw one column per sample: the image, its overlay, and the predicted class with its probability."""
    columns = len(SAMPLES)
    picture = Image.new("RGB", (columns * (SIDE + GAP) - GAP, 2 * SIDE + GAP + TEXT), "white")
    draw = ImageDraw.Draw(picture)
    with Client(DEFAULT_MODEL, device="cpu") as client:
        paths = [ROOT / "samples" / f"{name}.jpg" for name in SAMPLES]
        for column, result in enumerate(client.explain(paths)):
            (explanation,) = result.explanations
            left = column * (SIDE + GAP)
            for row, drawn in enumerate((Image.fromarray(explanation.display), explanation.overlay())):
                picture.paste(drawn.resize((SIDE, SIDE), Image.Resampling.BICUBIC), (left, row * (SIDE + GAP)))
            target = explanation.target
            label = f"{target.label} {target.probability:.2f}"
            draw.text((left + SIDE / 2, 2 * SIDE + GAP + 4), label, "black", ImageFont.load_default(15), anchor="mt")
    picture.save(ROOT / "docs" / "explained.png", optimize=True)


if __name__ == "__main__":
    main()
