"""Write docs/evaluation.md and its plot from the evaluation*.json beside it: `python docs/make_evaluation.py`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bcos_sdk._files import output_file
from bcos_sdk.cli.evaluate import difference_rows, figure_rows
from bcos_sdk.evaluation import Evaluation

DOCS = Path(__file__).resolve().parent
DATA, PAGE, PLOT = DOCS / "evaluation.json", DOCS / "evaluation.md", DOCS / "evaluation.png"
HALVES = DOCS / "evaluation_fp16.json"
PETS = DOCS / "evaluation_pets.json"

TEXT = """\
# Measure a model and its explanations

<!-- made by docs/make_evaluation.py from evaluation.json, evaluation_fp16.json and evaluation_pets.json -->
```
bcos-sdk evaluate cifar-10-batches-bin --model cifar10_resnet18_w16 --measure all
bcos-sdk evaluate imagenet/val --model resnet50 --measure localisation --grids 500
bcos-sdk evaluate val.csv --model resnet50-fp16 --compare resnet50 --max-drop 0.5
bcos-sdk evaluate oxford-pets --model ./mine --measure masks --min-accuracy 90
bcos-sdk evaluate val.csv --model ./mine --weights mine.ckpt --base resnet18 --measure localisation --against gradcam
```
`OUT` gets `evaluation.json`, `evaluation.html` with plots, and `items.jsonl` with the scores of every image. `--resume` continues an
interrupted evaluation. An image that fails is listed and counted (exit code 5). A demand that is not met gives exit code 3.

Data: a folder with one folder of images per class, named by label or index (or, as in ImageNet, in alphabetical order); a CSV file
`path,label[,mask]`; CIFAR-10, binary or Python version (its pickles are read without running code); Oxford-IIIT Pet with its trimaps
and `--split test`, `trainval`, `list` (all) or `held-out`. Two thirds of its official test split are training data of the built-in model,
whose figures there are too high; `held-out` is the rest. A note says so if a built-in model meets images that it was trained on.

| measure | what it is |
|---|---|
| accuracy | top-1, top-5, expected calibration error in 15 bins, by class, confusion |
| localisation | the grid pointing game of the B-cos paper: n × n confident, correct images of different classes; the share of the positive contribution to a class that falls into its own cell. Maps are smoothed with 15 pixels of 224 (3 of 32) before negative values are left out. "Largest pixels only" counts 2.5 % of the pixels |
| masks | the share of the positive contribution that lies on the object, and whether the maximum does. Borders of trimaps count for neither |
| faithfulness | the probability while pixels become grey (deletion) or replace a blurred image (insertion), most important first, random, and least important first; the area is the mean over 33 points |
| bias | (b₁ − b₂) / (y₁ − y₂) of the two largest logits |
| stability | cosine and rank correlation of maps under diagonal shifts of −4 … +4 pixels; with `--compare`, also with the maps of the other model or device |

`--mean-corrected` explains each logit minus the mean of all logits in localisation, masks, faithfulness and stability.
`--compare BUNDLE` measures another bundle on the same images and grids. Differences are paired; their 95 % intervals come from 2,000
bootstrap resamples of images, or of grids.

A grid is larger than the network's input. `--grid-mode network` exports a fully convolutional network once more at that size, and keeps
the export in the cache (`BCOS_SDK_CACHE`); `--grid-model` and `--compare-grid-model` take such a bundle; `--grid-mode windows` slides the
bundle over the grid by half its input, and adds the maps. The default, `auto`, takes the network if it can, else windows with a note. Two
models that are compared are always explained in the same way.

The network is that of the bundle: the hash of its weights must be the one in the manifest, and its logits must agree. For a fine-tuned
model pass the file with `--weights`, and with `--base` the registry model that was exported if the bundle has another name. If you
changed constants at the export (`--logit-bias`, `--temperature`, `--set`), write a registry entry with them and pass its name with `--base`.
If no grid can be made, `--measure all` leaves localisation out with a note.

## The built-in `cifar10_resnet18_w16`, 10,000 test images of CIFAR-10
```
curl -O https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz && tar xf cifar-10-binary.tar.gz
bcos-sdk evaluate cifar-10-batches-bin --model cifar10_resnet18_w16 --measure localisation --grids {grids}
```
Localisation on {grids} grids of 3 × 3:

{figures}

100 images for the measures of explanations, and the same model in fp16 beside it
(`--measure faithfulness,bias,stability --images 100 --compare`):

{more}

{differences}

## The built-in `pets37_resnet18_w32`, {photographs} held-out photographs of Oxford-IIIT Pet
```
mkdir oxford-pets && cd oxford-pets
curl -LO https://www.robots.ox.ac.uk/~vgg/data/pets/data/images.tar.gz && tar xf images.tar.gz
curl -LO https://www.robots.ox.ac.uk/~vgg/data/pets/data/annotations.tar.gz && tar xf annotations.tar.gz && cd ..
bcos-sdk evaluate oxford-pets --split held-out --model pets37_resnet18_w32 \\
    --measure localisation,masks --grids 500 --images {count}
```
The split is that of [the model card](../bcos_sdk/builtin/pets37_resnet18_w32.md): lines 1, 4, 7, … of `test.txt`. Probabilities are too
low: the confident, correct photographs are enough for {pets_grids} grids of different images. The figures below are those of photographs
that were shrunk first, to 192 pixels at the shorter side (Lanczos, JPEG quality 85; trimaps by nearest neighbour). The originals are resized
in one step, so that their figures may differ a little; they were not measured.

{pets}

The species, which is the last word of a label, is right in {species} % (from `confusion` in `evaluation.json`). The trimaps of two
photographs have no object where the network sees the image: they are listed, and the exit code is 5.

## Against post-hoc methods
`--against {names}` runs the methods of Captum (extra `evaluate`) on the same network in torch and the same grids. B-cos layers detach
their dynamic weights in eval mode: every gradient is then W(x), and input × gradient *is* our explanation. Post-hoc methods
therefore get the network with true gradients (`bcos_sdk.evaluation.posthoc.true_gradients`).

![Share of the positive attribution in the own cell, by method](evaluation.png)

{against}

"ours" is the score of the model's own explanation on the same grids as the method of the row. Slow methods are run on fewer grids, which are
the first ones: the most confident images. GradCAM is not smoothed, as in the paper. Times are milliseconds per explanation of a
{side}×{side} grid on one thread of a busy machine: orders of magnitude. Chance is {chance} %.

{equals}

## Flipping pixels
Insertion speaks clearly for the explanation. Deletion of single pixels does not: it is no better than a random order. Both are always shown beside the random order; `--patch 4` flips squares of 4 × 4 pixels.
The curves are our own: Quantus 0.6 calls `numpy.trapz`, which numpy 2.4 no longer has, and needs the network in torch.
"""


def page(result: Evaluation, halves: Evaluation, pets: Evaluation, side: int = 96) -> str:
    """Return the whole page. It depends only on the result."""
    assert result.against is not None
    methods = result.against["methods"]
    rows = [
        (
            one["title"],
            f"{100 * one['localisation']:.1f}",
            f"{100 * one['raw']:.1f}",
            "–" if one["name"] == "ours" else f"{100 * one['ours']:.1f}",
            str(one["grids"]),
            f"{one['milliseconds']:.0f}",
            (one["equals"] or "–").partition(",")[0],
        )
        for one in methods
    ]
    header = ("method", "score %", "not smoothed %", "ours %", "grids", "ms", "equals")
    return TEXT.format(
        figures=_markdown(("figure", "value", "images or grids"), figure_rows(result)),
        grids=result.model.figures["localisation"].items,
        more=_markdown(("figure", "value", "images"), figure_rows(halves)),
        differences=_markdown(
            ("fp32 − fp16", "fp32", "fp16", "difference", "95 % interval", "images that differ"),
            difference_rows(halves.differences),
        ),
        pets=_markdown(("figure", "value", "images or grids"), figure_rows(pets)),
        species=f"{100 * species_accuracy(pets):.2f}",
        pets_grids=pets.model.figures["localisation"].items,
        count=pets.images,
        photographs=f"{pets.images:,}",
        names=",".join(one["name"] for one in methods if one["name"] != "ours"),
        against=_markdown(header, rows),
        side=side,
        chance=f"{100 / result.settings.cells**2:.1f}",
        equals="\n".join(f"- {one['title']} equals {one['equals']}." for one in methods if one["equals"]),
    )


def species_accuracy(pets: Evaluation) -> float:
    """The share of the photographs whose breed and whose predicted breed end with the same word: cat or dog."""
    details = pets.model.figures["accuracy"].details
    species = [one["label"].rpartition(" ")[2] for one in details["classes"]]
    table = details["confusion"]
    assert len(table) == len(species), "a breed has no photographs"
    same = sum(
        count
        for row, own in zip(table, species, strict=True)
        for count, other in zip(row, species, strict=True)
        if own == other
    )
    return float(same / sum(map(sum, table)))


def draw(result: Evaluation, path: Path) -> None:
    """A box per method: quartiles over all cells, whiskers at 5 and 95 %, a point at the mean."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    assert result.against is not None
    methods = result.against["methods"]
    boxes = [
        {
            "label": one["title"],
            "whislo": 100 * one["spread"]["p5"],
            "q1": 100 * one["spread"]["q25"],
            "med": 100 * one["spread"]["median"],
            "q3": 100 * one["spread"]["q75"],
            "whishi": 100 * one["spread"]["p95"],
            "mean": 100 * one["spread"]["mean"],
        }
        for one in reversed(methods)
    ]
    figure = Figure(figsize=(7.6, 0.9 + 0.38 * len(boxes)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    marker = {"marker": "o", "markerfacecolor": "#d98032", "markeredgecolor": "none", "markersize": 5}
    axes.bxp(
        boxes,
        orientation="horizontal",
        showfliers=False,
        showmeans=True,
        patch_artist=True,
        boxprops={"facecolor": "#1f6f8b55", "edgecolor": "#1f6f8b"},
        medianprops={"color": "#1f6f8b"},
        meanprops=marker,
    )
    axes.axvline(100 / result.settings.cells**2, color="#888", linestyle="--", linewidth=1)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the positive attribution in the own cell, % (dashed: chance)", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    with output_file(path) as partial:
        figure.savefig(partial, format="png", dpi=110, metadata={"Software": None})


def _markdown(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = (header, ("---",) * len(header), *rows)
    return "\n".join(f"| {' | '.join(cell.strip() for cell in line)} |" for line in lines)


if __name__ == "__main__":
    result = Evaluation.model_validate_json(DATA.read_bytes())
    halves, pets = (Evaluation.model_validate_json(path.read_bytes()) for path in (HALVES, PETS))
    PAGE.write_text(page(result, halves, pets), "utf-8")
    draw(result, PLOT)
