"""Networks of learners, and how what is seen is laid out and scaled for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anabranch.vector import VectorEnv

HIDDEN = (64, 64)
# A feature that is scaled by its range is cut here, as Rust's policies do it.
CUT = 10.0
# The most that a rate may be, in whose range learners' first answers and deviations are given.
USUAL_MOST = 1.25
Network = list[tuple[jax.Array, jax.Array]]


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


def unit_of(envs: VectorEnv) -> np.float32:
    """What a learner's 1 is in an action: spaces of other widths are learned in as that of rates is."""
    return np.float32(envs.single_action_space.high[0] / USUAL_MOST)


def forward(network: Network, x: jax.Array) -> jax.Array:
    for weights, biases in network[:-1]:
        x = jnp.tanh(x @ weights + biases)
    weights, biases = network[-1]
    return x @ weights + biases


def arrays(network: Network, unit: Any = None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Its layers as Rust takes them; what it says is times ``unit``."""
    made = [(np.ascontiguousarray(weights), np.ascontiguousarray(biases)) for weights, biases in jax.device_get(network)]
    if unit is not None:
        weights, biases = made[-1]
        made[-1] = (weights * unit, biases * unit)
    return made


def scaled(observations: jax.Array, normal: Any) -> jax.Array:
    """Each number by its feature's range, as :class:`anabranch.policy.Policy` does it."""
    mean, deviation = normal
    return jnp.clip((observations - mean) / deviation, -CUT, CUT)


def unscaled(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """What leaves a host's row as it is, but for the cut."""
    return np.zeros(shape.row, np.float32), np.ones(shape.row, np.float32)


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
