"""Policies that act in Rust: a learner gives the weights, environments do the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from anabranch import _native

if TYPE_CHECKING:
    from anabranch.env import Env

Array = npt.NDArray[np.float32]


class Policy:
    """A network of fully connected layers that says rates from an observation.

    ``x = clip((observation - mean) / deviation, -10, 10)``; ``x = activation(x @ weights + biases)`` in each layer but the
    last, which has no activation. Rates are cut at 0 and 1.25 by the environment. Sums are taken in the order of the
    inputs and ``tanh`` is libm's, so that the answer has the same bits on every machine.

    It sees all hosts and says all rates (``observation`` numbers in, ``hosts`` out), or sees one host's rows and says its
    rate (``features * history`` in, 1 out), and then serves any number of hosts in any order.

    Args:
        layers: ``(weights, biases)`` of each, float32, ``(inputs, outputs)`` and ``(outputs,)``, in C order.
        activation: "tanh" or "relu".
        mean, deviation: Of what it sees, float32, ``(inputs,)``; 0 and 1 unless given.

    Raises:
        TypeError, ValueError: An array is of another type or shape, or a number is none.
    """

    def __init__(
        self,
        layers: Sequence[tuple[Array, Array]],
        *,
        activation: str = "tanh",
        mean: Array | None = None,
        deviation: Array | None = None,
    ) -> None:
        layers = list(layers)
        inputs = len(layers[0][0]) if layers else 0
        mean = np.zeros(inputs, np.float32) if mean is None else mean
        deviation = np.ones(inputs, np.float32) if deviation is None else deviation
        self.native = _native.Policy(layers, activation, mean, deviation)

    @property
    def inputs(self) -> int:
        """Numbers that it sees."""
        return self.native.inputs

    @property
    def outputs(self) -> int:
        """Numbers that it says."""
        return self.native.outputs

    def rates(self, env: Env, observation: Array) -> Array:
        """The action for an observation of ``env``, before it is cut."""
        env = env.unwrapped
        rates = np.zeros(env.hosts, np.float32)
        history = observation.size // (env.hosts * len(env.features))
        self.native.rates(observation, env.hosts, len(env.features), history, rates)
        return rates
