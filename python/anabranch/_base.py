"""What one environment and many have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypedDict

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from anabranch import _given as given
from anabranch import _native
from anabranch._runs import Scenario, _as_path_or_dict, _copy
from anabranch._spec import Feature

MOST_SEED = 2**64 - 1

# As in Rust, which takes no number below 0 and can't name one there.
MOST_ENVIRONMENTS, MOST_THREADS = 65536, 1024
MOST_HISTORY, MOST_DELAY = 64, 64
MOST_INTERVAL = 1e6


class Options(TypedDict, total=False):
    """What :class:`anabranch.env.Env` and :class:`anabranch.vector.VectorEnv` take by name."""

    scenario: Scenario
    overrides: Mapping[str, Any]
    link: str
    interval: float
    actuator: str
    features: Sequence[str]
    observe: str
    history: int
    delay: int
    agents: str
    weights: Mapping[str, float]


class AnyWorlds:
    """What native environments have, whoever their agent is, and their spaces for one."""

    native: _native.Environments | _native.Senders
    features: tuple[Feature, ...]
    terms: tuple[str, ...]
    # In annotations and quotes alone: Gymnasium 1.2's Box takes no argument.
    observation_space: spaces.Box[np.float32]
    action_space: spaces.Box[np.float32] | spaces.Discrete[Any]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """What is simulated stays in Rust: a copy would begin anew, where whoever copies expects it to go on."""
        raise TypeError(
            "an environment can't be copied or pickled: make another with the same options, and reset(seed=...) it to "
            "the same episode"
        )


class Worlds(AnyWorlds):
    """Those whose agent is a coordinator."""

    native: _native.Environments
    action_space: spaces.Box[np.float32]

    def __init__(
        self,
        environment: str | None,
        *,
        count: int,
        threads: int,
        autoreset: str,
        scenario: Scenario | None = None,
        overrides: Mapping[str, Any] | None = None,
        link: str | None = None,
        interval: float | None = None,
        actuator: str | None = None,
        features: Sequence[str] | None = None,
        observe: str = "any",
        history: int | None = None,
        delay: int | None = None,
        agents: str | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        if observe not in ("any", "deployable"):
            raise ValueError(f'observe is "{observe}", must be "any" or "deployable"')
        if overrides is not None and scenario is None:
            raise ValueError("overrides are a scenario's, and this environment has none of yours: give scenario=...")
        if scenario is None and (environment is None or named(environment) is None):
            raise ValueError('neither an environment nor a scenario is given: give a name, as "C3-Single", or scenario=...')
        self.native = _native.Environments(
            None if environment is None else named(environment),
            scenario=None if scenario is None else _as_path_or_dict(scenario),
            overrides=_copy("overrides", overrides),
            count=given.integer("num_envs", count, 1, MOST_ENVIRONMENTS),
            threads=given.integer("threads", threads, 1, MOST_THREADS),
            autoreset=autoreset,
            link=None if link is None else given.text("link", link),
            interval=None if interval is None else _checked_interval(interval),
            actuator=None if actuator is None else given.text("actuator", actuator),
            features=None if features is None else given.names("features", features),
            deployable=observe == "deployable",
            history=None if history is None else given.integer("history", history, 1, MOST_HISTORY),
            delay=None if delay is None else given.integer("delay", delay, 0, MOST_DELAY),
            agents=None if agents is None else given.text("agents", agents),
            weights=None if weights is None else given.weights("weights", weights),
        )
        self.features = tuple(Feature(*row) for row in self.native.features)
        self.terms = tuple(self.native.terms)
        rows = self.native.hosts * self.native.history
        low = np.tile(np.array([feature.low for feature in self.features], np.float32), rows)
        high = np.tile(np.array([feature.high for feature in self.features], np.float32), rows)
        self.observation_space = spaces.Box(low, high, dtype=np.float32)
        self.action_space = spaces.Box(0.0, self.native.most, (self.native.hosts,), np.float32)


def _checked_interval(interval: Any) -> float:
    """Rust knows how long an episode is; what no episode can be is refused here, without its hundreds of digits."""
    found = given.number("interval", interval)
    if found > MOST_INTERVAL:
        raise ValueError(f"interval is {found:g}, must be a number of seconds, from 0.001 to an episode's length")
    return found


def named(environment: str) -> str | None:
    """The catalogue's name of an environment, of which Gymnasium's id may be given; None where a scenario is given."""
    name = given.text("environment", environment).removeprefix("anabranch/").removesuffix("-v0")
    if name == "Flow":
        raise ValueError(
            "this is for environments with hosts; those of one flow are made by "
            'gymnasium.make("anabranch/Flow-v0"), make_vec, or anabranch.flow'
        )
    return None if name == "Scenario" else name


class OfSpec:
    """What is made by Gymnasium is what its id says."""

    _spec: EnvSpec | None = None

    @property
    def spec(self) -> EnvSpec | None:
        """What :func:`gymnasium.make` was asked for."""
        return self._spec

    @spec.setter
    def spec(self, spec: EnvSpec | None) -> None:
        if spec is not None and (name := spec.kwargs.get("environment")) is not None:
            of_id, also = (one.removeprefix("anabranch/").removesuffix("-v0") for one in (spec.id, name))
            if spec.id.startswith("anabranch/") and of_id != also:
                raise ValueError(f'environment is "{name}", and the id {spec.id} is of another: give one of them')
        self._spec = spec


def checked_seed(seed: Any) -> int:
    """A seed, or what one must be."""
    return given.integer("seed", seed, 0, MOST_SEED)
