"""Policies that act in Rust: a learner gives the weights, environments do the rest."""

from __future__ import annotations

import copy
import json
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from anabranch import _given as given
from anabranch import _native

if TYPE_CHECKING:
    import gymnasium

    from anabranch._base import AnyWorlds
    from anabranch.parallel import HostsEnv
    from anabranch.sb3 import VecEnv

    # Ours, with what Gymnasium has put around it or without, or as other libraries have them.
    OneOrMany: TypeAlias = gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any] | HostsEnv | VecEnv

Array = npt.NDArray[np.float32]


Memory = _native.Memory
"""What a policy with memory remembers of one course of observations; ``forget()`` when another begins."""


class Policy:
    """A network of fully connected layers that says rates from an observation.

    ``x = clip((clip(observation, least, most) - mean) / deviation, -10, 10)``; ``x = activation(x @ weights + biases)`` in each layer but the
    last, which has no activation. Rates are cut at 0 and 1.25 by the environment. Sums are taken in the order of the
    inputs and ``tanh`` is libm's, so that the answer has the same bits on every machine.

    With ``cell`` a gated recurrent unit stands before the first layer, and what was seen before counts until an episode ends:
    ``r = s(x W_r + b_r + h U_r + c_r)``, ``z`` alike, ``n = tanh(x W_n + b_n + r (h U_n + c_n))``, ``h = (1 - z) n + z h``, of
    each host its own, and 0 at first.

    It sees all hosts and says all rates (``observation`` numbers in, ``hosts`` out), or sees one host's rows and says its
    rate (``features * history`` in, 1 out), and then serves any number of hosts in any order.

    Args:
        layers: ``(weights, biases)`` of each, float32, ``(inputs, outputs)`` and ``(outputs,)``, in C order.
        activation: "tanh" or "relu".
        mean, deviation: Of what it sees, float32, ``(inputs,)``; 0 and 1 unless given.
        known: The least and the most that it saw in training, float32, ``(inputs,)`` each. What lies beyond is cut there,
            and a run that it steers says so.
        cell: ``((W, b), (U, c))``, float32, ``(inputs, 3 size)``, ``(3 size,)``, ``(size, 3 size)`` and ``(3 size,)``: ``r``, ``z``
            and ``n`` side by side. The first layer has ``size`` inputs then.

    Raises:
        TypeError, ValueError: An array is of another type or shape, or a number is none.
    """

    # Of one that was made here what it was made of, for copies.
    _parts: tuple[Any, ...] | None = None
    # Of one from a file what is in its two files, and where it was found to act as it was made for.
    _files: tuple[bytes, bytes] | None = None
    _fitting: weakref.WeakSet[AnyWorlds]

    def __init__(
        self,
        layers: Sequence[tuple[Array, Array]],
        *,
        activation: str = "tanh",
        mean: Array | None = None,
        deviation: Array | None = None,
        known: tuple[Array, Array] | None = None,
        cell: tuple[tuple[Array, Array], tuple[Array, Array]] | None = None,
    ) -> None:
        layers = _checked_layers("layers", layers)
        if cell is not None and len(cell_layers := _checked_layers("cell", cell)) == 2:
            cell = (cell_layers[0], cell_layers[1])
        elif cell is not None:
            raise ValueError(f"cell has {len(cell_layers)} pairs, must be ((W, b), (U, c))")
        inputs = len(cell[0][0]) if cell is not None else len(layers[0][0]) if layers else 0
        mean = np.zeros(inputs, np.float32) if mean is None else mean
        deviation = np.ones(inputs, np.float32) if deviation is None else deviation
        self.native = _native.Policy(layers, activation, mean, deviation, known, cell)
        self._parts = copy.deepcopy((layers, activation, mean, deviation, known, cell))
        self.purpose: dict[str, Any] | None = None
        """What a policy from a file is for: ``features``, ``history``, ``actuator``, ``interval_s``, ``delay``; or, where it
        controls one flow, ``features``, ``history``, ``interval_rtts``."""
        self.trained: Any = None
        """How a policy from a file came to be, as whoever saved it says."""

    @classmethod
    def load(cls, path: str | os.PathLike[str], env: OneOrMany | None = None) -> Policy:
        """The policy that :meth:`save` has written.

        Args:
            path: ``NAME.safetensors``; ``NAME.json`` stands beside it.
            env: What it shall act in, one or many: a policy for something else is refused.

        Raises:
            OSError: A file can't be read.
            ValueError: There is no policy in it, or one for other environments than ``env``; it is said what differs.
        """
        policy = cls.__new__(cls)
        worlds = None if env is None else worlds_of(env)
        policy.native, purpose, trained = _native.load_policy(path, None if worlds is None else worlds.native)
        policy.purpose, policy.trained = json.loads(purpose), json.loads(trained)
        policy._files = Path(path).read_bytes(), Path(path).with_suffix(".json").read_bytes()
        policy._fitting = weakref.WeakSet(() if worlds is None else (worlds,))
        return policy

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("native", "_fitting")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self._parts is not None:
            self.native = _native.Policy(*self._parts)
        else:
            self._fitting = weakref.WeakSet()
            self.native = self._reread(None)

    def _reread(self, worlds: AnyWorlds | None) -> _native.Policy:
        """What is in its files, if it is for these environments."""
        assert self._files is not None
        with tempfile.TemporaryDirectory(prefix="anabranch-") as folder:
            path = Path(folder, "policy.safetensors")
            for place, data in zip((path, path.with_suffix(".json")), self._files):
                place.write_bytes(data)
            try:
                return _native.load_policy(path, None if worlds is None else worlds.native)[0]
            except ValueError as error:
                raise ValueError(str(error).removeprefix(f"{path}: ")) from None

    def check(self, env: OneOrMany) -> None:
        """Whether a policy from a file is for ``env``, as :meth:`load` says it; ``rollout`` and :meth:`rates` ask, too.

        Raises:
            ValueError: It is for other environments; it is said what differs.
        """
        worlds = worlds_of(env)
        if self._files is None or worlds in self._fitting:
            return
        self._reread(worlds)
        self._fitting.add(worlds)

    def save(self, path: str | os.PathLike[str], env: OneOrMany, *, trained: Any = None) -> None:
        """Writes it as a policy for environments like ``env``: the same policy is the same bytes.

        Args:
            path: ``NAME.safetensors``, for the numbers; ``NAME.json`` beside it says what they are for.
            env: One or many: its features, history, actuator and interval are written down. Where the agent is a flow
                (``anabranch/Flow-v0``, preset "aurora"), the file is one for ``controller = "policy"``.
            trained: How it came to be, as JSON has it.

        Raises:
            OSError: A file can't be written.
            ValueError: ``path`` has another name, the policy does not fit ``env``, or a number in ``trained`` is none.
        """
        _native.save_policy(self.native, path, worlds_of(env).native, json.dumps(trained, allow_nan=False))

    def save_for_flow(
        self,
        path: str | os.PathLike[str],
        *,
        features: Sequence[str],
        history: int,
        interval_rtts: float,
        trained: Any = None,
    ) -> None:
        """Writes it as a policy that controls one flow from end to end: the parameter ``file`` of ``controller = "policy"``.

        What it says changes a rate ``x`` to ``x (1 + 0.025 a)``, or to ``x / (1 - 0.025 a)`` where ``a`` is below 0.

        Args:
            path: ``NAME.safetensors``, for the numbers; ``NAME.json`` beside it says what they are for.
            features: Of an interval, in their order: ``send_ratio``, ``latency_ratio``, ``latency_gradient``, ``loss``,
                ``throughput``, ``rate``.
            history: Intervals in an observation, the newest first; 1 to 64.
            interval_rtts: Smoothed round trips in an interval; 0.1 to 100.
            trained: How it came to be, as JSON has it.

        Raises:
            OSError: A file can't be written.
            ValueError: ``path`` has another name, a feature is none that a sender knows, the policy does not take
                ``history`` times the features and say one number, or a number in ``trained`` is none.
        """
        about = json.dumps(trained, allow_nan=False)
        names, rtts = given.names("features", features), given.number("interval_rtts", interval_rtts)
        _native.save_flow_policy(self.native, path, names, given.integer("history", history, 1, 64), rtts, about)

    @property
    def inputs(self) -> int:
        """Numbers that it sees."""
        return self.native.inputs

    @property
    def outputs(self) -> int:
        """Numbers that it says."""
        return self.native.outputs

    @property
    def remembers(self) -> bool:
        """Whether what it says depends on what it saw before."""
        return self.native.remembers

    def rates(self, env: OneOrMany, observation: Array, memory: Memory | None = None) -> Array:
        """The action for an observation of ``env``, before it is cut.

        Args:
            env: One environment, or many like the one that is observed.
            observation: What is seen in one, float32; of an :class:`anabranch.parallel.HostsEnv` what one of its agents
                sees, or its ``state()``.
            memory: What it was shown before, and now is shown this, too: one for each course of observations.

        Raises:
            TypeError, ValueError: It is a policy that remembers, and there is no ``memory``; it is one from a file for
                other environments; or the observation has another type or shape.
        """
        self.check(env)
        if memory is None:
            if self.remembers:
                raise ValueError("this policy remembers: give rates() a Memory(), one for each environment, and forget() as it begins")
            memory = Memory()
        worlds = worlds_of(env)
        hosts, features, history = worlds.native.hosts, len(worlds.features), worlds.native.history
        if hasattr(env, "possible_agents") and getattr(observation, "shape", None) == (features * history,):
            hosts = 1
        rates = np.zeros(hosts, np.float32)
        self.native.rates(observation, hosts, features, history, rates, memory)
        return rates


def _checked_layers(name: str, layers: Any) -> list[tuple[Array, Array]]:
    """Pairs of weights and biases; what is in the arrays is Rust's to check."""
    if not isinstance(layers, Sequence):
        raise TypeError(f"{name} is of type {type(layers).__name__}, must be a list of (weights, biases)")
    found: list[tuple[Array, Array]] = []
    for place, layer in enumerate(layers):
        if not isinstance(layer, Sequence) or len(layer) != 2:
            raise TypeError(f"{name}[{place}] is of type {type(layer).__name__}, must be (weights, biases)")
        for what, array, dimensions in zip(("weights", "biases"), layer, (2, 1)):
            if not isinstance(array, np.ndarray) or array.ndim != dimensions:
                shape = array.shape if isinstance(array, np.ndarray) else f"of type {type(array).__name__}"
                raise TypeError(f"the {what} of {name}[{place}] are {shape}, must be a numpy array of {dimensions} dimensions")
        found.append((layer[0], layer[1]))
    return found


def worlds_of(env: OneOrMany) -> AnyWorlds:
    """What is in an environment of ours, whatever is around it.

    Raises:
        TypeError: It is none of ours.
    """
    worlds: AnyWorlds | None = getattr(getattr(env, "unwrapped", env), "_worlds", None)
    if worlds is None:
        raise TypeError(
            f"env is of type {type(env).__name__}, must be an environment of this package: "
            'gymnasium.make("anabranch/..."), make_vec, anabranch.parallel_env or anabranch.sb3.VecEnv makes one'
        )
    return worlds
