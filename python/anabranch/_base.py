"""What one environment and many have in common."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np
from gymnasium import spaces

from anabranch import _native
from anabranch._runs import Scenario, _as_path_or_dict, _copy
from anabranch._spec import Feature

MOST_SEED = 2**64 - 1


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
        if isinstance(features, str):
            raise TypeError(f'features is the text "{features}", must be a list of names')
        if overrides is not None and scenario is None:
            raise ValueError("overrides are a scenario's, and this environment has none of yours: give scenario=...")
        self.native = _native.Environments(
            environment,
            scenario=None if scenario is None else _as_path_or_dict(scenario),
            overrides=_copy("overrides", overrides),
            count=count,
            threads=threads,
            autoreset=autoreset,
            link=link,
            interval=interval,
            actuator=actuator,
            features=None if features is None else list(features),
            deployable=observe == "deployable",
            history=history,
            delay=delay,
            agents=agents,
            weights=None if weights is None else dict(weights),
        )
        self.features = tuple(Feature(*row) for row in self.native.features)
        self.terms = tuple(self.native.terms)
        rows = self.native.hosts * self.native.history
        low = np.tile(np.array([feature.low for feature in self.features], np.float32), rows)
        high = np.tile(np.array([feature.high for feature in self.features], np.float32), rows)
        self.observation_space = spaces.Box(low, high, dtype=np.float32)
        self.action_space = spaces.Box(0.0, self.native.most, (self.native.hosts,), np.float32)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def checked_seed(seed: Any) -> int:
    """A seed, or what one must be."""
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        if 0 <= seed <= MOST_SEED:
            return int(seed)
        raise ValueError(f"seed is {seed}, must be from 0 to {MOST_SEED}")
    raise TypeError(f"seed is of type {type(seed).__name__}, must be an int from 0 to {MOST_SEED}")
