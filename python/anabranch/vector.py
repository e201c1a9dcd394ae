"""Many environments, stepped together on threads of Rust's, as Gymnasium has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Unpack, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from anabranch import _given as given
from anabranch._base import MOST_SEED, AnyWorlds, OfSpec, Options, Worlds, checked_seed
from anabranch._cores import cores
from anabranch._spec import Feature
from anabranch.env import Env
from anabranch.policy import Policy

Array = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]

# Of a rollout: far more than memory holds.
MOST_STEPS = 2**31 - 1


class Buffers(NamedTuple):
    """Where a step's results go when a place is given: arrays in C order, which a learner may keep and reuse."""

    observations: Array
    """float32, ``(num_envs, observation)``."""
    rewards: Array
    """float32, ``(num_envs,)``."""
    terms: Array
    """float32, ``(num_envs, len(envs.terms))``, in the order of ``envs.terms``."""
    terminated: Flags
    """bool, ``(num_envs,)``."""
    truncated: Flags
    """bool, ``(num_envs,)``."""


class Trajectory(NamedTuple):
    """What a rollout was: of each environment all steps."""

    observations: Array
    """Seen before each step, float32, ``(num_envs, steps, observation)``. After a step that ended an episode stands its
    last observation; the action there counts for nothing, and its reward is 0."""
    actions: Array
    """Told, before it was cut at its range, float32, ``(num_envs, steps, hosts)``."""
    rewards: Array
    """float32, ``(num_envs, steps)``."""
    terminated: Flags
    """bool, ``(num_envs, steps)``."""
    truncated: Flags
    """bool, ``(num_envs, steps)``."""
    next: Array
    """Seen after the last step, float32, ``(num_envs, observation)``."""


class VectorEnv(OfSpec, gymnasium.vector.VectorEnv[Array, Array, npt.NDArray[Any]]):
    """``num_envs`` environments, each of which is :class:`anabranch.env.Env`: actions, observations, rewards are its.

    Environment ``i`` of a vector seeded ``s`` is the single environment seeded ``s + i``, byte for byte, whatever
    ``threads`` and ``autoreset_mode`` are. Threads are Rust's; Python's others run during a step.

    Results are new arrays, unless ``step(actions, out=...)`` says where they go. ``infos["terms"]`` has the reward's
    terms by name, each ``(num_envs,)``.

    When an episode is over, the environment begins the next as Gymnasium's modes say: with the next step, whose action
    counts for nothing and whose reward is 0 (NEXT_STEP); in the same step, with ``infos["final_obs"]`` and
    ``infos["final_info"]`` (SAME_STEP); or when ``reset(options={"reset_mask": mask})`` says so (DISABLED; until then
    it stays over, and its rewards are 0).

    After a fork the threads are gone: using the vector in the child raises RuntimeError; make it after the fork, or with
    ``threads=1``. One thread may use it at a time. Ctrl-C counts after the step.

    Args:
        environment: A name of the catalogue, or an id.
        num_envs: 1 to 65536.
        threads: As many as there are processors unless given; never more than environments.
        autoreset_mode: An ``AutoresetMode`` or its value.
        options: As of :class:`anabranch.env.Env`.
    """

    single_observation_space: spaces.Box[np.float32]
    observation_space: spaces.Box[np.float32]
    single_action_space: spaces.Box[np.float32]
    action_space: spaces.Box[np.float32]

    def __init__(
        self,
        environment: str | None = None,
        *,
        num_envs: int = 1,
        threads: int | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        if render_mode is not None:
            raise ValueError(f'render_mode is "{render_mode}", must be None: only a single environment is shown')
        mode = checked_mode(autoreset_mode)
        threads = cores() if threads is None else threads
        self._set_up(Worlds(environment, count=num_envs, threads=threads, autoreset=mode.value, **options), mode)

    def _set_up(self, worlds: AnyWorlds, mode: AutoresetMode) -> None:
        self.render_mode = None
        self._worlds = worlds
        num_envs = self.num_envs = worlds.native.count
        # Only a single environment is shown.
        self.metadata = {**Env.metadata, "render_modes": [], "autoreset_mode": mode}
        self.single_observation_space = self._worlds.observation_space
        # A flow's environments have another type here, and say so.
        self.single_action_space = cast("spaces.Box[np.float32]", self._worlds.action_space)
        # Gymnasium says of no batch what it is: of boxes, a box.
        self.observation_space = cast("spaces.Box[np.float32]", batch_space(self.single_observation_space, num_envs))
        self.action_space = cast("spaces.Box[np.float32]", batch_space(self.single_action_space, num_envs))
        self._mode = mode
        self._was_reset = False
        # Of each environment the last that was given or drawn.
        self._seeds: list[int] = []
        self._all = np.ones(num_envs, np.bool_)

    @property
    def features(self) -> tuple[Feature, ...]:
        """A host's row of an observation."""
        return self._worlds.features

    @property
    def terms(self) -> tuple[str, ...]:
        """The reward's terms, in the order of their array."""
        return self._worlds.terms

    @property
    def hosts(self) -> int:
        """How many hosts an environment has, and numbers in its action."""
        return self._worlds.native.hosts

    @property
    def threads(self) -> int:
        """Threads that step them."""
        return self._worlds.native.threads

    def buffers(self) -> Buffers:
        """Arrays for ``step(actions, out=...)``."""
        count = self.num_envs
        return Buffers(
            np.zeros(self.observation_space.shape, np.float32),
            np.zeros(count, np.float32),
            np.zeros((count, len(self.terms)), np.float32),
            np.zeros(count, np.bool_),
            np.zeros(count, np.bool_),
        )

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Begins episodes: of ``seed + i``, of ``seed[i]``, or the next of the seed before.

        Args:
            seed: One, or one (or None) for each environment.
            options: ``{"reset_mask": mask}`` with a bool array ``(num_envs,)``: only there. The first reset begins all,
                since none goes on with a seed before.
        """
        if options is not None and not isinstance(options, dict):
            raise TypeError(f"options is of type {type(options).__name__}, must be a dict")
        mask = None if options is None else options.get("reset_mask")
        if mask is not None:
            mask = _checked_mask(mask, self.num_envs)
        if not self._was_reset:
            mask = None
        seeds: list[int | None] | None = None
        if isinstance(seed, np.ndarray):
            seed = seed.tolist()
        if isinstance(seed, Sequence) and not isinstance(seed, str):
            drawn = _drawn_seeds(len(seed)) if not self._was_reset else [None] * len(seed)
            seeds = [other if one is None else checked_seed(one) for one, other in zip(seed, drawn)]
            seed = None
        elif seed is not None:
            seed = checked_seed(seed)
        elif not self._was_reset:
            # Who says nothing gets other episodes each time; `np_random_seed` says which.
            seed = _drawn_seeds(1)[0]
        observations = np.zeros(self.observation_space.shape, np.float32)
        self._worlds.native.reset(observations, seed, seeds, None if mask is None else mask.tolist())
        self._was_reset = True
        self._note_seeds(seed, seeds, mask)
        return observations, self._infos(np.zeros((self.num_envs, len(self.terms)), np.float32))

    @property
    def np_random_seed(self) -> int | tuple[int, ...] | None:  # type: ignore[override]
        """What ``reset(seed=...)`` takes to begin the same again: one seed, or each environment's where they do
        not count on from the first; None before the first reset."""
        if not self._seeds:
            return None
        first = self._seeds[0]
        counts_on = all(seed == (first + place) % (MOST_SEED + 1) for place, seed in enumerate(self._seeds))
        return first if counts_on else tuple(self._seeds)

    def _note_seeds(self, seed: int | None, seeds: list[int | None] | None, mask: Flags | None) -> None:
        before: list[int | None] = [*self._seeds] if self._seeds else [None] * self.num_envs
        if seed is not None:
            seeds = [(seed + place) % (MOST_SEED + 1) for place in range(self.num_envs)]
        if seeds is None:
            return
        is_begun = self._all if mask is None else mask
        now = [new if new is not None and begun else old for new, old, begun in zip(seeds, before, is_begun)]
        self._seeds = [one for one in now if one is not None]
        self._np_random, self._np_random_seed = seeding.np_random(self._seeds[0])

    def step(
        self, actions: Array, *, out: Buffers | None = None
    ) -> tuple[Array, Array, Flags, Flags, dict[str, Any]]:
        """Takes a step in each environment.

        Args:
            actions: float32, ``(num_envs, hosts)``, in C order.
            out: Where results go (:meth:`buffers`); what is returned are these arrays then.

        Raises:
            TypeError, ValueError: ``actions``, or an array of ``out``, has another type, shape or order, or a value
                is not finite.
            RuntimeError: Before the first ``reset``, after a fork, or while another thread steps.
        """
        if not self._was_reset:
            raise RuntimeError("episodes begin with reset(): call it before step()")
        if out is None:
            out = self.buffers()
        elif not isinstance(out, Buffers):
            raise TypeError(f"out is of type {type(out).__name__}, must be what buffers() gives")
        else:
            # An array that was never written to may hold bytes that are no bools.
            out.terminated.fill(False)
            out.truncated.fill(False)
        observations, rewards, terms, terminated, truncated = out
        last = np.zeros_like(observations) if self._mode is AutoresetMode.SAME_STEP else None
        self._worlds.native.step(actions, observations, rewards, terms, terminated, truncated, last)
        infos = self._infos(terms)
        if last is not None and (terminated.any() or truncated.any()):
            self._add_final(infos, last, terms, terminated | truncated)
        return observations, rewards, terminated, truncated, infos

    def rollout(
        self, policy: Policy, steps: int, *, deviation: float | Sequence[float] = (), out: Trajectory | None = None
    ) -> Trajectory:
        """``policy`` acts for ``steps`` steps, all in Rust: no environment waits for another, and Python for nothing.

        It goes on where the vector stands, and the vector goes on where it ends. The noise of environment ``i`` is its
        seed's and episode's: the same whatever the number of environments and threads is. Ctrl-C ends it early; what was
        stepped until then counts.

        Args:
            policy: For these observations: see :class:`anabranch.policy.Policy`.
            steps: 1 or more.
            deviation: Of normal noise on each rate that the policy says, or one for all; none unless given.
            out: Where it goes (:meth:`trajectory`); new arrays unless given.

        Raises:
            ValueError: The policy is for something else, an array does not fit, or the mode is SAME_STEP, in which an
                episode's last observation would be nowhere.
        """
        if not self._was_reset:
            raise RuntimeError("episodes begin with reset(): call it before rollout()")
        if not isinstance(policy, Policy):
            raise TypeError(f"policy is of type {type(policy).__name__}, must be an anabranch.policy.Policy")
        policy.check(self)
        steps = given.integer("steps", steps, 1, MOST_STEPS)
        deviations = _checked_deviations(deviation, policy.outputs)
        out = self.trajectory(steps) if out is None else out
        if not isinstance(out, Trajectory):
            raise TypeError(f"out is of type {type(out).__name__}, must be what trajectory(steps) gives")
        out.terminated.fill(False)
        out.truncated.fill(False)
        cast(Worlds, self._worlds).native.rollout(policy.native, steps, *out, deviations)
        return out

    def trajectory(self, steps: int) -> Trajectory:
        """Arrays for ``rollout(policy, steps, out=...)``."""
        each = (self.num_envs, given.integer("steps", steps, 1, MOST_STEPS))
        return Trajectory(
            np.zeros((*each, *self.single_observation_space.shape), np.float32),
            np.zeros((*each, self.hosts), np.float32),
            np.zeros(each, np.float32),
            np.zeros(each, np.bool_),
            np.zeros(each, np.bool_),
            np.zeros(self.observation_space.shape, np.float32),
        )

    def directed_by(self, who: str) -> Array:
        """The actions of a baseline now, "rule", "period" or "oracle": see :meth:`anabranch.env.Env.directed_by`."""
        actions = np.zeros(self.action_space.shape, np.float32)
        cast(Worlds, self._worlds).native.directed_by(who, actions)
        return actions

    def close_extras(self, **kwargs: Any) -> None:
        """Nothing is open: threads end with the object."""

    def _infos(self, terms: Array) -> dict[str, Any]:
        by_name: dict[str, Any] = {}
        for place, name in enumerate(self.terms):
            by_name[name], by_name[f"_{name}"] = terms[:, place], self._all
        return {"terms": by_name, "_terms": self._all}

    def _add_final(self, infos: dict[str, Any], last: Array, terms: Array, is_over: Flags) -> None:
        """The last observations and infos of episodes that are over; in their places are those of the next episodes."""
        final = np.full(self.num_envs, None, object)
        for which in np.flatnonzero(is_over):
            final[which] = last[which]
        by_name: dict[str, Any] = {}
        for place, name in enumerate(self.terms):
            by_name[name], by_name[f"_{name}"] = np.where(is_over, terms[:, place], np.float32(0)), is_over
        infos |= self._infos(np.where(is_over[:, None], np.float32(0), terms))
        infos |= {
            "final_obs": final,
            "_final_obs": is_over,
            "final_info": {"terms": by_name, "_terms": is_over},
            "_final_info": is_over,
        }


def checked_mode(mode: str | AutoresetMode) -> AutoresetMode:
    """How an environment begins the next episode."""
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(f'"{one.value}"' for one in AutoresetMode)
        raise ValueError(f'autoreset_mode is "{mode}", must be one of {known}') from None


def _drawn_seeds(count: int) -> list[int]:
    """Who says nothing gets other episodes each time."""
    drawn: list[int] = np.random.SeedSequence().generate_state(count, np.uint64).tolist()
    return drawn


def _checked_deviations(deviation: Any, outputs: int) -> list[float]:
    """One for each number that a policy says."""
    if np.ndim(deviation) == 0:
        found = [given.number("deviation", deviation[()] if isinstance(deviation, np.ndarray) else deviation)] * outputs
    else:
        found = [given.number(f"deviation[{place}]", one) for place, one in enumerate(deviation)]
    if any(one < 0 for one in found):
        raise ValueError(f"deviation is {min(found)}, must be 0 or more")
    return found


def _checked_mask(mask: Any, count: int) -> Flags:
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        kind = getattr(mask, "dtype", type(mask).__name__)
        raise TypeError(f"reset_mask is {kind}, must be a numpy array of bool")
    if mask.shape != (count,):
        raise ValueError(f"reset_mask has the shape {mask.shape}, must have ({count},)")
    if not mask.any():
        raise ValueError("reset_mask is False everywhere: at least one environment must be True")
    checked: Flags = mask.view(np.uint8) != 0
    return checked
