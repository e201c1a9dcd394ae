"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347), in plain JAX on processors.

A normal distribution around a network's rates acts for a while; then the network moves towards actions that were worth
more than a second network had valued them, as long as it stays close to what has acted::

    delta_t = r_t + gamma V(s_t+1) - V(s_t)                              V = 0 after an end, not after a time limit
    A_t = delta_t + gamma lambda A_t+1                                   not past an episode's end
    loss = -mean min(ratio A, clip(ratio, 1 - e, 1 + e) A) + c_v mean (V - (A + V_old))^2 - c_e entropy

Acting is Rust's (``VectorEnv.rollout``). Each host's rate is said by the same network from that host's rows, so that a
policy serves any number of hosts; the value is of all that is seen. Features are scaled by their ranges.

Every ``anew`` iterations all environments begin anew, with seeds that follow from the training's and the iteration: only
there are checkpoints written. A training that goes on from one gives the same bytes as one that was never stopped.

::

    python -m anabranch.train.ppo --env anabranch/C3-Single-v0 --steps 500000 --seeds 3 --out out/ppo
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax

import anabranch
from anabranch.policy import Policy
from anabranch.train._curves import write_page
from anabranch.vector import VectorEnv

HIDDEN = (64, 64)
# Of the actions' noise at the beginning, and the least and the most that it may become.
FIRST_DEVIATION, LEAST_DEVIATION, MOST_DEVIATION = 0.3, 0.01, 1.0
CUT = 10.0
# Episodes that show what was learned begin with this seed: no training gets there.
EVALUATION_SEED = 2**62
EVALUATION_EPISODES = 16
# Between the first seeds of two trainings, far more than one uses.
SEEDS_APART = 2**32


@dataclass(frozen=True)
class Settings:
    """All that a training depends on, besides its seed."""

    env: str
    options: dict[str, Any] = field(default_factory=dict)
    steps: int = 500_000
    num_envs: int = 32
    rollout: int = 128
    """Steps of each environment between two updates."""
    anew: int = 8
    """Iterations between two checkpoints."""
    epochs: int = 4
    minibatches: int = 8
    rate: float = 1e-3
    """Of learning, at the beginning; it falls to 0 in a straight line."""
    gamma: float = 0.95
    """A host answers within a few steps: what lies further ahead than twenty is not its action's."""
    trace: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    most_gradient: float = 0.5
    keep: tuple[int, ...] = ()
    """Steps after which the policy is kept as ``steps-N.safetensors``: after the first update that has seen as many."""

    @property
    def iterations(self) -> int:
        """Rollouts, the last of which may go beyond ``steps``."""
        return -(-self.steps // (self.num_envs * self.rollout))


class Batch(NamedTuple):
    """What the learner sees of a rollout; each array begins with ``(num_envs, steps)`` until it is flattened."""

    observations: jax.Array
    actions: jax.Array
    log_probability: jax.Array
    advantages: jax.Array
    returns: jax.Array
    counts: jax.Array
    """1, or 0 where nothing was done: the step after an end only begins the next episode."""


class Shape(NamedTuple):
    """How an observation is laid out: ``history`` times ``hosts`` times ``features``."""

    history: int
    hosts: int
    features: int


def layers(key: jax.Array, sizes: tuple[int, ...], last: float, bias: float) -> list[tuple[jax.Array, jax.Array]]:
    """Orthogonal weights; small ones in the last layer, whose answer is ``bias`` at first."""
    made = []
    for place, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        is_last = place + 2 == len(sizes)
        scale = last if is_last else 2**0.5
        weights = jax.nn.initializers.orthogonal(scale)(jax.random.fold_in(key, place), (inputs, outputs), jnp.float32)
        made.append((weights, jnp.full(outputs, bias if is_last else 0.0, jnp.float32)))
    return made


def forward(network: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    for weights, biases in network[:-1]:
        x = jnp.tanh(x @ weights + biases)
    weights, biases = network[-1]
    return x @ weights + biases


def scaled(observations: jax.Array, normal: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Each number by its feature's range, as :class:`anabranch.policy.Policy` does it."""
    mean, deviation = normal
    return jnp.clip((observations - mean) / deviation, -CUT, CUT)


def rates(parameters: Any, observations: jax.Array, normal: Any, shape: Shape) -> jax.Array:
    """``(..., hosts)``: what the policy says before noise."""
    lead = observations.shape[:-1]
    rows = jnp.moveaxis(observations.reshape(*lead, *shape), -2, -3)
    rows = rows.reshape(*lead, shape.hosts, shape.history * shape.features)
    return forward(parameters["policy"], scaled(rows, normal))[..., 0]


def value(parameters: Any, observations: jax.Array, normal: Any, shape: Shape) -> jax.Array:
    """``(...)``: what is to be expected from here on."""
    lead = observations.shape[:-1]
    mean, deviation = (part.reshape(shape.history, 1, shape.features) for part in normal)
    seen = scaled(observations.reshape(*lead, *shape), (mean, deviation))
    return forward(parameters["value"], seen.reshape(*lead, -1))[..., 0]


def log_probability(parameters: Any, means: jax.Array, actions: jax.Array) -> jax.Array:
    """Of all hosts' actions together."""
    log_deviation = parameters["log_deviation"]
    each = -0.5 * ((actions - means) / jnp.exp(log_deviation)) ** 2 - log_deviation - 0.5 * jnp.log(2 * jnp.pi)
    return each.sum(-1)


class Learner:
    """The networks of one training, and what an update does to them."""

    def __init__(self, settings: Settings, envs: VectorEnv, seed: int) -> None:
        self.settings = settings
        self.shape = shape = Shape(envs._worlds.native.history, envs.hosts, len(envs.features))
        low, high = (np.array([getattr(one, end) for one in envs.features], np.float32) for end in ("low", "high"))
        self.normal = tuple(np.tile(part, shape.history) for part in ((low + high) / 2, (high - low) / 2))
        self.key = jax.random.key(seed)
        row = shape.history * shape.features
        self.parameters = {
            "policy": layers(jax.random.fold_in(self.key, 1), (row, *HIDDEN, 1), 0.01, 0.5),
            "value": layers(jax.random.fold_in(self.key, 2), (row * shape.hosts, *HIDDEN, 1), 1.0, 0.0),
            "log_deviation": jnp.full((), np.log(FIRST_DEVIATION), jnp.float32),
        }
        updates = settings.iterations * settings.epochs * settings.minibatches
        self.optimiser = optax.chain(
            optax.clip_by_global_norm(settings.most_gradient),
            optax.adam(optax.linear_schedule(settings.rate, 0.0, updates), eps=1e-5),
        )
        self.state = self.optimiser.init(self.parameters)
        self.known = (np.full(row, np.inf, np.float32), np.full(row, -np.inf, np.float32))
        self._batch, self._update = jax.jit(self._make_batch), jax.jit(self._make_update)

    @property
    def numbers(self) -> Any:
        """All that learning changes."""
        return self.parameters, self.state, self.known

    @numbers.setter
    def numbers(self, numbers: Any) -> None:
        self.parameters, self.state, self.known = numbers

    @property
    def deviation(self) -> float:
        """Of the noise on actions."""
        return float(np.exp(np.float32(self.parameters["log_deviation"])))

    def policy(self, is_trained: bool = False) -> Policy:
        """What acts: the same numbers, in Rust; a trained one knows what it has seen."""
        network = [(np.ascontiguousarray(weights), np.ascontiguousarray(biases))
                   for weights, biases in jax.device_get(self.parameters["policy"])]
        known = tuple(np.asarray(part) for part in self.known) if is_trained else None
        return Policy(network, mean=self.normal[0], deviation=self.normal[1], known=known)

    def note(self, observations: np.ndarray) -> None:
        """The least and the most that a host's row held."""
        rows = observations.reshape(-1, *self.shape)
        least, most = (np.minimum(self.known[0], rows.min((0, 2)).ravel()), np.maximum(self.known[1], rows.max((0, 2)).ravel()))
        self.known = (least, most)

    def _make_batch(self, parameters: Any, observations: Any, actions: Any, rewards: Any, terminated: Any,
                    truncated: Any, next: Any, was_over: Any) -> Batch:  # fmt: skip
        settings = self.settings
        over = terminated | truncated
        begins = jnp.concatenate([was_over[:, None], over[:, :-1]], 1)
        values = value(parameters, jnp.concatenate([observations, next[:, None]], 1), self.normal, self.shape)
        # After a time limit the next observation is the episode's last: what was cut off is worth its value.
        delta = rewards + settings.gamma * jnp.where(terminated, 0.0, values[:, 1:]) - values[:, :-1]

        def back(following: jax.Array, now: Any) -> Any:
            delta, over, begins = now
            advantage = delta + settings.gamma * settings.trace * jnp.where(over, 0.0, following)
            return (advantage := jnp.where(begins, 0.0, advantage)), advantage

        _, advantages = jax.lax.scan(back, jnp.zeros(len(rewards)), (delta.T, over.T, begins.T), reverse=True)
        means = rates(parameters, observations, self.normal, self.shape)
        probability = log_probability(parameters, means, actions)
        returns = advantages.T + values[:, :-1]
        batch = Batch(observations, actions, probability, advantages.T, returns, (~begins).astype(jnp.float32))
        return Batch(*(part.reshape(-1, *part.shape[2:]) for part in batch))

    def _loss(self, parameters: Any, batch: Batch) -> jax.Array:
        settings = self.settings

        def mean(values: jax.Array) -> jax.Array:
            return (values * batch.counts).sum() / jnp.maximum(batch.counts.sum(), 1.0)

        advantages = batch.advantages - mean(batch.advantages)
        advantages /= jnp.sqrt(mean(advantages**2)) + 1e-8
        means = rates(parameters, batch.observations, self.normal, self.shape)
        ratio = jnp.exp(log_probability(parameters, means, batch.actions) - batch.log_probability)
        cut = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
        gain = mean(jnp.minimum(ratio * advantages, cut * advantages))
        error = mean((value(parameters, batch.observations, self.normal, self.shape) - batch.returns) ** 2)
        entropy = self.shape.hosts * (parameters["log_deviation"] + 0.5 * jnp.log(2 * jnp.pi * jnp.e))
        return -gain + settings.value_weight * error - settings.entropy_weight * entropy

    def _make_update(self, parameters: Any, state: Any, batch: Batch, key: jax.Array) -> tuple[Any, Any]:
        count = len(batch.counts)
        size = count // self.settings.minibatches

        def epoch(carry: Any, key: jax.Array) -> Any:
            order = jax.random.permutation(key, count)[: size * self.settings.minibatches]
            return jax.lax.scan(one, carry, order.reshape(self.settings.minibatches, size))

        def one(carry: Any, places: jax.Array) -> Any:
            parameters, state = carry
            gradient = jax.grad(self._loss)(parameters, Batch(*(part[places] for part in batch)))
            changes, state = self.optimiser.update(gradient, state, parameters)
            parameters = optax.apply_updates(parameters, changes)
            low, high = np.log(np.float32([LEAST_DEVIATION, MOST_DEVIATION]))
            parameters["log_deviation"] = jnp.clip(parameters["log_deviation"], low, high)
            return (parameters, state), None

        (parameters, state), _ = jax.lax.scan(epoch, (parameters, state), jax.random.split(key, self.settings.epochs))
        return parameters, state

    def learn(self, iteration: int, seen: Any, was_over: np.ndarray) -> float:
        """From a rollout; the mean reward of its steps."""
        self.note(seen.observations)
        batch = self._batch(self.parameters, *seen, was_over)
        key = jax.random.fold_in(jax.random.fold_in(self.key, 3), iteration)
        self.parameters, self.state = self._update(self.parameters, self.state, batch, key)
        counts = np.asarray(batch.counts).reshape(seen.rewards.shape)
        return float((seen.rewards * counts).sum(dtype=np.float64) / counts.sum(dtype=np.float64))


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

    def __init__(self, folder: Path, settings: Settings, seed: int) -> None:
        self.path = folder / "checkpoint.npz"
        self.curve = folder / "curve.csv"
        self.told = json.loads(json.dumps({"version": 3, "seed": seed, **asdict(settings)}))

    def save(self, learner: Any, iteration: int, rows: list[dict[str, float]]) -> None:
        """Of a learner whose ``numbers`` are all that changes in it, as a tree of arrays."""
        numbers = jax.tree.leaves(jax.device_get(learner.numbers))
        about = json.dumps({"told": self.told, "iteration": iteration, "rows": rows})
        file = io.BytesIO()
        np.savez(file, about=np.array(about), **{f"n{place}": number for place, number in enumerate(numbers)})
        write(self.path, file.getvalue())
        text = io.StringIO()
        table = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write(self.curve, text.getvalue().encode())

    def load(self, learner: Any) -> tuple[int, list[dict[str, float]]]:
        """Into the learner; iterations that were done, and the curve until there."""
        if not self.path.exists():
            return 0, []
        with np.load(self.path, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            for name, told in self.told.items():
                if about["told"].get(name) != told:
                    before = about["told"].get(name)
                    raise ValueError(
                        f"{self.path}: {name} was {before} in the training that is there, and is {told} now: "
                        "go on with the same, or give another --out"
                    )
            tree = jax.tree.structure(learner.numbers)
            numbers = [jnp.asarray(file[f"n{place}"]) for place in range(tree.num_leaves)]
        learner.numbers = jax.tree.unflatten(tree, numbers)
        return about["iteration"], about["rows"]


def evaluate(settings: Settings, act: Callable[[VectorEnv, np.ndarray], np.ndarray]) -> float:
    """Mean reward of a step, without noise, in episodes that no training has seen."""
    envs = gymnasium.make_vec(settings.env, EVALUATION_EPISODES, autoreset_mode="Disabled", **settings.options).unwrapped
    observations, _ = envs.reset(seed=EVALUATION_SEED)
    over, total, steps = np.zeros(EVALUATION_EPISODES, bool), 0.0, 0
    while not over.all():
        actions = act(envs, observations)
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        total += float(rewards[~over].sum(dtype=np.float64))
        steps += int((~over).sum())
        over |= terminated | truncated
    return total / steps


def acting(policy: Policy) -> Callable[[VectorEnv, np.ndarray], np.ndarray]:
    return lambda envs, observations: np.stack([policy.rates(envs, row) for row in observations])


def train(settings: Settings, seed: int, folder: Path, say: Callable[[dict[str, float]], None] = lambda row: None) -> Policy:
    """Trains, or goes on from the folder's checkpoint; ``policy.safetensors`` is there at the end.

    ``say`` is called with a row of the curve after each iteration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    envs = gymnasium.make_vec(settings.env, settings.num_envs, **settings.options).unwrapped
    learner, checkpoint = Learner(settings, envs, seed), Checkpoint(folder, settings, seed)
    begin, rows = checkpoint.load(learner)
    out, each = envs.trajectory(settings.rollout), settings.num_envs * settings.rollout
    was_over = np.zeros(settings.num_envs, bool)
    for iteration in range(begin, settings.iterations):
        if iteration % settings.anew == 0:
            envs.reset(seed=seed * SEEDS_APART + iteration // settings.anew * settings.num_envs)
            was_over[:] = False
        deviation = learner.deviation
        seen = envs.rollout(learner.policy(), settings.rollout, deviation=deviation, out=out)
        reward = learner.learn(iteration, seen, was_over)
        for steps in settings.keep:
            if iteration * each < steps <= (iteration + 1) * each:
                save(learner, settings, seed, envs, folder / f"steps-{steps}.safetensors")
        was_over = (seen.terminated | seen.truncated)[:, -1].copy()
        rows.append({"steps": (iteration + 1) * each, "reward_per_step": reward, "deviation": deviation})
        if (iteration + 1) % settings.anew == 0 or iteration + 1 == settings.iterations:
            checkpoint.save(learner, iteration + 1, rows)
        say(rows[-1])
    return save(learner, settings, seed, envs, folder / "policy.safetensors")


def save(learner: Learner, settings: Settings, seed: int, envs: VectorEnv, path: Path) -> Policy:
    """What has been learned so far, with how it came to be."""
    policy = learner.policy(is_trained=True)
    trained = {"by": "anabranch.train.ppo", "version": anabranch.__version__, "seed": seed, **asdict(settings)}
    policy.save(path, envs, trained=trained)
    return policy


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m anabranch.train.ppo", description=__doc__.split("\n\n")[0])
    parser.add_argument("--env", required=True, help="a Gymnasium id, as anabranch/C3-Single-v0")
    parser.add_argument("--options", type=json.loads, default={}, help='of the environment, as {"actuator": "rate"}')
    parser.add_argument("--steps", type=int, default=Settings.steps, help="of all environments together")
    parser.add_argument("--num-envs", type=int, default=Settings.num_envs)
    parser.add_argument("--rollout", type=int, default=Settings.rollout, help="steps of each between two updates")
    parser.add_argument("--keep", type=int, nargs="*", default=[], metavar="STEPS",
                        help="keep the policy after so many steps, too, as steps-N.safetensors")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=1, help="how many trainings: of seed 1, 2, ...")
    parser.add_argument("--out", type=Path, required=True, help="a folder; a training that is there goes on")
    told = parser.parse_args(arguments)
    for name in ("steps", "num_envs", "rollout", "seeds"):
        if getattr(told, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(told, name)}, must be 1 or more")
    if not isinstance(told.options, dict):
        parser.error("--options must be an object of JSON")
    for steps in told.keep:
        if not 1 <= steps <= told.steps:
            parser.error(f"--keep is {steps}, must be from 1 to the training's {told.steps} steps")
    settings = Settings(told.env, told.options, told.steps, told.num_envs, told.rollout, keep=tuple(told.keep))
    results = train_all(settings, told.seeds, told.out)
    for who in ("rule", "oracle"):
        print(f"{who}: {results['reward_per_step'][who]:.4f}")


def train_all(settings: Settings, seeds: int, out: Path) -> dict[str, Any]:
    """Trainings of the seeds 1, 2, ..., each in its folder; what they reached is written into ``out`` and given back."""
    is_terminal = sys.stderr.isatty()
    results: dict[str, Any] = {"settings": asdict(settings), "reward_per_step": {}}
    try:
        for who in ("rule", "oracle"):
            results["reward_per_step"][who] = evaluate(settings, lambda envs, _: envs.told_by(who))
        for seed in range(1, seeds + 1):
            begun = time.monotonic()

            def say(row: dict[str, float]) -> None:
                if is_terminal:
                    line = f"seed {seed}  {row['steps']:>9} steps  reward {row['reward_per_step']:7.4f} a step"
                    print(f"\r{line}  {time.monotonic() - begun:5.1f} s", end="", file=sys.stderr, flush=True)

            policy = train(settings, seed, out / f"seed-{seed}", say)
            if is_terminal:
                print(file=sys.stderr)
            results["reward_per_step"][f"seed-{seed}"] = reward = evaluate(settings, acting(policy))
            print(f"seed {seed}: {reward:.4f} a step after {time.monotonic() - begun:.1f} s", flush=True)
    except KeyboardInterrupt:
        sys.exit("\nstopped; the same command goes on from the last checkpoint")
    except (ValueError, OSError, gymnasium.error.Error) as error:
        sys.exit(f"error: {error}")
    write(out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    about = {"environment": settings.env, "options": json.dumps(settings.options), "steps": str(settings.steps)}
    write_page(out, "anabranch.train.ppo", about, results["reward_per_step"], "reward of a step")
    return results


if __name__ == "__main__":
    main()
