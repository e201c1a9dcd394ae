"""Trainings of several seeds, one after the other or by Ray's workers, and the commands that begin them."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn, Protocol

import gymnasium

from anabranch._native import RunError
from anabranch.train._checkpoint import Checkpoint, Row, alone, write
from anabranch.train._curves import write_page
from anabranch.train._interrupt import INTERRUPTED, look, noted
from anabranch.train._steps import MOST_SEED
from anabranch.vector import MOST_STEPS

Course = Generator[Row, None, Any]
"""A training as it goes: a row of its curve after each iteration, and at the end what was learned."""


class Algorithm(Protocol):
    """What a learner's module has."""

    __name__: str
    Settings: Callable[..., Any]

    def train(self, settings: Any, seed: int, folder: Path) -> Course:
        """Trains, or goes on from the folder's checkpoint."""

    def score(self, settings: Any, learned: Any) -> float:
        """Mean reward of a step, in episodes that no training has seen."""

    def baselines(self, settings: Any) -> dict[str, float]:
        """The same of those who have not learned."""

    def about(self, settings: Any) -> dict[str, str]:
        """What the page of its curves says of it."""


def finished(course: Course, say: Callable[[Row], None] = lambda row: None) -> Any:
    """Goes through a training; what was learned. ``say`` is called with each row."""
    while True:
        try:
            row = next(course)
        except StopIteration as end:
            return end.value
        say(row)
        look()


class Live:
    """The line that moves while trainings do; only on terminals."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.is_shown = sys.stderr.isatty()
        self.was_shown = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def say(self, seed: int, row: Row) -> None:
        if self.is_shown:
            line = f"seed {seed}  {row['steps']:>9} steps  reward {row['reward_per_step']:9.4f} a step"
            print(f"\r{line}  {self.seconds:5.1f} s", end="", file=sys.stderr, flush=True)
            self.was_shown = True

    def end(self, seed: int, reward: float) -> None:
        if self.was_shown:
            print(file=sys.stderr)
            self.was_shown = False
        print(f"seed {seed}: {reward:.4f} a step after {self.seconds:.1f} s", flush=True)


def one_by_one(algorithm: Algorithm, settings: Any, seeds: int, out: Path) -> Iterator[tuple[int, float]]:
    """Trains the seeds 1, 2, ...; what each reached."""
    for seed in range(1, seeds + 1):
        live = Live()
        learned = finished(algorithm.train(settings, seed, out / f"seed-{seed}"), lambda row: live.say(seed, row))
        reward = algorithm.score(settings, learned)
        live.end(seed, reward)
        yield seed, reward


# What ``--ray`` is without an address: Ray begins here.
HERE = "local"


# What a user's arguments or files are refused with, or take more of than there is.
REFUSALS = (ValueError, OSError, RunError, OverflowError, MemoryError, gymnasium.error.Error)


# What is written beside trainings, and into their folders.
BESIDE = ("results.json", "curves.html")
INTO = ("checkpoint.npz", "curve.csv", "network.npz", "policy.safetensors", "policy.json", "steps-*.safetensors", "steps-*.json")


def check_folders(settings: Any, seeds: int, out: Path) -> None:
    """Whether trainings can be written there: before them, since they may take hours.

    Raises:
        ValueError: Something else is there, another training that goes on, or trainings with other settings.
    """
    numbers = (folder.name.removeprefix("seed-") for folder in out.glob("seed-*"))
    present = sorted(int(number) for number in numbers if number.isdecimal() and 1 <= int(number) <= seeds)
    folders = {seed: out / f"seed-{seed}" for seed in present}
    for folder in (out, *out.parents, *folders.values()):
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"--out is {out}, and {folder} is a file: give a folder")
    for place, names in ((out, BESIDE), *((folder, INTO) for folder in folders.values())):
        for path in (path for name in names for path in place.glob(name)):
            if path.is_dir():
                raise ValueError(f"--out is {out}, and {path} is a folder where a file is to be: give another --out")
    for seed, folder in folders.items():
        with alone(folder):
            Checkpoint(folder, settings, seed).check()


def train_all(algorithm: Algorithm, settings: Any, seeds: int, out: Path, ray: str | None = None) -> dict[str, Any]:
    """Trainings of the seeds 1, 2, ..., each in its folder; what they reached is written into ``out`` and given back.

    They go one after the other, or at once by Ray's workers where ``ray`` says which: :data:`HERE`, or an address.
    """
    results: dict[str, Any] = {"settings": asdict(settings)}
    try:
        check_folders(settings, seeds, out)
        with alone(out, "--out: "):
            with noted():
                results["reward_per_step"] = reached = algorithm.baselines(settings)
                if ray is None:
                    reached |= {f"seed-{seed}": reward for seed, reward in one_by_one(algorithm, settings, seeds, out)}
            if ray is not None:
                from anabranch.train import _on_ray

                trainings = _on_ray.train(algorithm, settings, seeds, out, None if ray == HERE else ray)
                reached |= {f"seed-{seed}": reward for seed, reward in trainings}
            write(out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
            # A training ends with the round in which it has so many.
            about = {**algorithm.about(settings), "steps at least": str(settings.steps)}
            write_page(out, algorithm.__name__, about, reached, "reward of a step")
    except KeyboardInterrupt:
        stopped("stopped; the same command goes on from the last checkpoint")
    except (*REFUSALS, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    for who, reward in reached.items():
        if not who.startswith("seed-"):
            print(f"{who}: {reward:.4f}", flush=True)
    return results


def stopped(what: str) -> NoReturn:
    """Says it, and ends as the command does after Ctrl-C."""
    print(f"\n{what}", file=sys.stderr)
    sys.exit(INTERRUPTED)


def bench(algorithm: Algorithm, settings: Any) -> dict[str, Any]:
    """Prints how fast one training is, with all that belongs to it: what is compiled, and checkpoints.

    Given back are its ``steps``, the ``seconds`` from its beginning to its policy, ``steps_per_s`` of both, and
    ``first_iteration_s``, in which JAX compiles. Nothing stays on the disk.
    """
    begun = time.perf_counter()
    rows: list[tuple[float, Row]] = []
    try:
        with noted(), tempfile.TemporaryDirectory() as folder:
            course = algorithm.train(settings, 1, Path(folder))
            finished(course, lambda row: rows.append((time.perf_counter() - begun, row)))
            seconds = time.perf_counter() - begun
    except KeyboardInterrupt:
        stopped("stopped")
    except REFUSALS as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    steps = int(rows[-1][1]["steps"])
    measured = {
        "learner": algorithm.__name__.rsplit(".", 1)[-1],
        **algorithm.about(settings),
        "num_envs": settings.num_envs,
        "steps": steps,
        "seconds": round(seconds, 3),
        "first_iteration_s": round(rows[0][0], 3),
        "steps_per_s": round(steps / seconds, 1),
    }
    print(json.dumps(measured), flush=True)
    return measured


def train_as_told(algorithm: Algorithm, settings: Any, args: argparse.Namespace) -> None:
    """What the command's arguments ask for."""
    if args.bench:
        bench(algorithm, settings)
    else:
        train_all(algorithm, settings, args.seeds, args.out, args.ray)


def parser(algorithm: Algorithm, **defaults: int) -> argparse.ArgumentParser:
    """The arguments that all learners have."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {algorithm.__name__}", description=str(algorithm.__doc__).split("\n\n")[0]
    )
    parser.add_argument("--steps", type=int, default=defaults["steps"], help="of all environments together")
    parser.add_argument("--num-envs", type=int, default=defaults["num_envs"])
    parser.add_argument("--seeds", type=int, default=1, help="how many trainings: of seed 1, 2, ...")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=folder, help="a folder; a training that is there goes on")
    what.add_argument("--bench", action="store_true",
                      help="write nothing: time a training of seed 1, and print one JSON object")  # fmt: skip
    add_ray(parser)
    return parser


def add_ray(parser: argparse.ArgumentParser) -> None:
    """Whether Ray's workers train."""
    parser.add_argument("--ray", nargs="?", const=HERE, metavar="ADDRESS",
                        help="train all seeds at once on Ray's workers, of the cluster at ADDRESS or begun here")  # fmt: skip


def add_environment(parser: argparse.ArgumentParser, preset: str | None = None) -> None:
    """What the learners have that train in any environment; ``preset`` says what a preset is to a learner for flows."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--env", help="a Gymnasium id, as anabranch/C3-Single-v0")
    if preset is not None:
        which.add_argument("--preset", help=preset)
    parser.add_argument("--options", type=options, default={}, help='of the environment, as {"actuator": "rate"}')


def options(text: str) -> dict[str, Any]:
    """An environment's options, as JSON has them."""
    try:
        found = json.loads(text)
    except ValueError as error:
        said = f'{text} is no JSON, must be an object as {{"actuator": "rate"}}: {error}'
        raise argparse.ArgumentTypeError(said) from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f'{text} is no object, must be one as {{"actuator": "rate"}}')
    return found


def folder(text: str) -> Path:
    """Where something is to be written."""
    if not text:
        raise argparse.ArgumentTypeError("is empty, must be a folder")
    return Path(text)


def parsed(parser: argparse.ArgumentParser, arguments: list[str] | None, counts: tuple[str, ...] = ()) -> argparse.Namespace:
    """The arguments; those that must be 1 or more are."""
    args = parser.parse_args(arguments)
    for name in ("steps", "num_envs", "seeds", *counts):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(args, name)}, must be 1 or more")
    if args.seeds > MOST_SEED:
        parser.error(f"--seeds is {args.seeds}, must be {MOST_SEED} or less: episodes that show what was learned come after those")
    if args.bench and (args.ray is not None or args.seeds > 1):
        parser.error("--bench times one training on this machine: leave --seeds and --ray away")
    for name in ("steps", *counts):
        if getattr(args, name) > MOST_STEPS:
            parser.error(f"--{name.replace('_', '-')} is {getattr(args, name)}, must be {MOST_STEPS} or less")
    if getattr(args, "env", "") is None:
        if (preset := args.options.get("preset", args.preset)) != args.preset:
            parser.error(f"--preset is {args.preset}, and --options says {json.dumps(preset)}: give one of them")
        args.env, args.options = "anabranch/Flow-v0", {"preset": args.preset, **args.options}
    return args
