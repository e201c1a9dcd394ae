"""Soft actor-critic (Haarnoja et al. 2018, arXiv 1801.01290 and 1812.05905), in plain JAX on processors.

For environments whose actions are numbers: rates of hosts, or one flow's pace. What acts is a normal distribution that is
squeezed into the action's range; it is paid for being random, too, by a price that keeps it as random as is wanted. Two
networks say what an action is worth, and the lesser is believed; they learn from steps that were taken at any time before::

    a = middle + half tanh(u)            u ~ N(m(s), d(s))              each host's from that host's rows
    y = r / deviation + gamma (min_i Q_i'(s', a') - alpha log pi(a'|s'))    Q' = 0 after an end; older networks
    critics: mean (Q_i(s, a) - y)^2
    actor: mean (alpha log pi(a|s) - min_i Q_i(s, a))
    price: mean -log(alpha) (log pi(a|s) + wanted)            wanted = -1 for each number of an action

``deviation`` is that of the rewards of the first rollout, which acts at random; the critics begin at what it was paid on
average, for good. Older networks follow the present ones slowly. What a training depends on, and how it goes on, is as in
:mod:`anabranch.train.ppo`; the steps that it remembers are in the checkpoint, too.

What was trained is a policy as those of :mod:`anabranch.train.ppo` are: what is likeliest, ``middle + half tanh(m)``,
is a network whose last layer multiplies and adds. That of a flow is for the controller ``policy``.

::

    python -m anabranch.train.sac --env anabranch/C3-Single-v0 --steps 100000 --seeds 3 --out out/sac
    python -m anabranch.train.sac --preset aurora --steps 100000 --out out/aurora
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces

from anabranch.policy import Policy
from anabranch.train._checkpoint import Checkpoint, write_layers
from anabranch.train._networks import HIDDEN, Known, Shape, arrays, forward, layers, scaled_rows, scaled_whole, unscaled
from anabranch.train._origin import origin
from anabranch.train._steps import (
    EVALUATION_EPISODES, EVALUATION_SEED, Memory, Walk, against_baselines, evaluated, made,
)  # fmt: skip
from anabranch.train._training import Course, add_environment, parsed, parser, train_as_told
from anabranch.vector import VectorEnv

# The least and the most that the logarithm of a deviation becomes, before it is squeezed.
DEVIATIONS = (-5.0, 2.0)


@dataclass(frozen=True)
class Settings:
    """All that a training depends on, besides its seed."""

    env: str
    options: dict[str, Any] = field(default_factory=dict)
    steps: int = 100_000
    num_envs: int = 16
    rollout: int = 32
    """Steps of each environment between two times of learning."""
    anew: int = 8
    """Iterations between two checkpoints."""
    at_random: int = 4
    """Iterations at first in which actions are drawn from all that there are, each as likely."""
    remembered: int = 50_000
    """Steps from which is learned: the newest."""
    batch: int = 256
    updates: int = 64
    """Between two rollouts."""
    rate: float = 1e-3
    gamma: float = 0.95
    follows: float = 0.005
    """The share of the way that older networks go to the present ones with each update."""

    @property
    def iterations(self) -> int:
        """Rollouts, the last of which may go beyond ``steps``."""
        return -(-self.steps // (self.num_envs * self.rollout))


class Learner:
    """The networks of one training, what it remembers, and what an update does."""

    def __init__(self, settings: Settings, envs: VectorEnv, seed: int) -> None:
        self.settings = settings
        self.shape = shape = Shape.of(envs)
        # A flow's features are ratios, which Aurora's authors give their network as they are; the cut at 10 is the
        # controller's, too.
        self.normal = unscaled(shape) if is_flow(settings) else shape.normal(envs)
        low, high = envs.single_action_space.low, envs.single_action_space.high
        self.range = ((high + low) / 2, (high - low) / 2)
        self.key = key = jax.random.key(seed)
        row = shape.row * shape.hosts
        critic = (row + shape.hosts, *HIDDEN, 1)
        self.parameters = {
            "actor": layers(jax.random.fold_in(key, 1), (shape.row, *HIDDEN, 2), 0.01, 0.0),
            "critics": [layers(jax.random.fold_in(key, place), critic, 1.0, 0.0) for place in (2, 3)],
            "log_alpha": jnp.zeros((), jnp.float32),
        }
        self.older = self.parameters["critics"]
        self.optimiser = optax.adam(settings.rate)
        self.state = self.optimiser.init(self.parameters)
        self.memory = Memory.of(settings.remembered, row, np.zeros(shape.hosts, np.float32))
        self.known = Known.nothing(shape)
        # The deviation of rewards.
        self.paid = np.ones((), np.float32)
        self._act, self._update = jax.jit(self._make_act), jax.jit(self._make_update)

    @property
    def numbers(self) -> Any:
        """All that learning changes."""
        return self.parameters, self.older, self.state, tuple(self.memory), self.known, self.paid

    @numbers.setter
    def numbers(self, numbers: Any) -> None:
        self.parameters, self.older, self.state, memory, self.known, paid = numbers
        # Written to by hand: numpy's, and not JAX's, which can't be.
        self.memory, self.paid = Memory(*(np.array(part) for part in memory)), np.array(paid)

    @property
    def alpha(self) -> float:
        """The price of not being random."""
        return float(np.exp(np.float32(self.parameters["log_alpha"])))

    def _make_act(self, actor: Any, observations: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """``(..., hosts)`` actions between -1 and 1, and the logarithm of their density there, of all hosts together."""
        said = forward(actor, scaled_rows(observations, self.normal, self.shape))
        mean, log_deviation = said[..., 0], jnp.clip(said[..., 1], *DEVIATIONS)
        noise = jax.random.normal(key, mean.shape)
        u = mean + jnp.exp(log_deviation) * noise
        log_density = -0.5 * noise**2 - log_deviation - 0.5 * jnp.log(2 * jnp.pi)
        # log(1 - tanh(u)^2), where tanh is close to 1, too.
        squeezed = 2 * (jnp.log(2.0) - u - jax.nn.softplus(-2 * u))
        return jnp.tanh(u), (log_density - squeezed).sum(-1)

    def _worth(self, critics: Any, observations: jax.Array, actions: jax.Array) -> list[jax.Array]:
        seen = jnp.concatenate([scaled_whole(observations, self.normal, self.shape), actions], -1)
        return [forward(critic, seen)[..., 0] for critic in critics]

    def act(self, observations: np.ndarray, iteration: int, rng: np.random.Generator) -> np.ndarray:
        """Actions in their range, drawn."""
        if iteration < self.settings.at_random:
            between = rng.uniform(-1.0, 1.0, (len(observations), self.shape.hosts))
        else:
            key = jax.random.key(int(rng.integers(2**31)))
            between = self._act(self.parameters["actor"], observations, key)[0]
        middle, half = self.range
        return np.asarray(middle + half * np.asarray(between, np.float32), np.float32)

    def remember(self, *steps: np.ndarray) -> None:
        """Steps from which is learned from now on."""
        observations, actions, rewards, following, goes_on = steps
        if self.memory.count == 0:
            self.paid = np.array(max(float(rewards.std()), 1e-6), np.float32)
            mean = float(rewards.mean()) / float(self.paid) / (1 - self.settings.gamma)
            for critic in self.parameters["critics"]:
                critic[-1] = (critic[-1][0], critic[-1][1] + np.float32(mean))
            self.older = self.parameters["critics"]
        middle, half = self.range
        self.memory = self.memory.put(observations, (actions - middle) / half, rewards, following, goes_on)
        self.known = self.known.noted(observations, self.shape)

    def _make_update(self, parameters: Any, older: Any, state: Any, batches: Any, paid: jax.Array, keys: jax.Array) -> Any:
        settings, shape = self.settings, self.shape

        def loss(parameters: Any, older: Any, batch: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
            observations, actions, rewards, following, goes_on = batch
            fixed = jax.lax.stop_gradient
            alpha = jnp.exp(parameters["log_alpha"])
            next_actions, next_density = self._make_act(parameters["actor"], following, jax.random.fold_in(key, 0))
            worth = jnp.minimum(*self._worth(older, following, next_actions)) - alpha * next_density
            wanted = fixed(rewards / paid + settings.gamma * goes_on * worth)
            error = sum(((said - wanted) ** 2).mean() for said in self._worth(parameters["critics"], observations, actions))
            own, density = self._make_act(parameters["actor"], observations, jax.random.fold_in(key, 1))
            # Critics say what actions are worth, and are not moved by it.
            actor = fixed(alpha) * density - jnp.minimum(*self._worth(fixed(parameters["critics"]), observations, own))
            price = -parameters["log_alpha"] * fixed(density - shape.hosts).mean()
            return error + actor.mean() + price, error

        def one(carry: Any, drawn: Any) -> Any:
            parameters, older, state = carry
            gradient, error = jax.grad(loss, has_aux=True)(parameters, older, *drawn)
            changes, state = self.optimiser.update(gradient, state, parameters)
            parameters = optax.apply_updates(parameters, changes)
            older = optax.incremental_update(parameters["critics"], older, settings.follows)
            return (parameters, older, state), error

        (parameters, older, state), errors = jax.lax.scan(one, (parameters, older, state), (batches, keys))
        return parameters, older, state, errors.mean()

    def learn(self, iteration: int, rng: np.random.Generator) -> float:
        """From what it remembers; the critics' mean error."""
        batches = self.memory.drawn(rng, (self.settings.updates, self.settings.batch))
        keys = jax.random.split(jax.random.fold_in(jax.random.fold_in(self.key, 4), iteration), self.settings.updates)
        self.parameters, self.older, self.state, error = self._update(
            self.parameters, self.older, self.state, batches, self.paid, keys
        )
        return float(error)

    def policy(self) -> Policy:
        """What is likeliest, in Rust: ``tanh`` is between the last layer but one and one that multiplies and adds."""
        *before, (weights, biases) = arrays(self.parameters["actor"])
        middle, half = (np.unique(part) for part in self.range)
        last = (half.reshape(1, 1).astype(np.float32), middle.astype(np.float32))
        network = [*before, (np.ascontiguousarray(weights[:, :1]), np.ascontiguousarray(biases[:1])), last]
        return Policy(network, mean=self.normal[0], deviation=self.normal[1], known=self.known.arrays)

    def likeliest(self, observations: np.ndarray) -> np.ndarray:
        """The same, in JAX."""
        said = forward(self.parameters["actor"], scaled_rows(observations, self.normal, self.shape))[..., 0]
        return np.asarray(self.range[0] + self.range[1] * np.tanh(said), np.float32)


def make(settings: Settings, count: int, **options: Any) -> VectorEnv:
    """Environments in which an agent says numbers.

    Raises:
        ValueError: An action of these is a choice.
    """
    envs = made(settings, count, **options)
    if not isinstance(envs.single_action_space, spaces.Box):
        raise ValueError(f"an action of {settings.env} is a choice of {envs.single_action_space.n}: anabranch.train.dqn is for those")
    return envs


def train(settings: Settings, seed: int, folder: Path) -> Course:
    """Trains, or goes on from the folder's checkpoint; what has learned is given back.

    At the end ``policy.safetensors`` is there; where the agent is a flow, for the controller ``policy``, and beside it the actor's
    layers as ``network.npz``.
    """
    envs = make(settings, settings.num_envs)
    learner, walk = Learner(settings, envs, seed), Walk(envs, seed)
    # Before what may take hours, in which the repository may go on.
    trained = origin(__name__, seed, settings)

    def iterate(iteration: int) -> dict[str, float]:
        rng = np.random.default_rng([seed, iteration])
        if iteration % settings.anew == 0:
            walk.begin(iteration // settings.anew)
        steps, reward = walk.take(settings.rollout, lambda seen: learner.act(seen, iteration, rng))
        learner.remember(*steps)
        error = learner.learn(iteration, rng)
        count = (iteration + 1) * settings.num_envs * settings.rollout
        return {"steps": count, "reward_per_step": reward, "error": error, "alpha": learner.alpha}

    yield from Checkpoint(folder, settings, seed).go_on(learner, iterate)
    if is_flow(settings):
        write_layers(folder / "network.npz", arrays(learner.parameters["actor"]))
    learner.policy().save(folder / "policy.safetensors", envs, trained=trained)
    return learner


def is_flow(settings: Settings) -> bool:
    """Whether the agent is one flow, and no coordinator."""
    return settings.env == "anabranch/Flow-v0"


def score(settings: Settings, learner: Learner) -> float:
    """Mean reward of a step, by what is likeliest, in episodes that no training has seen."""
    envs = make(settings, EVALUATION_EPISODES, autoreset_mode="Disabled")
    return evaluated(envs, lambda _, seen: learner.likeliest(seen))


def baselines(settings: Settings) -> dict[str, float]:
    """What the rule and the oracle get there; a flow has chance and to change nothing beside it."""
    envs = make(settings, EVALUATION_EPISODES, autoreset_mode="Disabled")
    if not is_flow(settings):
        return against_baselines(settings)
    low, high = envs.single_action_space.low, envs.single_action_space.high
    rng = np.random.default_rng(EVALUATION_SEED)
    return {
        "always the middle": evaluated(envs, lambda _, seen: np.tile((low + high) / 2, (len(seen), 1))),
        "at random": evaluated(envs, lambda _, seen: rng.uniform(low, high, (len(seen), 1)).astype(np.float32)),
    }


def about(settings: Settings) -> dict[str, str]:
    """What was trained in."""
    options = {"options": json.dumps(settings.options)} if settings.options else {}
    return {"environment": settings.env, **options}


def main(arguments: list[str] | None = None) -> None:
    command = parser(sys.modules[__name__], steps=Settings.steps, num_envs=Settings.num_envs)
    add_environment(command, preset="of anabranch/Flow-v0, in place of --env: aurora")
    args = parsed(command, arguments)
    settings = Settings(args.env, args.options, args.steps, args.num_envs)
    train_as_told(sys.modules[__name__], settings, args)


if __name__ == "__main__":
    # By its name, so that what is written is the same whoever calls it.
    from anabranch.train import sac

    sac.main()
