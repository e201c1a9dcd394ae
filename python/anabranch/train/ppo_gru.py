"""Proximal policy optimisation with memory: as :mod:`anabranch.train.ppo`, with a gated recurrent unit before the layers.

What a coordinator sees of cross traffic, or a second late, does not say all that it could know: when the traffic came the last
times, and what it told itself since. A unit (Cho et al. 2014, arXiv 1406.1078) keeps what counts of it, of each host its own::

    r = s(x W_r + b_r + h U_r + c_r)                        s(x) = 1 / (1 + exp(-x))
    z = s(x W_z + b_z + h U_z + c_z)
    n = tanh(x W_n + b_n + r (h U_n + c_n))
    h' = (1 - z) n + z h                                    0 where an episode begins

The value has one of its own, over all that is seen. A rollout of an environment is learned from as a whole, from the state on
that stood at its beginning; updates draw environments, not steps. Checkpoints and all else are as there.

::

    python -m anabranch.train.ppo_gru --env anabranch/C3-Delayed-v0 --steps 524288 --seeds 3 --out out/gru
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from anabranch.policy import Policy
from anabranch.train import ppo
from anabranch.train._networks import Known, Shape, arrays, forward, layers, scaled_rows, scaled_whole, unit_of
from anabranch.train._training import Course
from anabranch.train.ppo import about, advantages, baselines, log_probability, objective, score
from anabranch.vector import VectorEnv

__all__ = ["Settings", "about", "baselines", "score", "train"]

# Numbers that are kept, and of the layer that reads them.
MEMORY, READER = 64, 64


@dataclass(frozen=True)
class Settings(ppo.Settings):
    """All that a training depends on, besides its seed."""

    minibatches: int = 4
    """Each with as many environments."""
    rate: float = 5e-4

    def __post_init__(self) -> None:
        if self.num_envs % self.minibatches:
            raise ValueError(f"num_envs is {self.num_envs}, must be a multiple of {self.minibatches}: updates draw environments")
        self.check_updates()


class Batch(NamedTuple):
    """What the learner sees of a rollout: first of each environment, then of each of its steps."""

    observations: jax.Array
    actions: jax.Array
    log_probability: jax.Array
    advantages: jax.Array
    returns: jax.Array
    counts: jax.Array
    """1, or 0 where nothing was done: the step after an end only begins the next episode."""
    fresh: jax.Array
    """Where an episode begins with what is seen."""
    states: tuple[jax.Array, jax.Array]
    """Of the policy, ``(num_envs, hosts, size)``, and of the value, ``(num_envs, size)``, before the first step."""


def unit(key: jax.Array, inputs: int, size: int) -> Any:
    """Weights as layers have them: from what is seen, and from the state."""
    seen, kept = (jax.random.fold_in(key, place) for place in (0, 1))
    orthogonal = jax.nn.initializers.orthogonal()
    of = [jnp.concatenate([orthogonal(jax.random.fold_in(one, gate), (count, size), jnp.float32) for gate in range(3)], 1)
          for one, count in ((seen, inputs), (kept, size))]  # fmt: skip
    return tuple((weights, jnp.zeros(3 * size, jnp.float32)) for weights in of)


def recur(cell: Any, x: jax.Array, h: jax.Array) -> jax.Array:
    """The next state."""
    (weights, biases), (kept_weights, kept_biases) = cell
    seen, kept = jnp.split(x @ weights + biases, 3, -1), jnp.split(h @ kept_weights + kept_biases, 3, -1)
    r, z = jax.nn.sigmoid(seen[0] + kept[0]), jax.nn.sigmoid(seen[1] + kept[1])
    return (1 - z) * jnp.tanh(seen[2] + r * kept[2]) + z * h


def through(network: Any, x: jax.Array, h: jax.Array, fresh: jax.Array) -> tuple[jax.Array, jax.Array]:
    """``(envs, steps, ...)``: what is said of what is seen step by step, and ``(envs, ...)``: the state after it."""

    def step(h: jax.Array, now: Any) -> Any:
        x, fresh = now
        h = jnp.where(fresh.reshape(-1, *[1] * (h.ndim - 1)), 0.0, h)
        return (h := recur(network["cell"], x, h)), h

    last, states = jax.lax.scan(step, h, (jnp.moveaxis(x, 1, 0), fresh.T))
    return forward(network["layers"], jnp.moveaxis(states, 0, 1))[..., 0], last


class Learner:
    """The networks of one training, and what an update does to them."""

    def __init__(self, settings: Settings, envs: VectorEnv, seed: int) -> None:
        self.settings = settings
        self.shape = shape = Shape.of(envs)
        self.normal = shape.normal(envs)
        self.unit = unit_of(envs)
        self.key = key = jax.random.key(seed)

        def network(key: jax.Array, inputs: int, last: float, bias: float) -> Any:
            cell = unit(jax.random.fold_in(key, 0), inputs, MEMORY)
            return {"cell": cell, "layers": layers(jax.random.fold_in(key, 1), (MEMORY, READER, 1), last, bias)}

        self.parameters = {
            "policy": network(jax.random.fold_in(key, 1), shape.row, 0.01, ppo.FIRST_ANSWER),
            "value": network(jax.random.fold_in(key, 2), shape.row * shape.hosts, 1.0, 0.0),
            "log_deviation": jnp.full((), np.log(ppo.FIRST_DEVIATION), jnp.float32),
        }
        self.optimiser = optax.chain(
            optax.clip_by_global_norm(settings.most_gradient),
            optax.adam(optax.linear_schedule(settings.rate, 0.0, settings.updates), eps=1e-5),
        )
        self.state = self.optimiser.init(self.parameters)
        self.known = Known.nothing(shape)
        self.forget()
        self._batch, self._update = jax.jit(self._make_batch), jax.jit(self._make_update)

    def forget(self) -> None:
        """All environments begin anew; only there are checkpoints, which have no states therefore."""
        count = self.settings.num_envs
        self.states = (jnp.zeros((count, self.shape.hosts, MEMORY)), jnp.zeros((count, MEMORY)))
        # Whether an episode is over with the last step, and whether one begins with what is seen next.
        self.was_over, self.is_fresh = np.zeros(count, bool), np.ones(count, bool)

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
        return float(np.exp(np.float32(self.parameters["log_deviation"])) * self.unit)

    def policy(self, is_trained: bool = False) -> Policy:
        """What acts: the same numbers, in Rust; a trained one knows what it has seen."""
        network = self.parameters["policy"]
        known = self.known.arrays if is_trained else None
        seen, kept = arrays(list(network["cell"]))
        layers = arrays(network["layers"], self.unit)
        return Policy(layers, mean=self.normal[0], deviation=self.normal[1], known=known, cell=(seen, kept))

    def rates(self, parameters: Any, observations: jax.Array, h: jax.Array, fresh: jax.Array) -> tuple[jax.Array, jax.Array]:
        """``(envs, steps, hosts)``: what the policy says before noise, in the learner's unit; and its states after it."""
        return through(parameters["policy"], scaled_rows(observations, self.normal, self.shape), h, fresh)

    def value(self, parameters: Any, observations: jax.Array, h: jax.Array, fresh: jax.Array) -> tuple[jax.Array, jax.Array]:
        """``(envs, steps)``: what is to be expected from here on; and its states after it."""
        return through(parameters["value"], scaled_whole(observations, self.normal, self.shape), h, fresh)

    def _make_batch(self, parameters: Any, observations: Any, actions: Any, rewards: Any, terminated: Any, truncated: Any,
                    next: Any, was_over: Any, is_fresh: Any, states: Any) -> Any:  # fmt: skip
        over = terminated | truncated
        begins = jnp.concatenate([was_over[:, None], over[:, :-1]], 1)
        # The step after an end shows the last observation still; what follows it is new.
        fresh = jnp.concatenate([is_fresh[:, None], begins[:, :-1]], 1)
        means, of_policy = self.rates(parameters, observations, states[0], fresh)
        values, of_value = self.value(parameters, observations, states[1], fresh)
        after, _ = self.value(parameters, next[:, None], of_value, begins[:, -1:])
        values = jnp.concatenate([values, after], 1)
        better = advantages(self.settings, values, rewards, terminated, over, begins)
        probability = log_probability(parameters, means, actions)
        counts = (~begins).astype(jnp.float32)
        batch = Batch(observations, actions, probability, better, better + values[:, :-1], counts, fresh, states)
        return batch, (of_policy, of_value)

    def _loss(self, parameters: Any, batch: Batch) -> jax.Array:
        means, _ = self.rates(parameters, batch.observations, batch.states[0], batch.fresh)
        values, _ = self.value(parameters, batch.observations, batch.states[1], batch.fresh)
        probability = log_probability(parameters, means, batch.actions)
        return objective(self.settings, self.shape, parameters["log_deviation"], probability, values, batch)

    def _make_update(self, parameters: Any, state: Any, batch: Batch, key: jax.Array) -> tuple[Any, Any]:
        count, parts = self.settings.num_envs, self.settings.minibatches

        def epoch(carry: Any, key: jax.Array) -> Any:
            return jax.lax.scan(one, carry, jax.random.permutation(key, count).reshape(parts, count // parts))

        def one(carry: Any, places: jax.Array) -> Any:
            parameters, state = carry
            gradient = jax.grad(self._loss)(parameters, jax.tree.map(lambda part: part[places], batch))
            changes, state = self.optimiser.update(gradient, state, parameters)
            parameters = optax.apply_updates(parameters, changes)
            low, high = np.log(np.float32([ppo.LEAST_DEVIATION, ppo.MOST_DEVIATION]))
            parameters["log_deviation"] = jnp.clip(parameters["log_deviation"], low, high)
            return (parameters, state), None

        (parameters, state), _ = jax.lax.scan(epoch, (parameters, state), jax.random.split(key, self.settings.epochs))
        return parameters, state

    def learn(self, iteration: int, seen: Any) -> float:
        """From a rollout; the mean reward of its steps."""
        self.known = self.known.noted(seen.observations, self.shape)
        seen = seen._replace(actions=seen.actions / self.unit)
        batch, self.states = self._batch(self.parameters, *seen, self.was_over, self.is_fresh, self.states)
        over = seen.terminated | seen.truncated
        self.is_fresh = over[:, -2].copy() if over.shape[1] > 1 else self.was_over
        self.was_over = over[:, -1].copy()
        key = jax.random.fold_in(jax.random.fold_in(self.key, 3), iteration)
        self.parameters, self.state = self._update(self.parameters, self.state, batch, key)
        counts = np.asarray(batch.counts)
        return float((seen.rewards * counts).sum(dtype=np.float64) / counts.sum(dtype=np.float64))


def train(settings: Settings, seed: int, folder: Path) -> Course:
    """Trains, or goes on from the folder's checkpoint; at the end ``policy.safetensors`` is there and given back."""
    return ppo.course(Learner, __name__, settings, seed, folder)


def main(arguments: list[str] | None = None) -> None:
    ppo.command(sys.modules[__name__], arguments)


if __name__ == "__main__":
    # By its name, so that what is written is the same whoever calls it.
    from anabranch.train import ppo_gru

    ppo_gru.main()
