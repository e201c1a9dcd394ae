"""Checkpoints: where a training stands, so that it goes on from there to the same bytes."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import json
import os
import tempfile
import tomllib
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import jax
import jax.numpy as jnp
import numpy as np

from anabranch import _given as given
from anabranch.train._steps import MOST_SEED

Row = dict[str, float]
"""Of a learning curve."""

# What NumPy, zipfile and json raise of a file that is damaged; an OSError of the file itself has its name.
DAMAGES = (
    ValueError, TypeError, LookupError, EOFError, BadZipFile, AttributeError, RuntimeError, ArithmeticError, MemoryError,
    OSError, zlib.error,
)  # fmt: skip


def write(path: Path, data: bytes) -> None:
    """All of it or nothing, also when the machine stops."""
    # Of this process: another that writes the same file has a part of its own.
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        if error.errno is not None and error.filename != os.fspath(path):
            # A full disk is named by no file, and the part by one that nobody knows.
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise


# Of folders that this process has to itself, by device and inode: the open folder, and how many ask for it.
_held: dict[tuple[int, int], tuple[int, int]] = {}


@contextmanager
def alone(folder: Path, option: str = "") -> Iterator[None]:
    """Within, no other process trains into the folder, which is made, and which goes again if nothing is in it.

    A process may ask again for what it has: a training that an exception left, and that something still refers to, holds
    its folder until it is collected.

    Raises:
        ValueError: One does, or nothing can be written there.
    """
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as probe:
                probe.write(bytes(4096))
        except OSError as error:
            raise ValueError(f"{option}{folder}: can't be written to ({error.strerror}): give another folder") from error
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        about = os.fstat(opened)
        key = (about.st_dev, about.st_ino)
        first, count = _held.get(key, (opened, 0))
        try:
            if count == 0:
                if _lock(opened, f"{option}{folder}"):
                    for part in folder.glob(".*.part"):
                        # Of who was killed while it wrote.
                        part.unlink(missing_ok=True)
            _held[key] = (first, count + 1)
            if first != opened:
                os.close(opened)
        except BaseException:
            os.close(opened)
            raise
        try:
            yield
        finally:
            first, count = _held.pop(key)
            if count > 1:
                _held[key] = (first, count - 1)
            else:
                os.close(first)
    finally:
        for place in made:
            try:
                place.rmdir()
            except OSError:
                break


def _lock(opened: int, name: str) -> bool:
    """Whether the folder is locked; a file system without locks, as some of other machines, has checkpoints compared
    before each is replaced."""
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        raise ValueError(f"{name}: another training writes here: wait for its end, or give another --out") from None
    except OSError:
        return False


def scenario_of(settings: Any) -> dict[str, Any] | None:
    """What is in the scenario file of a training's environment, if it has one.

    Raises:
        OSError, ValueError: It can't be read.
    """
    path = getattr(settings, "options", {}).get("scenario")
    if not isinstance(path, str):
        return None
    try:
        return tomllib.loads(Path(path).read_bytes().decode())
    except ValueError as error:
        raise ValueError(f"{path}: is no scenario: {error}") from error


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
        given.integer("seed", seed, 0, MOST_SEED)
        about = {"version": 5, "seed": seed, **asdict(settings)}
        if (scenario := scenario_of(settings)) is not None:
            # What is in it, however it is laid out: the path alone may name another scenario later.
            text = json.dumps(scenario, sort_keys=True, default=str)
            about["scenario"] = hashlib.sha256(text.encode()).hexdigest()
        self.parameters = json.loads(json.dumps(about))
        # Which file of that path was read or written last, to see whether somebody else has replaced it.
        self.known: tuple[int, int] | None = None

    def go_on(self, learner: Any, iterate: Callable[[int], Row]) -> Iterator[Row]:
        """The iterations that are left, each of which gives a row of the curve; after some of them it is saved."""
        with alone(self.path.parent):
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
        if self._stands() != self.known:
            # Where folders can't be locked, another training may have come.
            self.check()
        write(self.path, file.getvalue())
        self.known = self._stands()
        self._write_curve(rows)

    def _stands(self) -> tuple[int, int] | None:
        """Which file is there now."""
        try:
            about = self.path.stat()
        except FileNotFoundError:
            return None
        return about.st_ino, about.st_mtime_ns

    def _write_curve(self, rows: list[Row]) -> None:
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
                if not (isinstance(about["told"], dict) and isinstance(about["iteration"], int) and isinstance(about["rows"], list)):
                    raise TypeError("told, iteration or rows")
                return about, [jnp.asarray(file[f"n{place}"]) for place in range(count)]
        except DAMAGES as error:
            if isinstance(error, OSError) and error.filename is not None:
                raise
            raise ValueError(
                f"{self.path}: is no checkpoint, or is damaged ({error}): remove it to begin anew, or give "
                "another --out"
            ) from error

    def _checked(self, about: dict[str, Any]) -> None:
        for name, value in self.parameters.items():
            if about["told"].get(name) != value:
                before = about["told"].get(name)
                if name == "scenario":
                    raise ValueError(
                        f"{self.path}: {self.settings.options['scenario']} is another scenario than in the training that "
                        "is there: go on with the same, or give another --out"
                    )
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
        self.known = self._stands()
        # Written after the checkpoint: whoever was killed in between left a shorter one.
        self._write_curve(about["rows"])
        return about["iteration"], about["rows"]
