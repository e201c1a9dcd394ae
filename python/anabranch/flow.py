"""One flow from end to end as an agent: ``anabranch/Flow-v0``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from anabranch import _given as given
from anabranch import _native
from anabranch._base import MOST_ENVIRONMENTS, MOST_THREADS, AnyWorlds
from anabranch._cores import cores
from anabranch._runs import Scenario, _as_path_or_dict, _copy
from anabranch._page import Line
from anabranch._spec import Feature
from anabranch.env import Array, Env
from anabranch.vector import Buffers, Flags, VectorEnv, checked_mode


class _Flows(AnyWorlds):
    """Those whose agent is a flow's sender."""

    native: _native.Senders

    def __init__(
        self,
        preset: str,
        *,
        count: int,
        threads: int,
        autoreset: str,
        scenario: Scenario | None,
        overrides: Mapping[str, Any] | None,
    ) -> None:
        if overrides is not None and scenario is None:
            raise ValueError("overrides are a scenario's, and this environment has none of yours: give scenario=...")
        self.native = _native.Senders(
            given.text("preset", preset),
            scenario=None if scenario is None else _as_path_or_dict(scenario),
            overrides=_copy("overrides", overrides),
            count=given.integer("num_envs", count, 1, MOST_ENVIRONMENTS),
            threads=given.integer("threads", threads, 1, MOST_THREADS),
            autoreset=autoreset,
        )
        self.features = tuple(Feature(*row) for row in self.native.features)
        self.terms = tuple(self.native.terms)
        low, high = (
            np.tile(np.array([getattr(one, end) for one in self.features], np.float32), self.native.history)
            for end in ("low", "high")
        )
        self.observation_space = spaces.Box(low, high, dtype=np.float32)
        if self.native.range is not None:
            self.action_space = spaces.Box(*self.native.range, (1,), np.float32)
        else:
            # What is no number of a range is a choice.
            assert self.native.choices is not None
            self.action_space = spaces.Discrete(self.native.choices)


def _refused(what: str) -> NotImplementedError:
    return NotImplementedError(f"{what} is for environments whose agent is a coordinator (C3, Scenario), not for a flow")


class FlowEnv(Env):
    """A sender decides what it may have in flight, or its pace, and sees its ACKs and losses. The link, its queue and its
    losses are simulated packet by packet. A preset is a paper's decisions, observations and rewards.

    ``preset="aurora"`` (Jay et al., ICML 2019, and its authors' simulator PCC-RL; where ours differs from that, the source of
    the preset says): a rate, once each monitor interval, which is half the mean round trip of
    the one before (10 ms to 5 s; three times the link's latency at first).

    =================== ================ ======================================================================
    **Action**          Box(-40, 40)     a: the rate times ``1 + 0.025 a``, or over ``1 - 0.025 a`` where a is below 0; 40
                                         to 1000 packets/s; it begins at 0.3 to 1.5 of the link's
    **Observation**     (30,)            of the last ten intervals, the newest first:
    latency_gradient    -10 to 10        seconds of round trip that came on top, a second of leaving (least squares)
    latency_ratio       1 to 100         mean round trip over the least mean of the episode; 1 before
    send_ratio          0 to 100         packets sent over packets acknowledged; 1 before
    **Reward**                           ``10 throughput - 1000 latency - 2000 loss``: packets/s, s, lost of those that were
                                         acknowledged or lost
    **Links**           drawn            100 to 500 packets/s, 50 to 500 ms one way, 2 to 2981 packets of queue (evenly in
                                         the logarithm), 0 to 5 % random loss, as its training
    **Ends**                             ``truncated`` after 400 steps
    =================== ================ ======================================================================

    ``preset="learningcc"`` (LearningCC): by how many packets the window grows each round trip. A step lasts until the next
    congestion event (a loss, or a round trip beyond ``rtt_base + 0.8 (srtt_max - rtt_base)``, once a round trip), which
    sets the window to 0.9 of what the path holds; or for 5 s.

    =================== ================ ======================================================================
    **Action**          Discrete(5)      arm 0 to 4: one to five packets a round trip
    **Observation**     (4,)             of the last step:
    rate                0 to 10000       data acknowledged, Mbit/s
    srtt                0 to 10          mean round trip, s
    round_trip          1 to 100         that over the least
    by_loss             0 or 1           whether a loss ended it
    **Reward**                           ``rate / srtt``: Mbit/s over s
    **Links**           one              5 Mbit/s, a round trip of 60 ms, a queue of 37 500 bytes
    **Ends**                             ``truncated`` after 60 s
    =================== ================ ======================================================================

    ``preset="xavier"`` (Xavier): what becomes of the window with each ACK. A step lasts until the next one. Losses halve the
    window beneath, once a round trip.

    =================== ================ ======================================================================
    **Action**          Discrete(4)      ``W + 1``, ``W + 1/W``, ``W - 1/W``, ``W``; 1 to 16384 packets, 2 at first
    **Observation**     (2,)
    ewma_rtt            0 to 10          mean round trip, 0.2 for the newest, s
    rtt_ratio           1 to 100         the newest over the least
    **Reward**                           for each packet that the ACK acknowledges ``(e_prev - e) / e_prev``, by which share
                                         the mean round trip fell since it left, and 2 if the window had grown then:
                                         it comes a round trip after what earned it
    **Links**           one of two       3 or 15 Mbit/s, a round trip of 152 ms, 1000 packets of queue
    **Ends**                             ``truncated`` after 20 s
    =================== ================ ======================================================================

    What lies beyond an observation's range is cut off there. ``info["terms"]`` has what a reward is made of, by name.
    Nothing is known before it happens, and a real sender knows all of it. An episode never terminates.

    **Seeds**: as of :class:`anabranch.env.Env`.

    Args:
        preset: "aurora", "learningcc" or "xavier".
        scenario: Flows over links of yours, a file or a dict, in place of the preset's. The first flow is the agent: it
            sends without end from the start to one receiver. Others are as the scenario says.
        overrides: What is otherwise than that scenario says.

    Raises:
        ValueError, TypeError: An argument can't be; it is said what can.
        ScenarioError: The scenario can't be read.

    Versions: v0, the first.
    """

    # Wider than an Env's, which is a box: a preset's action may be a choice.
    action_space: spaces.Box[np.float32] | spaces.Discrete[Any]  # type: ignore[assignment]
    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 10}

    if TYPE_CHECKING:
        # For types alone: a call between would cost each step.
        def step(self, action: Array | int | np.integer[Any]) -> tuple[Array, float, bool, bool, dict[str, Any]]: ...

    def __init__(
        self,
        preset: str = "aurora",
        *,
        scenario: Scenario | None = None,
        overrides: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode not in (None, "ansi"):
            raise ValueError(f'render_mode is "{render_mode}", must be None or "ansi"')
        flows = _Flows(preset, count=1, threads=1, autoreset="Disabled", scenario=scenario, overrides=overrides)
        self._set_up(flows, render_mode)

    @property
    def limits(self) -> tuple[float, float | None]:
        """What the flow may have in flight, in packets, and its pace in packets a second, or None."""
        return cast(_Flows, self._worlds).native.limits(0)

    def _checked(self, action: Any) -> Array:
        if not isinstance(self.action_space, spaces.Discrete):
            return super()._checked(action)
        count = self.action_space.n
        if isinstance(action, bool) or not (
            isinstance(action, (int, np.integer))
            or (isinstance(action, np.ndarray) and action.shape == () and np.issubdtype(action.dtype, np.integer))
        ):
            kind = getattr(action, "dtype", type(action).__name__)
            raise TypeError(f"action is of type {kind}, must be an int from 0 to {count - 1}")
        if not 0 <= action < count:
            raise ValueError(f"action is {action}, must be from 0 to {count - 1}")
        return np.array([action], np.float32)

    def _applied(self, action: Array) -> Array:
        return action if isinstance(self.action_space, spaces.Discrete) else super()._applied(action)

    def _shown(self) -> tuple[float, ...]:
        window, pace = self.limits
        newest = self._last[: len(self.features)] if self._last is not None else ()
        return (window, 0.0 if pace is None else pace, *map(float, newest))

    def _numbers(self) -> list[str]:
        return ["decision"]

    def _charts(self) -> list[tuple[str, tuple[str, str], list[Line]]]:
        course = self._course
        shown = np.array([step.shown for step in course.steps])
        of_flow = [("What it may have in flight.", ("window", "packets")), ("Its pace; 0 where it has none.", ("pace", "packets/s"))]
        seen = [(f"What it sees: {one.unit}.", (one.name, "")) for one in self.features]
        return [(caption, axis, [course.line(axis[0], shown[:, place])]) for place, (caption, axis) in enumerate(of_flow + seen)]

    def directed_by(self, who: str) -> Array:
        """There is no baseline that tells a flow what to do."""
        raise _refused("directed_by")


class FlowVectorEnv(VectorEnv):
    """``num_envs`` environments, each of which is :class:`FlowEnv`: actions, observations and rewards are its.

    Environment ``i`` of a vector seeded ``s`` is the single environment seeded ``s + i``, byte for byte, whatever
    ``threads`` and ``autoreset_mode`` are. All else is as of :class:`anabranch.vector.VectorEnv`, but there is no rollout.

    Args:
        preset: "aurora", "learningcc" or "xavier".
        num_envs: 1 to 65536.
        threads: As many as there are processors unless given.
        autoreset_mode: An ``AutoresetMode`` or its value.
        scenario, overrides: As of :class:`FlowEnv`.
    """

    # Wider than a VectorEnv's, as those of a single one.
    single_action_space: spaces.Box[np.float32] | spaces.Discrete[Any]  # type: ignore[assignment]
    action_space: spaces.Box[np.float32] | spaces.MultiDiscrete  # type: ignore[assignment]

    def __init__(
        self,
        preset: str = "aurora",
        *,
        num_envs: int = 1,
        threads: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        scenario: Scenario | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        if render_mode is not None:
            raise ValueError(f'render_mode is "{render_mode}", must be None: only a single environment is shown')
        mode = checked_mode(autoreset_mode)
        threads = cores() if threads is None else threads
        flows = _Flows(
            preset, count=num_envs, threads=threads, autoreset=mode.value, scenario=scenario, overrides=overrides
        )
        self._set_up(flows, mode)

    def step(
        self, actions: Any, *, out: Buffers | None = None
    ) -> tuple[Array, Array, Flags, Flags, dict[str, Any]]:
        """Takes a step in each environment: float32 ``(num_envs, 1)``, or integers ``(num_envs,)`` from 0 on where an
        action is a choice."""
        if isinstance(self.single_action_space, spaces.Discrete):
            actions = self._chosen(actions, int(self.single_action_space.n))
        return super().step(actions, out=out)

    def _chosen(self, actions: Any, count: int) -> Array:
        if not isinstance(actions, np.ndarray) or not np.issubdtype(actions.dtype, np.integer):
            kind = getattr(actions, "dtype", type(actions).__name__)
            raise TypeError(f"actions is {kind}, must be a numpy array of integers from 0 to {count - 1}")
        if actions.shape != (self.num_envs,):
            raise ValueError(f"actions has the shape {actions.shape}, must have ({self.num_envs},)")
        wrong = np.flatnonzero((actions < 0) | (actions >= count))
        if len(wrong):
            raise ValueError(f"actions[{wrong[0]}] is {actions[wrong[0]]}, must be from 0 to {count - 1}")
        return actions.astype(np.float32)[:, None]

    def rollout(self, *arguments: Any, **options: Any) -> Any:
        """Policies in Rust are for coordinators."""
        raise _refused("rollout")

    def trajectory(self, steps: int) -> Any:
        """Policies in Rust are for coordinators."""
        raise _refused("trajectory")

    def directed_by(self, who: str) -> Array:
        """There is no baseline that tells a flow what to do."""
        raise _refused("directed_by")
