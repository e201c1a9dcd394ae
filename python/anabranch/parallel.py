"""Hosts as agents of their own, as PettingZoo has them."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from pettingzoo import ParallelEnv

from anabranch._base import AnyWorlds, Options
from anabranch._spec import Feature
from anabranch.env import Env

Array = npt.NDArray[np.float32]


class HostsEnv(ParallelEnv[str, Array, Array]):
    """The hosts of an :class:`anabranch.env.Env`, each of which says its own rate.

    **Agents**: ``"host_0"``, ``"host_1"``, ... of the scenario, from an episode's beginning to its end; a host whose flows
    have not begun, or are over, sees that in ``active``, and stays. With ``agents="domains"``, as "C3-Subdomains" has it, each
    of them stands for a sub-domain of hosts.

    **Observation**: float32, ``(history * features,)``: the host's rows, the newest first. So one
    :class:`anabranch.policy.Policy` of ``features * history`` inputs and one output serves every agent. ``state()`` is
    what :class:`anabranch.env.Env` observes: all hosts.

    **Action**: float32, ``(1,)``, from 0 to what ``action_space(agent)`` says: the host's rate relative to the link's, up
    to 1.25; in "C3-Fct" the base-2 logarithm of the packets that its flows begin with, up to 10.

    **Reward**: the same for all, that of :class:`anabranch.env.Env`: they share the link. ``infos[agent]["terms"]`` has its
    terms.

    **Ends** and **seeds**: those of :class:`anabranch.env.Env`; all agents end together.

    Args:
        environment: A name of the catalogue, as "C3-Parallel".
        render_mode: As of :class:`anabranch.env.Env`.
        options: Likewise.
    """

    metadata = {"name": "anabranch", **Env.metadata, "is_parallelizable": True}

    def __init__(
        self, environment: str | None = None, *, render_mode: str | None = None, **options: Unpack[Options]
    ) -> None:
        self._env = Env(environment, render_mode=render_mode, **options)
        self.render_mode = render_mode
        self.possible_agents = [f"host_{host}" for host in range(self._env.hosts)]
        self.agents: list[str] = []
        self._row = len(self._env.features)
        # Every host's row has the same bounds.
        low, high = (bound.reshape(-1, self._env.hosts, self._row)[:, 0].ravel()
                     for bound in (self._env.observation_space.low, self._env.observation_space.high))
        most = float(self._env.action_space.high[0])
        self.observation_spaces = {agent: spaces.Box(low, high, dtype=np.float32) for agent in self.possible_agents}
        self.action_spaces = {agent: spaces.Box(0.0, most, (1,), np.float32) for agent in self.possible_agents}
        self.state_space = self._env.observation_space
        self._seen: Array | None = None

    @property
    def _worlds(self) -> AnyWorlds:
        return self._env._worlds

    @property
    def features(self) -> tuple[Feature, ...]:
        """A host's row of an observation."""
        return self._env.features

    def observation_space(self, agent: str) -> spaces.Box[np.float32]:
        """The same object each time."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Box[np.float32]:
        """The same object each time."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, dict[str, Any]]]:
        """Begins an episode, as :meth:`anabranch.env.Env.reset` does."""
        self._seen, info = self._env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        return self._rows(self.agents), self._each(info)

    def step(
        self, actions: dict[str, Array]
    ) -> tuple[dict[str, Array], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """The hosts have these rates for ``interval`` seconds.

        Raises:
            ValueError, TypeError: An agent has no action, or one that can't be.
            RuntimeError: Before the first ``reset``, or after an episode's end.
        """
        if not self.agents:
            raise RuntimeError("an episode begins with reset(): call it before step()")
        if not isinstance(actions, dict):
            raise TypeError(f"actions is of type {type(actions).__name__}, must be a dict of the agents' actions")
        if missing := [agent for agent in self.agents if agent not in actions]:
            raise ValueError(f"actions have none for {', '.join(missing)}; every host needs one")
        if unknown := [agent for agent in actions if agent not in self.agents]:
            raise ValueError(f"actions have one for {', '.join(unknown)}; there are: {', '.join(self.agents)}")
        for agent, action in actions.items():
            if not isinstance(action, np.ndarray) or action.dtype != np.float32 or action.shape != (1,):
                raise TypeError(f"the action of {agent} is {action!r}, must be a numpy array of float32 with the shape (1,)")
            if not np.isfinite(action[0]):
                most = self.action_spaces[agent].high[0]
                raise ValueError(f"the action of {agent} is {action[0]}, must be a number from 0 to {most:g}")
        action = np.concatenate([actions[agent] for agent in self.agents])
        self._seen, reward, terminated, truncated, info = self._env.step(action)
        agents = self.agents
        results = (
            self._rows(agents),
            dict.fromkeys(agents, reward),
            dict.fromkeys(agents, terminated),
            dict.fromkeys(agents, truncated),
            self._each(info),
        )
        if terminated or truncated:
            self.agents = []
        return results

    def state(self) -> Array:
        """What all hosts see together, float32, ``(history * hosts * features,)``."""
        if self._seen is None:
            raise RuntimeError("an episode begins with reset(): call it before state()")
        return self._seen.copy()

    def render(self) -> str | npt.NDArray[np.uint8] | None:
        """As :meth:`anabranch.env.Env.render`."""
        return self._env.render()

    def close(self) -> None:
        """Nothing is open."""

    def _rows(self, agents: list[str]) -> dict[str, Array]:
        assert self._seen is not None
        rows = self._seen.reshape(-1, len(self.possible_agents), self._row)
        return {agent: np.ascontiguousarray(rows[:, host]).ravel() for host, agent in enumerate(agents)}

    def _each(self, info: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """An agent may keep and change its own."""
        return {agent: {"terms": dict(info["terms"])} for agent in self.possible_agents}
