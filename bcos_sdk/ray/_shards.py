"""The work is cut into shards. Each is the images of one Parquet file, so that no image can be in two files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from bcos_sdk.errors import InputError

__all__ = ["LARGEST_SHARD", "Outcome", "Plan", "Shard", "plan_shards", "shard_size"]

LARGEST_SHARD = 1000
"""The images of a file by default. At 224 × 224 with float16 maps such a file has 100 MB."""
_SMALLEST_SHARD = 16
_SHARDS_PER_WORKER = 8
_MOST_FAILURES = 3


@dataclass(frozen=True)
class Shard:
    """The images to have in one file, and those of its rows that have to go."""

    file: str
    images: tuple[str, ...]
    drop: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Shard:
        fields = json.loads(text)
        return cls(fields["file"], tuple(fields["images"]), tuple(fields["drop"]))


@dataclass
class Outcome:
    """What became of the images of a shard."""

    done: int = 0
    """Images with a new result."""
    kept: int = 0
    """Images that an earlier run had finished."""
    failures: dict[str, int] = field(default_factory=dict)
    """Images that failed, by error code."""
    repeated: dict[str, int] = field(default_factory=dict)
    """Images of an earlier run that were done again, by reason."""
    examples: list[tuple[str, str]] = field(default_factory=list)
    """Code and message of the first failures."""
    began: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of all threads of the worker."""
    device: str = ""

    @property
    def images(self) -> int:
        return self.done + self.kept + sum(self.failures.values())

    def failed(self, code: str, message: str) -> None:
        self.failures[code] = self.failures.get(code, 0) + 1
        if len(self.examples) < _MOST_FAILURES:
            self.examples.append((code, message))

    def add(self, other: Outcome) -> None:
        """Add the numbers of another outcome."""
        self.done += other.done
        self.kept += other.kept
        self.seconds += other.seconds
        self.cpu_seconds += other.cpu_seconds
        self.failures = dict(Counter(self.failures) + Counter(other.failures))
        self.repeated = dict(Counter(self.repeated) + Counter(other.repeated))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        fields = json.loads(text)
        return cls(**{**fields, "examples": [tuple(one) for one in fields["examples"]]})


@dataclass(frozen=True)
class Plan:
    """The shards of a run, and how many of its images have a row of an earlier run."""

    shards: list[Shard]
    images: int
    recorded: int


def shard_size(images: int, workers: int, batch: int) -> int:
    """How many images a file gets: several files for each worker, and whole batches."""
    size = min(LARGEST_SHARD, max(_SMALLEST_SHARD, -(-images // (workers * _SHARDS_PER_WORKER))))
    return -(-size // batch) * batch


def plan_shards(images: Iterable[str], files: Mapping[str, Sequence[str]], *, size: int, prefix: str) -> Plan:
    """Cut the images into shards. `files` are the paths in each file of earlier runs, in the order of the files.

    An image that has a row stays in its file. A second row of an image, which two runs at once may have written, is
    dropped. New images get new files, whose names begin with `prefix`.
    """
    wanted = dict.fromkeys(images)
    seen: set[str] = set()
    shards: list[Shard] = []
    for file, paths in files.items():
        twice = tuple(path for path in paths if path in seen)
        if len(set(paths)) < len(paths):
            raise InputError(
                f"{file} has an image twice", source=file, hint="bcos-sdk did not write it: choose another --out."
            )
        again = tuple(path for path in paths if path in wanted and path not in seen)
        seen.update(paths)
        if again or twice:
            shards.append(Shard(file, again, twice))
    new = [path for path in wanted if path not in seen]
    shards += [
        Shard(f"{prefix}{number:07d}.parquet", tuple(new[start : start + size]))
        for number, start in enumerate(range(0, len(new), size))
    ]
    return Plan(shards, len(wanted), len(wanted) - len(new))
