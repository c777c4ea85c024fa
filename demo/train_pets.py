"""Train a small B-cos network on the photographs of Oxford-IIIT Pet from scratch, on a CPU, in a given time.

The progress of the training is the time spent, so that it ends in time however busy the machine is. Each worker is a
process with one thread; their gradients are averaged in every step. On a busy machine this is far faster than two
threads in one process: threads wait for each other in every operation, workers once per step.
"""

from __future__ import annotations

import copy
import json
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from pets import CATS, Photographs, batch, centre_crop, decode
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from training import (
    adamw,
    average_gradients,
    encode,
    learning_rate,
    save_checkpoint,
    save_weights,
    set_learning_rate,
    update_average,
    use_moments_in_norms,
    wait_while,
)

from bcos_sdk.models import build_model
from bcos_sdk.registry import builtin_registry


@dataclass(frozen=True)
class Recipe:
    """Settings that do not depend on the machine. They are stored with the results."""

    batch: int = 32  # of each worker
    peak_learning_rate: float = 2e-3
    warm_up: float = 0.05
    weight_decay: float = 0.05
    average_over: int = 500  # steps
    # pixels of a crop, from each progress on
    sides: tuple[tuple[float, int], ...] = ((0.0, 96), (0.45, 128), (0.75, 160))
    mix: float = 0.5  # chance of CutMix
    mix_until: float = 0.9  # progress
    species_weight: float = 0.5  # of the loss of cat against dog, beside the sum of the losses of the breeds


RECIPE = Recipe()
PATH = click.Path(path_type=Path)
option = partial(click.option, show_default=True)


def loss_of(logits: Tensor, target: Tensor) -> Tensor:
    """Binary cross entropy summed over breeds, and of cat against dog by the log-sum-exp of their breeds' logits."""
    breeds = F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1).mean()
    cat = logits[:, :CATS].logsumexp(1) - logits[:, CATS:].logsumexp(1)
    species = F.binary_cross_entropy_with_logits(cat, target[:, :CATS].sum(1))
    return breeds + RECIPE.species_weight * species


@torch.no_grad()
def held_out_figures(network: nn.Module, photographs: Photographs, side: int) -> dict[str, float]:
    """Return the accuracy of breed and species on the centre crops, and the mean probability of the true breed."""
    crops = np.stack([centre_crop(photographs.image(index), side) for index in range(len(photographs.labels))])
    images, labels = torch.from_numpy(crops), torch.from_numpy(photographs.labels)
    with torch.autocast("cpu", torch.bfloat16):
        logits = torch.cat([network(encode(some)).float() for some in torch.split(images, 32)])
    chosen = logits.argmax(1)
    return {
        "breed_accuracy": round((chosen == labels).float().mean().item(), 4),
        "species_accuracy": round(((chosen < CATS) == (labels < CATS)).float().mean().item(), 4),
        "true_probability": round(logits.sigmoid().gather(1, labels[:, None]).mean().item(), 4),
    }


def run_worker(rank: int, workers: int, data: Path, out: Path, settings: dict[str, Any]) -> None:
    """Train until the time is over. Worker 0 evaluates, reports, and saves."""
    dist.init_process_group("gloo", init_method=f"file://{out.resolve()}/rendezvous", rank=rank, world_size=workers)
    torch.manual_seed(settings["seed"])
    torch.set_num_threads(1)
    train, held_out = decode(data, out / "cache")
    side = builtin_registry().find(settings["model"]).input.size[0]
    network = build_model(settings["model"]).train()
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    average = copy.deepcopy(network).eval()
    use_moments_in_norms(network)
    optimiser = adamw(network, RECIPE.weight_decay, fused=True)
    run = torch.compile(network, dynamic=False, disable=not settings["compiled"])

    parts: dict[str, Any] = {"network": network, "average": average, "optimiser": optimiser}
    history: list[dict[str, float]] = []
    spent, step, budget, checkpoint = 0.0, 0, settings["minutes"] * 60, out / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        history, spent, step = saved["history"], saved["spent"], saved["step"]
        for name, part in parts.items():
            part.load_state_dict(saved[name])

    chance = np.random.default_rng((settings["seed"], rank, step))
    steps = len(train.labels) // (RECIPE.batch * workers)
    last, cpu_start, loss_sum = time.monotonic(), time.process_time(), 0.0
    order: np.ndarray = np.empty(0, int)
    progress = torch.tensor(spent / budget)
    while progress < 1:
        if len(order) < RECIPE.batch:
            order = chance.permutation(len(train.labels))[rank::workers]
        chosen, order = order[: RECIPE.batch], order[RECIPE.batch :]
        done = progress.item()
        x, target = batch(
            train,
            chosen,
            [pixels for start, pixels in RECIPE.sides if start <= done][-1],
            RECIPE.mix if done < RECIPE.mix_until else 0.0,
            chance,
        )
        set_learning_rate(optimiser, learning_rate(done, RECIPE.peak_learning_rate, RECIPE.warm_up))
        with torch.autocast("cpu", torch.bfloat16):
            logits = run(x)
        loss = loss_of(logits.float(), target)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        average_gradients(network)
        optimiser.step()
        step += 1
        loss_sum += loss.item()
        now = time.monotonic()
        spent += now - last
        last = now + (wait_while(settings["pause_file"]) if rank == 0 else 0)
        progress.fill_(1.0 if settings["stop_file"] and settings["stop_file"].exists() else min(spent / budget, 1))
        dist.broadcast(progress, 0)
        if rank > 0:
            continue
        update_average(average, network, step, RECIPE.average_over)
        if step % steps == 0:
            epoch = step // steps
            figures: dict[str, float] = {"epoch": epoch, "progress": done, "train_loss": loss_sum / steps}
            if epoch % settings["evaluate_every"] == 0 or progress >= 1:
                figures |= held_out_figures(average, held_out, side)
            figures |= {"seconds": spent, "cpu_seconds_of_worker": time.process_time() - cpu_start}
            history.append(figures)
            loss_sum = 0.0
            click.echo(", ".join(f"{name} {value:.5g}" for name, value in figures.items()))
            states = {name: part.state_dict() for name, part in parts.items()}
            save_checkpoint(checkpoint, {**states, "history": history, "spent": spent, "step": step})
    if rank == 0:
        states = {name: part.state_dict() for name, part in parts.items()}
        save_checkpoint(checkpoint, {**states, "history": history, "spent": spent, "step": step})
        save_weights(out / "weights.safetensors", average)
        report = {
            **held_out_figures(average, held_out, side),
            "training_images": len(train.labels),
            "held_out_images": len(held_out.labels),
            "steps": step,
            "seconds": spent,
            "settings": {
                **{k: v for k, v in settings.items() if "file" not in k},
                "workers": workers,
                **asdict(RECIPE),
            },
            "history": history,
        }
        (out / "training.json").write_text(json.dumps(report, indent=1) + "\n", "utf-8")
        click.echo(json.dumps({**report, "history": len(history)}, indent=1))
    dist.destroy_process_group()


@click.command()
@option("--data", type=PATH, required=True, help="Folder of Oxford-IIIT Pet, with images/ and annotations/.")
@option("--out", type=PATH, required=True, help="Folder of the results. A checkpoint in it is resumed.")
@option("--model", default="pets37_resnet18_w32", help="A model of the registry with the 37 breeds.")
@option("--minutes", type=click.FloatRange(0, min_open=True), default=95, help="Duration of the training.")
@option("--workers", type=click.IntRange(1), default=2, help="Processes, of one thread each.")
@option("--seed", type=int, default=0)
@option("--evaluate-every", type=click.IntRange(1), default=5, help="Epochs between figures of the held-out images.")
@option("--compile/--eager", "compiled", default=True, help="torch.compile needs a C++ compiler.")
@option("--pause-file", type=PATH, help="Wait while this file exists.")
@option("--stop-file", type=PATH, help="Stop when this file exists, and write the results.")
def main(data: Path, out: Path, workers: int, **settings: Any) -> None:
    """Train a B-cos network on Oxford-IIIT Pet and write weights.safetensors and training.json to the folder."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "rendezvous").unlink(missing_ok=True)
    decode(data, out / "cache")
    spawn(run_worker, (workers, data, out, settings), workers)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
