"""One environment, as Gymnasium has it."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import Any, Unpack, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from anabranch import _native
from anabranch import _page as page
from anabranch._base import AnyWorlds, OfSpec, Options, Worlds, checked_seed
from anabranch._page import Course, Line
from anabranch._spec import Feature

Array = npt.NDArray[np.float32]

# What a host's number is relative to, by the actuator; with all others to the link's rate.
OF_LINK = "of the link"
TOLD = {"share": "of an even share", "initial": "log2 of packets"}


class Env(OfSpec, gymnasium.Env[Array, Array]):
    """A coordinator sees a link and the hosts that send over it, and tells each the rate that its flows may have.

    **Action**: float32, ``(hosts,)``. A host's rate relative to the link's, from 0 to 1.25; what lies beyond counts as
    the nearest, what is not finite is refused. It holds for ``interval`` seconds. The host divides it among its active
    flows: ``rate_flow = rate * link / flows``. In C3-Fairness it is relative to an even share, ``link / active hosts``. In
    C3-Subdomains it is told to a sub-domain, all hosts that come to the link over one uplink, which has a row and a number
    where a host has them elsewhere; each 0.1 s a rule of its own gives each of its active hosts that part of an even share.
    In C3-Fct it is the window that connections begin with while it holds, in
    packets, log2, from 0 to 10: what a connection began with holds until its first loss, and ten packets (RFC 6928) are
    the least.

    **Observation**: float32, ``(history * hosts * features,)``: for each observation, the newest first, each host's row.
    ``env.unwrapped.features`` has a row's features with unit, range, and whether a deployment can know it:

    ============== ========= ============================================================================
    throughput     0 to 2    data of the host acknowledged in the step, with headers, over what the link carries
    queue          0 to 1    the wait at the link over the longest that its queue allows
    dropped        0 to 1    packets that the link dropped over those that came to it
    active         0 or 1    whether a flow of the host has something to send
    flows          0 to 4    how many have, over 8
    previous_rate  0 to 1.25 the action before; an initial window's log2 over 10
    cross_share    0 to 1    cross traffic that arrived over what the link carries (C3-Cross, C3-Delayed)
    cross_age      0 to 1    seconds since cross traffic came or went, over 10 (likewise)
    cross_on       0 to 1    seconds that it was there the last time, over 10 (likewise)
    cross_off      0 to 1    seconds that it was away the last time, over 10 (likewise)
    cross_expected 0 to 1    cross traffic of the step in which this is acted on, over what the link carries, if it comes
                             and goes as the last time; with all of ``delay`` counted (when asked for)
    round_trip     0 to 10   mean round trip of the host's flows over their least, less 1 (when asked for)
    loss           0 to 1    packets lost over those sent (when asked for)
    pipe           0 to 2    packets that the link carries in the least round trip of the host's flows, log2 of one
                             more, over 10; 0 before a round trip is known (C3-Fct, or when asked for)
    hosts          0 to 1    hosts that have something to send, log2 of one more, over 10 (C3-Fairness, C3-Subdomains, or
                             when asked for)
    told           0 to 1.25 what previous_rate is, without the delay that all else has (when asked for)
    cross_next     0 to 1    cross traffic of the step to come (when asked for; no deployment can know it)
    ============== ========= ============================================================================

    Nothing but ``cross_next`` is known before it happens. What is before the episode is 0.

    **Reward**: ``throughput - queue - drop - sending - unfairness + completion``, each times its weight (1, of completion 0;
    in C3-Fct completion alone counts, and in C3-Subdomains ``sending`` does not). ``info["terms"]`` has the terms: throughput of all hosts; the queue at the step's
    end; 1 if the link dropped a packet; rates of hosts that have nothing to send; the standard deviation of what the active
    hosts sent; and the sum over the transfers that ended in the step of the time that each would have taken alone over
    what it took. Alone takes a round trip for the handshake, one for the data, and the link's time for its packets.

    **Ends**: ``truncated`` when the scenario's time is over (10 s, C3-Fairness 20 s, C3-Cross and C3-Delayed 50 s,
    C3-Subdomains 60 s), ``terminated`` when all
    flows have sent what they had. A controller that can't go on raises :class:`anabranch.RunError`.

    **Seeds**: the same seed gives the same bytes. ``reset()`` without one goes on with the next episode of the seed
    before; without any, it draws one.

    Args:
        environment: A name of the catalogue, or Gymnasium's id of it, ``anabranch/NAME-v0``.
        scenario: In place of it, flows over links: a file or a dict (``anabranch/Scenario-v0``).
        overrides: What is otherwise than that scenario says.
        link: The link that is divided: a coordinator's, or the slowest, unless given.
        interval: Seconds between two actions (0.1; C3-Subdomains 1).
        actuator: How a rate becomes a window: "fixed" (rate times least round trip, as the paper has it; C3-Cross,
            C3-Delayed and Scenario), "bounded" (that is the most, loss still counts) or "rate" (a pace beside it; the
            others, whose windows are a few whole packets); "share" is a pace as well, and numbers are relative to an even share
            among the active hosts (C3-Fairness, C3-Subdomains); "lent" is one, too, and what the idle hold is divided among
            the others in proportion to what they hold, each 0.1 s; "initial" takes initial windows in place of rates (C3-Fct).
        features: A row's features, in this order.
        observe: "deployable" refuses features that no coordinator of real hosts can know.
        history: Observations in one, 1 to 64.
        delay: Steps that an observation is late, 0 to 64.
        agents: Who has a row and a number: "hosts", or "domains" of hosts that come to the link over the same link before it
            (C3-Subdomains).
        weights: Of the reward's terms, by name.

    Raises:
        ValueError, TypeError: An argument can't be; it is said what can.
        ScenarioError: The scenario can't be read.

    Versions: v0, the first.
    """

    observation_space: spaces.Box[np.float32]
    action_space: spaces.Box[np.float32]
    # Gymnasium's `check_env` makes an environment in each mode that is listed, so a picture is one where it can be drawn.
    metadata: dict[str, Any] = {
        "render_modes": ["ansi", "rgb_array"] if find_spec("matplotlib") else ["ansi"],
        "render_fps": 10,
    }

    def __init__(
        self, environment: str | None = None, *, render_mode: str | None = None, **options: Unpack[Options]
    ) -> None:
        if render_mode not in (None, "ansi", "rgb_array"):
            raise ValueError(f'render_mode is "{render_mode}", must be None, "ansi" or "rgb_array"')
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ModuleNotFoundError('render_mode="rgb_array" needs matplotlib: pip install matplotlib', name="matplotlib")
        self._set_up(Worlds(environment, count=1, threads=1, autoreset="Disabled", **options), render_mode)

    def _set_up(self, worlds: AnyWorlds, render_mode: str | None) -> None:
        self.render_mode = render_mode
        self._worlds = worlds
        self.observation_space = self._worlds.observation_space
        # A flow's environment has another type here, and says so.
        self.action_space = cast("spaces.Box[np.float32]", self._worlds.action_space)
        self._rewards = np.zeros(1, np.float32)
        self._terms = np.zeros((1, len(self._worlds.terms)), np.float32)
        self._terminated = np.zeros(1, np.bool_)
        self._truncated = np.zeros(1, np.bool_)
        self._shape = (1, *self.observation_space.shape)
        self._last: Array | None = None
        self._is_seeded = False
        self._is_over = False
        # Of the episode, for its picture and its page.
        self._course = Course()

    @property
    def features(self) -> tuple[Feature, ...]:
        """A host's row of an observation."""
        return self._worlds.features

    @property
    def hosts(self) -> int:
        """How many hosts there are, and numbers in an action."""
        return self._worlds.native.hosts

    @property
    def now(self) -> float:
        """Seconds of the episode that have passed."""
        return self._worlds.native.now(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Begins an episode: the first of ``seed``, or the next of the seed before. ``options`` are not used."""
        if seed is None and not self._is_seeded:
            # Who says nothing gets another episode each time; `np_random_seed` says which.
            seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
        if seed is not None:
            seed = checked_seed(seed)
            super().reset(seed=seed)
            self._is_seeded = True
        observation = np.zeros(self._shape, np.float32)
        try:
            self._worlds.native.reset(observation, seed)
        except _native.RunError as error:
            raise _of_one(error) from None
        self._last = observation[0]
        self._terms.fill(0.0)
        self._course.clear()
        self._is_over = False
        return observation[0], {"terms": dict.fromkeys(self._worlds.terms, 0.0)}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """The hosts have these rates for ``interval`` seconds.

        Raises:
            TypeError, ValueError: ``action`` is no float32 array of ``(hosts,)``, or has a value that is not finite.
            RuntimeError: Before the first ``reset``.
        """
        if self._last is None:
            raise RuntimeError("an episode begins with reset(): call it before step()")
        action = self._checked(action)
        observation = np.zeros(self._shape, np.float32)
        try:
            self._worlds.native.step(
                action[None], observation, self._rewards, self._terms, self._terminated, self._truncated
            )
        except (TypeError, ValueError, _native.RunError) as error:
            raise _of_one(error) from None
        self._last = observation[0]
        # Who steps on after the end is paid 0 for ever, and nothing of that is the episode's.
        if not self._is_over:
            self._course.note(self.now, self._applied(action), self._terms[0].copy(), float(self._rewards[0]), self._shown())
        self._is_over = bool(self._terminated[0] or self._truncated[0])
        terms = dict(zip(self._worlds.terms, self._terms[0].tolist()))
        done = bool(self._terminated[0]), bool(self._truncated[0])
        return observation[0], float(self._rewards[0]), *done, {"terms": terms}

    def _checked(self, action: Any) -> Array:
        """An action as an array of numbers, or what one must be."""
        wanted = self.action_space.shape
        if not isinstance(action, np.ndarray):
            kind = type(action).__name__
            raise TypeError(f"action is of type {kind}, must be a numpy array of float32 with the shape {wanted}")
        if action.shape != wanted:
            raise ValueError(f"action has the shape {action.shape}, must have {wanted}")
        return action

    def directed_by(self, who: str) -> Array:
        """The action of a baseline now: "rule" divides what cross traffic left in the step before among the active hosts;
        "period" what it will leave in the step to come if it comes and goes as the last time; "oracle" what it will leave in the step to come, which no policy can know. Where initial windows are told
        (C3-Fct), they divide what the link carries in a round trip."""
        action = np.zeros((1, self.hosts), np.float32)
        cast(Worlds, self._worlds).native.directed_by(who, action)
        told: Array = action[0]
        return told

    def _applied(self, action: Array) -> Array:
        applied: Array = np.clip(action, self.action_space.low, self.action_space.high)
        return applied

    def _shown(self) -> tuple[float, ...]:
        link, hosts = cast(Worlds, self._worlds).native.seen(0)
        return (*link, *(value for host in hosts for value in host))

    def _charts(self) -> list[tuple[str, tuple[str, str], list[Line]]]:
        course, hosts = self._course, range(self.hosts)
        shown = np.array([step.shown for step in course.steps]).reshape(len(course.steps), -1)
        link, of_hosts = shown[:, :3], shown[:, 3:].reshape(len(shown), self.hosts, 4)

        def of_each(place: int, what: str) -> list[Line]:
            return [course.line(f"host {host}{what}", of_hosts[:, host, place]) for host in hosts]

        names = ("queue, of the longest", "dropped, of what came", "cross traffic, of the link")
        of_link = [course.line(name, link[:, place]) for place, name in enumerate(names)]
        carried = of_each(1, ", carried")
        if self._told == OF_LINK:
            both = of_each(0, ", told") + carried
            rates = [("Rates that hosts were told, and what they carried.", (OF_LINK, ""), both)]
        else:
            rates = [
                ("What hosts were told.", (self._told, ""), of_each(0, ", told")),
                ("What hosts carried.", (OF_LINK, ""), carried),
            ]
        return [
            *rates,
            ("Round trips of the hosts' flows over their least.", ("round trip over its least", ""), of_each(2, "")),
            ("The link.", ("share", ""), of_link),
            ("What hosts lost.", ("of what they sent", ""), of_each(3, "")),
        ]  # fmt: skip

    @property
    def _told(self) -> str:
        """What a number of an action is."""
        return TOLD.get(cast(Worlds, self._worlds).native.actuator, OF_LINK)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes the episode so far as a page that stands alone: what was decided, rates, round trips, queue and losses of
        each host, the reward by its terms, and a table of the decisions. It replaces a page that is there, or that a
        link points to.

        Raises:
            RuntimeError: Before the first step.
            OSError: It can't be written, or what is there is no file.
        """
        if not self._course.steps:
            raise RuntimeError("there is nothing to report before a step: call reset() and step() first")
        about = {"environment": self.spec.id if self.spec else type(self).__name__, "simulated": f"{self.now:.2f} s"}
        numbers = self._numbers()
        page.write(path, "An episode", about, self._course, numbers, self._worlds.terms, self._charts())

    def _numbers(self) -> list[str]:
        return [f"host {host}" for host in range(self.hosts)]

    def render(self) -> str | npt.NDArray[np.uint8] | None:
        """As ``render_mode`` says: "ansi" has a line for each host with its features; "rgb_array", which needs matplotlib,
        is a picture of the episode so far: rates that were directed, and the reward's terms, uint8, ``(480, 640, 3)``."""
        if self.render_mode is None or self._last is None:
            return None
        if self.render_mode == "rgb_array":
            from anabranch._picture import picture

            times = [step.at for step in self._course.steps]
            rates = self._course.actions().reshape(-1, self.hosts)
            terms = np.array([step.terms for step in self._course.steps], np.float32).reshape(-1, len(self._worlds.terms))
            return picture(times, rates, self._told, float(self.action_space.high[0]), terms, self._worlds.terms)
        newest = self._last.reshape(-1, self.hosts, len(self.features))[0]
        lines = [f"{self.now:8.2f} s  " + "  ".join(feature.name for feature in self.features)]
        for host, row in enumerate(newest):
            cells = (f"{value:{max(len(feature.name), 4)}.2f}" for value, feature in zip(row, self.features))
            lines.append(f"  host {host:<3} " + "  ".join(cells))
        paid = (f"{name} {value:.2f}" for name, value in zip(self._worlds.terms, self._terms[0]))
        return "\n".join([*lines, "  " + ", ".join(paid)])


def _of_one(error: Exception) -> Exception:
    """What is said of the first of many, said of the only one."""
    said = str(error).removeprefix("environment 0: ").replace("actions[0, ", "action[")
    return type(error)(re.sub(r"\bactions\b", "action", said))
