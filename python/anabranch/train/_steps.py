"""Steps in environments: how they are taken, remembered, and judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from anabranch import environments
from anabranch.flow import FlowVectorEnv
from anabranch.policy import Memory as Memories
from anabranch.policy import Policy
from anabranch.train._interrupt import look
from anabranch.vector import VectorEnv

# Episodes that show what was learned begin with this seed: no training gets there.
EVALUATION_SEED = 2**62
EVALUATION_EPISODES = 16
# Between the first seeds of two trainings, far more than one uses.
SEEDS_APART = 2**32
# The last training whose episodes come before those.
MOST_SEED = EVALUATION_SEED // SEEDS_APART - 1


# What a learner's environments are made with, and what would make others of them.
OURS = (
    "environment", "num_envs", "autoreset_mode", "render_mode", "vectorization_mode", "vector_kwargs", "wrappers", "id",
)  # fmt: skip


class Memory(NamedTuple):
    """Steps that were taken; each array has a row for each, and ``count`` says how many there ever were."""

    observations: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    following: np.ndarray
    goes_on: np.ndarray
    """0 after an end, 1 else, also after a time limit."""
    count: np.ndarray

    @classmethod
    def of(cls, size: int, row: int, action: np.ndarray) -> Memory:
        """Of ``size`` steps; an action is like ``action``."""
        numbers, rows = np.zeros(size, np.float32), np.zeros((size, row), np.float32)
        actions = np.zeros((size, *action.shape), action.dtype)
        return cls(rows, actions, numbers, rows.copy(), numbers.copy(), np.zeros((), np.int32))

    def put(self, *steps: np.ndarray) -> Memory:
        """These in place of the oldest."""
        size, new = len(self.rewards), len(steps[0])
        places = (int(self.count) + np.arange(new)) % size
        for array, values in zip(self, steps):
            array[places] = values
        return self._replace(count=np.array(int(self.count) + new, np.int32))

    def drawn(self, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, ...]:
        """Some of them, each as likely as the others, in arrays that begin with ``shape``."""
        places = rng.integers(min(int(self.count), len(self.rewards)), size=shape)
        return tuple(part[places] for part in self[:-1])


class Walk:
    """Environments that are stepped one by one, for a learner that acts from Python."""

    def __init__(self, envs: VectorEnv, seed: int) -> None:
        self.envs, self.seed = envs, seed

    def begin(self, checkpoint: int) -> None:
        """All environments anew, with seeds that follow from the training's and the number of checkpoints before."""
        self.observations, _ = self.envs.reset(seed=self.seed * SEEDS_APART + checkpoint * self.envs.num_envs)
        self.was_over = np.zeros(self.envs.num_envs, bool)

    def take(self, count: int, act: Callable[[np.ndarray], np.ndarray]) -> tuple[tuple[np.ndarray, ...], float]:
        """``count`` steps of each, as :class:`Memory` has them, and their mean reward."""
        taken: list[tuple[np.ndarray, ...]] = []
        for _ in range(count):
            look()
            actions = act(self.observations)
            following, rewards, terminated, truncated, _ = self.envs.step(actions)
            # The step after an end only begins the next episode.
            is_step = ~self.was_over
            parts = (self.observations, actions, rewards, following, np.float32(1) - terminated)
            taken.append(tuple(part[is_step] for part in parts))
            self.observations, self.was_over = following, terminated | truncated
        steps = tuple(np.concatenate(parts) for parts in zip(*taken))
        return steps, float(steps[2].sum(dtype=np.float64) / max(len(steps[2]), 1))


def evaluated(
    envs: VectorEnv,
    act: Callable[[VectorEnv, np.ndarray], np.ndarray],
    learn: Callable[[np.ndarray, np.ndarray, np.ndarray], None] | None = None,
) -> float:
    """Mean reward of a step in episodes that no training has seen, until all are over.

    Who learns meanwhile is told by ``learn(actions, rewards, over)`` what each action paid, and which episodes were over
    before it.
    """
    observations, _ = envs.reset(seed=EVALUATION_SEED)
    over, total, steps = np.zeros(envs.num_envs, bool), 0.0, 0
    while not over.all():
        look()
        actions = act(envs, observations)
        observations, rewards, terminated, truncated, _ = envs.step(actions)
        if learn is not None:
            learn(actions, rewards, over)
        total += float(rewards[~over].sum(dtype=np.float64))
        steps += int((~over).sum())
        over |= terminated | truncated
    return total / steps


def acting(policy: Policy) -> Callable[[VectorEnv, np.ndarray], np.ndarray]:
    """What a policy does in :func:`evaluated`, where all episodes begin together and each is one."""
    memories = [Memories() for _ in range(EVALUATION_EPISODES)]

    def act(envs: VectorEnv, observations: np.ndarray) -> np.ndarray:
        return np.stack([policy.rates(envs, row, memory) for row, memory in zip(observations, memories, strict=True)])

    return act


def made(settings: Any, count: int, **options: Any) -> VectorEnv:
    """Environments of a training's id and options.

    Raises:
        ValueError: They are none of this package's, or do not take these options.
    """
    if "anabranch." not in str(gymnasium.spec(settings.env).vector_entry_point):
        ours = ", ".join(environments())
        raise ValueError(f"{settings.env} is none of the environments that these learners act in, which are: {ours}")
    if ours := [name for name in OURS if name in settings.options]:
        raise ValueError(f"options of {settings.env} have {ours[0]}, which a learner says itself: leave it away")
    try:
        return gymnasium.make_vec(settings.env, count, **settings.options, **options).unwrapped
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{settings.env} does not take the options {settings.options}: {error}") from error


def made_for_hosts(settings: Any, count: int, **options: Any) -> VectorEnv:
    """Those whose agent is a coordinator.

    Raises:
        ValueError: Their agent is a flow.
    """
    envs = made(settings, count, **options)
    if isinstance(envs, FlowVectorEnv):
        raise ValueError(
            f"the agent of {settings.env} is one flow, and this learner is for coordinators: anabranch.train.sac is "
            "for the preset aurora, anabranch.train.dqn for learningcc and xavier"
        )
    return envs


def against_baselines(settings: Any) -> dict[str, float]:
    """What the rule and the oracle get."""
    envs = made_for_hosts(settings, EVALUATION_EPISODES, autoreset_mode="Disabled")
    return {who: evaluated(envs, lambda envs, _: envs.directed_by(who)) for who in ("rule", "oracle")}
