"""Trainings by Ray's workers, a task for each seed: the same bytes as one after the other.

A worker trains in a folder of its own and hands over the files that a checkpoint changed; this process alone writes. What is
there already goes along, so that a training goes on where any other stopped; a worker that dies costs what came after the
last checkpoint.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium

from anabranch import _native
from anabranch._ray import RETRIES, begin
from anabranch.train._checkpoint import Checkpoint, Row, write
from anabranch.train._training import Algorithm, Live

import ray
from ray.exceptions import RayError, RayTaskError, WorkerCrashedError

Files = dict[str, bytes]


def contents(folder: Path) -> Files:
    """All files of a folder, if there is one."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*")) if path.is_file() and path.suffix != ".part"}


def put(folder: Path, files: Files) -> None:
    """Writes them there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        write(folder / name, data)


def trained(by: str, options: dict[str, Any], seed: int, files: Files, version: str) -> Iterator[tuple[Row, Files]]:
    """In a worker: a training, and what each checkpoint changed; in the end what was reached.

    Raises:
        RunError: This worker has another version than ``version``.
    """
    if _native.measures() != version:
        raise _native.RunError(
            f"a worker has anabranch {_native.measures()}, and the training is one of {version}: install the same everywhere"
        )
    algorithm: Algorithm = importlib.import_module(by)  # type: ignore[assignment]
    settings = algorithm.Settings(**options)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        put(folder, files)
        known, stood = contents(folder), 0

        def changed() -> Files:
            nonlocal known
            before, known = known, contents(folder)
            return {name: data for name, data in known.items() if before.get(name) != data}

        course = algorithm.train(settings, seed, folder)
        while True:
            try:
                row = next(course)
            except StopIteration as end:
                learned = end.value
                break
            # A file that is written anew is another file.
            now = checkpoint.stat().st_ino if (checkpoint := folder / "checkpoint.npz").exists() else 0
            if now != stood:
                stood = now
                yield row, changed()
        yield {"reached": algorithm.score(settings, learned)}, changed()


def train(algorithm: Algorithm, settings: Any, seeds: int, out: Path, address: str | None) -> Iterator[tuple[int, float]]:
    """Trains the seeds 1, 2, ... at once, as many as there are processors; what each reached, in their order.

    Raises:
        RunError: Ray, or a worker, can't go on; what was handed over is kept.
    """
    folders = {seed: out / f"seed-{seed}" for seed in range(1, seeds + 1)}
    for seed, folder in folders.items():
        Checkpoint(folder, settings, seed).check()
    was_begun = begin(None, address)
    try:
        yield from sorted(_train(algorithm, settings, folders))
    finally:
        if was_begun:
            ray.shutdown()


def _train(algorithm: Algorithm, settings: Any, folders: dict[int, Path]) -> list[tuple[int, float]]:
    # Tried again here, with what was handed over until then, and not by Ray, which would begin anew.
    task = ray.remote(num_cpus=1, max_retries=0, num_returns="streaming")(trained)
    version, live = _native.measures(), Live()

    def begun(seed: int) -> Any:
        return task.remote(algorithm.__name__, asdict(settings), seed, contents(folders[seed]), version)

    running = {begun(seed): seed for seed in folders}
    tries = dict.fromkeys(folders, 0)
    reached: dict[int, float] = {}
    try:
        while running:
            ready, _ = ray.wait(list(running), num_returns=1)
            (course,) = ready
            seed = running[course]
            try:
                row, files = ray.get(next(course))
            except StopIteration:
                del running[course]
                continue
            except WorkerCrashedError:
                del running[course]
                tries[seed] += 1
                if tries[seed] > RETRIES:
                    raise
                running[begun(seed)] = seed
                continue
            put(folders[seed], files)
            if "reached" in row:
                reached[seed] = row["reached"]
                live.end(seed, row["reached"])
            else:
                live.say(seed, row)
    except BaseException as error:
        for course in running:
            ray.cancel(course, force=True)
        if isinstance(error, RayTaskError):
            cause = error.cause
            if isinstance(cause, ModuleNotFoundError):
                raise _native.RunError(f"a worker lacks what the training needs: {cause}; install the same everywhere") from None
            if isinstance(cause, (ValueError, OSError, _native.RunError, gymnasium.error.Error)):
                raise _native.RunError(str(cause)) from None
            # A mistake of ours: where it was made is in what Ray says.
            raise
        if isinstance(error, RayError):
            said = str(error).strip().splitlines()[0]
            raise _native.RunError(
                f"Ray could not go on: {said}; the same command goes on from the last checkpoints"
            ) from error
        raise
    return list(reached.items())
