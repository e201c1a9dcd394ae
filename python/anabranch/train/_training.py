"""What learners have in common: networks, checkpoints, and trainings of several seeds."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from anabranch._native import RunError
from anabranch.policy import Memory as Memories
from anabranch.policy import Policy
from anabranch.train._curves import write_page
from anabranch.vector import VectorEnv

HIDDEN = (64, 64)
# A feature that is scaled by its range is cut here, as Rust's policies do it.
CUT = 10.0
# Episodes that show what was learned begin with this seed: no training gets there.
EVALUATION_SEED = 2**62
EVALUATION_EPISODES = 16
# Between the first seeds of two trainings, far more than one uses.
SEEDS_APART = 2**32

Row = dict[str, float]
"""Of a learning curve."""

Course = Generator[Row, None, Any]
"""A training as it goes: a row of its curve after each iteration, and at the end what was learned."""

Network = list[tuple[jax.Array, jax.Array]]


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


class Shape(NamedTuple):
    """How an observation is laid out: ``history`` times ``hosts`` times ``features``."""

    history: int
    hosts: int
    features: int

    @classmethod
    def of(cls, envs: VectorEnv) -> Shape:
        return cls(envs._worlds.native.history, envs.hosts, len(envs.features))

    @property
    def row(self) -> int:
        """Numbers that are seen of a host."""
        return self.history * self.features

    def normal(self, envs: VectorEnv) -> tuple[np.ndarray, np.ndarray]:
        """The middle and half the width of each feature's range, for a host's row."""
        low, high = (np.array([getattr(one, end) for one in envs.features], np.float32) for end in ("low", "high"))
        middle, half = (np.tile(part, self.history) for part in ((low + high) / 2, (high - low) / 2))
        return middle, half


def layers(key: jax.Array, sizes: tuple[int, ...], last: float, bias: float) -> Network:
    """Orthogonal weights; small ones in the last layer, whose answer is ``bias`` at first."""
    made = []
    for place, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        is_last = place + 2 == len(sizes)
        scale = last if is_last else 2**0.5
        weights = jax.nn.initializers.orthogonal(scale)(jax.random.fold_in(key, place), (inputs, outputs), jnp.float32)
        made.append((weights, jnp.full(outputs, bias if is_last else 0.0, jnp.float32)))
    return made


def forward(network: Network, x: jax.Array) -> jax.Array:
    for weights, biases in network[:-1]:
        x = jnp.tanh(x @ weights + biases)
    weights, biases = network[-1]
    return x @ weights + biases


def arrays(network: Network) -> list[tuple[np.ndarray, np.ndarray]]:
    """Its layers as Rust takes them."""
    return [(np.ascontiguousarray(weights), np.ascontiguousarray(biases)) for weights, biases in jax.device_get(network)]


def scaled(observations: jax.Array, normal: Any) -> jax.Array:
    """Each number by its feature's range, as :class:`anabranch.policy.Policy` does it."""
    mean, deviation = normal
    return jnp.clip((observations - mean) / deviation, -CUT, CUT)


def rows(observations: jax.Array, shape: Shape) -> jax.Array:
    """``(..., hosts, row)``: what is seen of each host, the newest first."""
    lead = observations.shape[:-1]
    each = jnp.moveaxis(observations.reshape(*lead, *shape), -2, -3)
    return each.reshape(*lead, shape.hosts, shape.row)


def scaled_rows(observations: jax.Array, normal: Any, shape: Shape) -> jax.Array:
    """What a policy that is each host's sees."""
    return scaled(rows(observations, shape), normal)


def scaled_whole(observations: jax.Array, normal: Any, shape: Shape) -> jax.Array:
    """``(..., observation)``: all that is seen."""
    lead = observations.shape[:-1]
    mean, deviation = (part.reshape(shape.history, 1, shape.features) for part in normal)
    return scaled(observations.reshape(*lead, *shape), (mean, deviation)).reshape(*lead, -1)


class Known(NamedTuple):
    """The least and the most that a host's row held."""

    least: np.ndarray
    most: np.ndarray

    @classmethod
    def nothing(cls, shape: Shape) -> Known:
        return cls(np.full(shape.row, np.inf, np.float32), np.full(shape.row, -np.inf, np.float32))

    def noted(self, observations: np.ndarray, shape: Shape) -> Known:
        """With these observations."""
        seen = observations.reshape(-1, *shape)
        least, most = seen.min((0, 2)).ravel(), seen.max((0, 2)).ravel()
        return Known(np.minimum(self.least, least), np.maximum(self.most, most))

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self.least), np.asarray(self.most)


class Memory(NamedTuple):
    """Steps that were taken; each array has a row for each, and ``count`` says how many there ever were."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    following: np.ndarray
    goes_on: np.ndarray
    """0 after an end, 1 else, also after a time limit."""
    count: np.ndarray

    @classmethod
    def of(cls, size: int, row: int, action: np.ndarray) -> Memory:
        """Of ``size`` steps; an action is like ``action``."""
        numbers, rows = np.zeros(size, np.float32), np.zeros((size, row), np.float32)
        actions = np.zeros((size, *action.shape), action.dtype)
        return cls(rows, actions, numbers, rows.copy(), numbers.copy(), np.zeros((), np.int32))

    def put(self, *steps: np.ndarray) -> Memory:
        """These in place of the oldest."""
        size, new = len(self.rewards), len(steps[0])
        places = (int(self.count) + np.arange(new)) % size
        for array, values in zip(self, steps):
            array[places] = values
        return self._replace(count=np.array(int(self.count) + new, np.int32))

    def drawn(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, ...]:
        """Some of them, each as likely as the others, in arrays that begin with ``shape``."""
        places = rng.integers(min(int(self.count), len(self.rewards)), size=shape)
        return tuple(part[places] for part in self[:-1])


class Walk:
    """Environments that are stepped one by one, for a learner that acts from Python."""

    def __init__(self, envs: VectorEnv, seed: int) -> None:
        self.envs, self.seed = envs, seed

    def begin(self, checkpoint: int) -> None:
        """All environments anew, with seeds that follow from the training's and the number of checkpoints before."""
        self.observations, _ = self.envs.reset(seed=self.seed * SEEDS_APART + checkpoint * self.envs.num_envs)
        self.was_over = np.zeros(self.envs.num_envs, bool)

    def take(self, count: int, act: Callable[[np.ndarray], np.ndarray]) -> tuple[tuple[np.ndarray, ...], float]:
        """``count`` steps of each, as :class:`Memory` has them, and their mean reward."""
        taken: list[tuple[np.ndarray, ...]] = []
        for _ in range(count):
            actions = act(self.observations)
            following, rewards, terminated, truncated, _ = self.envs.step(actions)
            # The step after an end only begins the next episode.
            is_step = ~self.was_over
            parts = (self.observations, actions, rewards, following, np.float32(1) - terminated)
            taken.append(tuple(part[is_step] for part in parts))
            self.observations, self.was_over = following, terminated | truncated
        steps = tuple(np.concatenate(parts) for parts in zip(*taken))
        return steps, float(steps[2].sum(dtype=np.float64) / max(len(steps[2]), 1))


def evaluated(envs: VectorEnv, act: Callable[[VectorEnv, np.ndarray], np.ndarray]) -> float:
    """Mean reward of a step in episodes that no training has seen, until all are over."""
    observations, _ = envs.reset(seed=EVALUATION_SEED)
    over, total, steps = np.zeros(envs.num_envs, bool), 0.0, 0
    while not over.all():
        observations, rewards, terminated, truncated, _ = envs.step(act(envs, observations))
        total += float(rewards[~over].sum(dtype=np.float64))
        steps += int((~over).sum())
        over |= terminated | truncated
    return total / steps


def acting(policy: Policy) -> Callable[[VectorEnv, np.ndarray], np.ndarray]:
    """What a policy does in :func:`evaluated`, where all episodes begin together and each is one."""
    memories = [Memories() for _ in range(EVALUATION_EPISODES)]

    def act(envs: VectorEnv, observations: np.ndarray) -> np.ndarray:
        return np.stack([policy.rates(envs, row, memory) for row, memory in zip(observations, memories, strict=True)])

    return act


def made(settings: Any, count: int, **options: Any) -> VectorEnv:
    """Environments of a training's id and options."""
    return gymnasium.make_vec(settings.env, count, **settings.options, **options).unwrapped


def against_baselines(settings: Any) -> dict[str, float]:
    """What the rule and the oracle get."""
    envs = made(settings, EVALUATION_EPISODES, autoreset_mode="Disabled")
    return {who: evaluated(envs, lambda envs, _: envs.told_by(who)) for who in ("rule", "oracle")}


def write(path: Path, data: bytes) -> None:
    """All of it or nothing, also when the machine stops."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


class Checkpoint:
    """Where a training stands: its numbers, and what it was told to do."""

    def __init__(self, folder: Path, settings: Any, seed: int) -> None:
        self.settings = settings
        self.path = folder / "checkpoint.npz"
        self.curve = folder / "curve.csv"
        self.told = json.loads(json.dumps({"version": 3, "seed": seed, **asdict(settings)}))

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
        about = json.dumps({"told": self.told, "iteration": iteration, "rows": rows})
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
        """Whether a training that is there was told the same.

        Raises:
            ValueError: It was not; it is said what differs.
        """
        if self.path.exists():
            with np.load(self.path, allow_pickle=False) as file:
                self._checked(file)

    def _checked(self, file: Any) -> dict[str, Any]:
        about = json.loads(str(file["about"]))
        for name, told in self.told.items():
            if about["told"].get(name) != told:
                before = about["told"].get(name)
                raise ValueError(
                    f"{self.path}: {name} was {before} in the training that is there, and is {told} now: "
                    "go on with the same, or give another --out"
                )
        return about

    def load(self, learner: Any) -> tuple[int, list[Row]]:
        """Into the learner; iterations that were done, and the curve until there."""
        if not self.path.exists():
            return 0, []
        with np.load(self.path, allow_pickle=False) as file:
            about = self._checked(file)
            tree = jax.tree.structure(learner.numbers)
            numbers = [jnp.asarray(file[f"n{place}"]) for place in range(tree.num_leaves)]
        learner.numbers = jax.tree.unflatten(tree, numbers)
        return about["iteration"], about["rows"]


def finished(course: Course, say: Callable[[Row], None] = lambda row: None) -> Any:
    """Goes through a training; what was learned. ``say`` is called with each row."""
    while True:
        try:
            row = next(course)
        except StopIteration as end:
            return end.value
        say(row)


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


def train_all(algorithm: Algorithm, settings: Any, seeds: int, out: Path, ray: str | None = None) -> dict[str, Any]:
    """Trainings of the seeds 1, 2, ..., each in its folder; what they reached is written into ``out`` and given back.

    They go one after the other, or at once by Ray's workers where ``ray`` says which: :data:`HERE`, or an address.
    """
    results: dict[str, Any] = {"settings": asdict(settings)}
    try:
        results["reward_per_step"] = reached = algorithm.baselines(settings)
        trainings = one_by_one(algorithm, settings, seeds, out)
        if ray is not None:
            from anabranch.train import _on_ray

            trainings = _on_ray.train(algorithm, settings, seeds, out, None if ray == HERE else ray)
        for seed, reward in trainings:
            reached[f"seed-{seed}"] = reward
    except KeyboardInterrupt:
        sys.exit("\nstopped; the same command goes on from the last checkpoint")
    except (ValueError, OSError, RunError, ModuleNotFoundError, gymnasium.error.Error) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    out.mkdir(parents=True, exist_ok=True)
    write(out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    about = {**algorithm.about(settings), "steps": str(settings.steps)}
    write_page(out, algorithm.__name__, about, reached, "reward of a step")
    for who, reward in reached.items():
        if not who.startswith("seed-"):
            print(f"{who}: {reward:.4f}", flush=True)
    return results


def parser(algorithm: Algorithm, **defaults: int) -> argparse.ArgumentParser:
    """The arguments that all learners have."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {algorithm.__name__}", description=str(algorithm.__doc__).split("\n\n")[0]
    )
    parser.add_argument("--steps", type=int, default=defaults["steps"], help="of all environments together")
    parser.add_argument("--num-envs", type=int, default=defaults["num_envs"])
    parser.add_argument("--seeds", type=int, default=1, help="how many trainings: of seed 1, 2, ...")
    parser.add_argument("--out", type=Path, required=True, help="a folder; a training that is there goes on")
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
    parser.add_argument("--options", type=json.loads, default={}, help='of the environment, as {"actuator": "rate"}')


def parsed(parser: argparse.ArgumentParser, arguments: list[str] | None, counts: tuple[str, ...] = ()) -> argparse.Namespace:
    """What was told; what must be 1 or more is."""
    told = parser.parse_args(arguments)
    for name in ("steps", "num_envs", "seeds", *counts):
        if getattr(told, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(told, name)}, must be 1 or more")
    if not isinstance(getattr(told, "options", {}), dict):
        parser.error("--options must be an object of JSON")
    if getattr(told, "env", "") is None:
        told.env, told.options = "anabranch/Flow-v0", {"preset": told.preset, **told.options}
    return told
