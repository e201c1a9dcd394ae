"""Deep Q-learning (Mnih et al. 2015) with double estimation (van Hasselt et al. 2016), in plain JAX on processors.

For environments in which an agent chooses one of a few actions: ``anabranch/Flow-v0`` with the decisions of LearningCC or
Xavier, whose papers use a bandit and a linear SARSA. A network says what each action is worth from here on; it is moved
towards what was paid and what the next state is worth, by steps that were taken at any time before::

    a* = argmax_a Q(s', a)                                              chosen by the network
    y = (r - mean) / deviation + gamma Q'(s', a*)      Q' = 0 after an end       valued by an older one
    loss = mean huber(Q(s, a) - y)

Acting is greedy but for a share ``epsilon`` of steps, which falls in a straight line. Mean and deviation of rewards are those of
the first rollout, which chooses at random: what all actions are paid alike would else have to be learned first. Where
episodes only end with the time, as there, it does not change which action is best. What a training depends on, and how it goes on, is as in
:mod:`anabranch.train.ppo`; the steps that it remembers are in the checkpoint, too.

::

    python -m anabranch.train.dqn --preset learningcc --steps 100000 --seeds 3 --out out/dqn
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces

from anabranch.train._curves import write_page
from anabranch.train.ppo import (
    CUT, EVALUATION_EPISODES, EVALUATION_SEED, HIDDEN, SEEDS_APART, Checkpoint, forward, layers, write,
)  # fmt: skip
from anabranch.vector import VectorEnv


@dataclass(frozen=True)
class Settings:
    """All that a training depends on, besides its seed."""

    preset: str
    steps: int = 100_000
    num_envs: int = 16
    rollout: int = 32
    """Steps of each environment between two times of learning."""
    anew: int = 8
    """Iterations between two checkpoints."""
    remembered: int = 50_000
    """Steps from which is learned: the newest."""
    batch: int = 128
    updates: int = 32
    """Between two rollouts."""
    renewal: int = 4
    """Iterations after which the older network is the present one."""
    rate: float = 1e-3
    gamma: float = 0.95
    epsilon: tuple[float, float] = (1.0, 0.05)
    """The share of random steps at first, and from half of the training on."""
    most_gradient: float = 10.0

    @property
    def iterations(self) -> int:
        """Rollouts, the last of which may go beyond ``steps``."""
        return -(-self.steps // (self.num_envs * self.rollout))


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
    def of(cls, size: int, row: int) -> Memory:
        numbers, rows = np.zeros(size, np.float32), np.zeros((size, row), np.float32)
        return cls(rows, np.zeros(size, np.int32), numbers, rows.copy(), numbers.copy(), np.zeros((), np.int32))

    def put(self, *steps: np.ndarray) -> Memory:
        """These in place of the oldest."""
        size, new = len(self.rewards), len(steps[0])
        places = (int(self.count) + np.arange(new)) % size
        for array, values in zip(self, steps):
            array[places] = values
        return self._replace(count=np.array(int(self.count) + new, np.int32))


class Learner:
    """The networks of one training, what it remembers, and what an update does."""

    def __init__(self, settings: Settings, envs: VectorEnv, seed: int) -> None:
        self.settings, self.choices = settings, int(envs.single_action_space.n)
        low, high = envs.single_observation_space.low, envs.single_observation_space.high
        self.normal = ((low + high) / 2, (high - low) / 2)
        self.key = jax.random.key(seed)
        row = len(low)
        self.parameters = layers(jax.random.fold_in(self.key, 1), (row, *HIDDEN, self.choices), 0.01, 0.0)
        self.older = self.parameters
        self.optimiser = optax.chain(optax.clip_by_global_norm(settings.most_gradient), optax.adam(settings.rate))
        self.state = self.optimiser.init(self.parameters)
        self.memory = Memory.of(settings.remembered, row)
        # Mean and deviation of rewards.
        self.paid = np.zeros(2, np.float32)
        self._values, self._update = jax.jit(self._make_values), jax.jit(self._make_update)

    @property
    def numbers(self) -> Any:
        """All that learning changes."""
        return self.parameters, self.older, self.state, tuple(self.memory), self.paid

    @numbers.setter
    def numbers(self, numbers: Any) -> None:
        self.parameters, self.older, self.state, memory, paid = numbers
        # Written to by hand: numpy's, and not JAX's, which can't be.
        self.memory, self.paid = Memory(*(np.array(part) for part in memory)), np.array(paid)

    def epsilon(self, iteration: int) -> float:
        """The share of random steps."""
        first, last = self.settings.epsilon
        return first + (last - first) * min(2 * iteration / self.settings.iterations, 1.0)

    def _make_values(self, parameters: Any, observations: jax.Array) -> jax.Array:
        mean, deviation = self.normal
        return forward(parameters, jnp.clip((observations - mean) / deviation, -CUT, CUT))

    def values(self, observations: np.ndarray) -> np.ndarray:
        """What each action is worth: ``(n, choices)``."""
        return np.asarray(self._values(self.parameters, observations))

    def act(self, observations: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """The best action of each, or now and then any."""
        count = len(observations)
        drawn, is_random = rng.integers(self.choices, size=count), rng.random(count) < epsilon
        return np.where(is_random, drawn, self.values(observations).argmax(1))

    def remember(self, *steps: np.ndarray) -> None:
        """Steps from which is learned from now on."""
        if self.memory.count == 0:
            self.paid = np.array([steps[2].mean(), max(float(steps[2].std()), 1e-6)], np.float32)
        self.memory = self.memory.put(*steps)

    def _loss(self, parameters: Any, older: Any, batch: Any, paid: jax.Array) -> jax.Array:
        observations, actions, rewards, following, goes_on = batch
        best = self._make_values(parameters, following).argmax(-1)
        worth = jnp.take_along_axis(self._make_values(older, following), best[:, None], -1)[:, 0]
        wanted = jax.lax.stop_gradient((rewards - paid[0]) / paid[1] + self.settings.gamma * goes_on * worth)
        values = jnp.take_along_axis(self._make_values(parameters, observations), actions[:, None], -1)[:, 0]
        return optax.huber_loss(values, wanted).mean()

    def _make_update(self, parameters: Any, older: Any, state: Any, batches: Any, paid: jax.Array) -> Any:
        def one(carry: Any, batch: Any) -> Any:
            parameters, state = carry
            loss, gradient = jax.value_and_grad(self._loss)(parameters, older, batch, paid)
            changes, state = self.optimiser.update(gradient, state, parameters)
            return (optax.apply_updates(parameters, changes), state), loss

        (parameters, state), losses = jax.lax.scan(one, (parameters, state), batches)
        return parameters, state, losses.mean()

    def learn(self, iteration: int, rng: np.random.Generator) -> float:
        """From what it remembers; the mean loss."""
        settings = self.settings
        known = min(int(self.memory.count), settings.remembered)
        places = rng.integers(known, size=(settings.updates, settings.batch))
        batches = tuple(part[places] for part in self.memory[:-1])
        self.parameters, self.state, loss = self._update(self.parameters, self.older, self.state, batches, self.paid)
        if (iteration + 1) % settings.renewal == 0:
            self.older = self.parameters
        return float(loss)


def make(settings: Settings, count: int, **options: Any) -> VectorEnv:
    """Environments in which an agent chooses.

    Raises:
        ValueError: An action of the preset's is a number, not a choice.
    """
    envs = gymnasium.make_vec("anabranch/Flow-v0", count, preset=settings.preset, **options).unwrapped
    if not isinstance(envs.single_action_space, spaces.Discrete):
        raise ValueError(f'an action of the preset "{settings.preset}" is no choice of a few: learningcc and xavier have those')
    return envs


def evaluate(settings: Settings, act: Callable[[np.ndarray], np.ndarray]) -> float:
    """Mean reward of a step in episodes that no training has seen."""
    envs = make(settings, EVALUATION_EPISODES, autoreset_mode="Disabled")
    observations, _ = envs.reset(seed=EVALUATION_SEED)
    over, total, steps = np.zeros(EVALUATION_EPISODES, bool), 0.0, 0
    while not over.all():
        observations, rewards, terminated, truncated, _ = envs.step(act(observations))
        total += float(rewards[~over].sum(dtype=np.float64))
        steps += int((~over).sum())
        over |= terminated | truncated
    return total / steps


def train(settings: Settings, seed: int, folder: Path, say: Callable[[dict[str, float]], None] = lambda row: None) -> Learner:
    """Trains, or goes on from the folder's checkpoint; ``network.npz`` has the network's layers at the end.

    ``say`` is called with a row of the curve after each iteration.
    """
    folder.mkdir(parents=True, exist_ok=True)
    envs = make(settings, settings.num_envs)
    learner, checkpoint = Learner(settings, envs, seed), Checkpoint(folder, settings, seed)
    begin, rows = checkpoint.load(learner)
    for iteration in range(begin, settings.iterations):
        rng = np.random.default_rng([seed, iteration])
        if iteration % settings.anew == 0:
            first = seed * SEEDS_APART + iteration // settings.anew * settings.num_envs
            observations, _ = envs.reset(seed=first)
            was_over = np.zeros(settings.num_envs, bool)
        epsilon, total, count = learner.epsilon(iteration), 0.0, 0
        taken: list[tuple[np.ndarray, ...]] = []
        for _ in range(settings.rollout):
            actions = learner.act(observations, epsilon, rng)
            following, rewards, terminated, truncated, _ = envs.step(actions)
            # The step after an end only begins the next episode.
            is_step = ~was_over
            taken.append(tuple(part[is_step] for part in (observations, actions, rewards, following, 1.0 - terminated)))
            total, count = total + float(rewards[is_step].sum(dtype=np.float64)), count + int(is_step.sum())
            observations, was_over = following, terminated | truncated
        learner.remember(*(np.concatenate(parts) for parts in zip(*taken)))
        loss = learner.learn(iteration, rng)
        steps = (iteration + 1) * settings.num_envs * settings.rollout
        rows.append({"steps": steps, "reward_per_step": total / max(count, 1), "loss": loss, "epsilon": epsilon})
        if (iteration + 1) % settings.anew == 0 or iteration + 1 == settings.iterations:
            checkpoint.save(learner, iteration + 1, rows)
        say(rows[-1])
    named = {f"{kind}{place + 1}": np.asarray(part) for place, layer in enumerate(learner.parameters) for kind, part in zip("wb", layer)}
    np.savez(folder / "network.npz", **named)
    return learner


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m anabranch.train.dqn", description=__doc__.split("\n\n")[0])
    parser.add_argument("--preset", default="learningcc", help="of anabranch/Flow-v0: learningcc or xavier")
    parser.add_argument("--steps", type=int, default=Settings.steps, help="of all environments together")
    parser.add_argument("--num-envs", type=int, default=Settings.num_envs)
    parser.add_argument("--seeds", type=int, default=1, help="how many trainings: of seed 1, 2, ...")
    parser.add_argument("--out", type=Path, required=True, help="a folder; a training that is there goes on")
    told = parser.parse_args(arguments)
    for name in ("steps", "num_envs", "seeds"):
        if getattr(told, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(told, name)}, must be 1 or more")
    settings = Settings(told.preset, told.steps, told.num_envs)
    reached: dict[str, float] = {}
    try:
        choices = int(make(settings, 1).single_action_space.n)
        for choice in range(choices):
            reached[f"always {choice}"] = evaluate(settings, lambda seen: np.full(len(seen), choice))
        rng = np.random.default_rng(EVALUATION_SEED)
        reached["at random"] = evaluate(settings, lambda seen: rng.integers(choices, size=len(seen)))
        for seed in range(1, told.seeds + 1):
            begun = time.monotonic()

            def say(row: dict[str, float]) -> None:
                if sys.stderr.isatty():
                    line = f"seed {seed}  {row['steps']:>9} steps  reward {row['reward_per_step']:9.4f} a step"
                    print(f"\r{line}  {time.monotonic() - begun:5.1f} s", end="", file=sys.stderr, flush=True)

            learner = train(settings, seed, told.out / f"seed-{seed}", say)
            if sys.stderr.isatty():
                print(file=sys.stderr)
            reached[f"seed-{seed}"] = evaluate(settings, lambda seen: learner.values(seen).argmax(1))
            print(f"seed {seed}: {reached[f'seed-{seed}']:.4f} a step after {time.monotonic() - begun:.1f} s", flush=True)
    except KeyboardInterrupt:
        sys.exit("\nstopped; the same command goes on from the last checkpoint")
    except (ValueError, OSError, gymnasium.error.Error) as error:
        sys.exit(f"error: {error}")
    results = {"settings": asdict(settings), "reward_per_step": reached}
    write(told.out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    write_page(told.out, "anabranch.train.dqn", {"preset": settings.preset, "steps": str(settings.steps)}, reached, "reward of a step")
    for who, reward in reached.items():
        print(f"{who}: {reward:.4f}")


if __name__ == "__main__":
    main()
