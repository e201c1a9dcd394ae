"""Checkpoints: where a training stands, so that it goes on from there to the same bytes."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np

Row = dict[str, float]
"""Of a learning curve."""


def write(path: Path, data: bytes) -> None:
    """All of it or nothing, also when the machine stops."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def write_layers(path: Path, layers: Iterable[tuple[Any, Any]]) -> None:
    """A network's layers as ``w1``, ``b1``, ``w2``, ... of an npz file."""
    file = io.BytesIO()
    each = ((f"{kind}{place}", part) for place, layer in enumerate(layers, 1) for kind, part in zip("wb", layer))
    np.savez(file, **{name: np.asarray(part) for name, part in each})
    write(path, file.getvalue())


class Checkpoint:
    """Where a training stands: its numbers, and its parameters."""

    def __init__(self, folder: Path, settings: Any, seed: int) -> None:
        self.settings = settings
        self.path = folder / "checkpoint.npz"
        self.curve = folder / "curve.csv"
        self.parameters = json.loads(json.dumps({"version": 5, "seed": seed, **asdict(settings)}))

    def go_on(self, learner: Any, iterate: Callable[[int], Row]) -> Iterator[Row]:
        """The iterations that are left, each of which gives a row of the curve; after some of them it is saved."""
        begin, rows = self.load(learner)
        for iteration in range(begin, self.settings.iterations):
            rows.append(iterate(iteration))
            if (iteration + 1) % self.settings.anew == 0 or iteration + 1 == self.settings.iterations:
                self.save(learner, iteration + 1, rows)
            yield rows[-1]

    def save(self, learner: Any, iteration: int, rows: list[Row]) -> None:
        """Of a learner whose ``numbers`` are all that changes in it, as a tree of arrays."""
        numbers = jax.tree.leaves(jax.device_get(learner.numbers))
        about = json.dumps({"told": self.parameters, "iteration": iteration, "rows": rows})
        file = io.BytesIO()
        np.savez(file, about=np.array(about), **{f"n{place}": number for place, number in enumerate(numbers)})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write(self.path, file.getvalue())
        text = io.StringIO()
        table = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write(self.curve, text.getvalue().encode())

    def check(self) -> None:
        """Whether a training that is there has the same parameters.

        Raises:
            ValueError: It has not; it is said what differs.
        """
        if self.path.exists():
            self._checked(self._read(0)[0])

    def _read(self, count: int) -> tuple[dict[str, Any], list[Any]]:
        """What it says of itself, and its first ``count`` numbers.

        Raises:
            ValueError: It is no checkpoint, or a part of one.
        """
        try:
            # Of what is no archive NumPy would leave the file open.
            with self.path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                if not {"told", "iteration", "rows"} <= set(about):
                    raise KeyError("told, iteration or rows")
                return about, [jnp.asarray(file[f"n{place}"]) for place in range(count)]
        except (ValueError, TypeError, KeyError, EOFError, BadZipFile, IndexError, AttributeError) as error:
            raise ValueError(
                f"{self.path}: is no checkpoint, or is damaged ({error}): remove it to begin anew, or give "
                "another --out"
            ) from error

    def _checked(self, about: dict[str, Any]) -> None:
        for name, value in self.parameters.items():
            if about["told"].get(name) != value:
                before = about["told"].get(name)
                raise ValueError(
                    f"{self.path}: {name} was {before} in the training that is there, and is {value} now: "
                    "go on with the same, or give another --out"
                )

    def load(self, learner: Any) -> tuple[int, list[Row]]:
        """Into the learner; iterations that were done, and the curve until there."""
        if not self.path.exists():
            return 0, []
        tree = jax.tree.structure(learner.numbers)
        self.check()
        about, numbers = self._read(tree.num_leaves)
        learner.numbers = jax.tree.unflatten(tree, numbers)
        return about["iteration"], about["rows"]
