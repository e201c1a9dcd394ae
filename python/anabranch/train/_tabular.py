"""What the papers learn by, beside a network: LearningCC's bandit and Xavier's linear SARSA, as learners of actions that a
step pays. Each environment has one of its own, which knows nothing at first and learns while it acts, as a connection of
theirs does.

::

    bandit   choose: with probability 0.3 any, else the one of the highest reward        [LearningCC] algorithm 2
             Reward(i) = 0.15 Reward(i) + 0.85 r                                          equation 5
    SARSA    choose: with probability 0.2 any, else the one with the greatest Q(s, a)    [Xavier] 4.3.1
             Q(s, a) = sum of the weights of the features that are on                      4.3.2
             each of them += eta (r + gamma Q(s', a') - Q(s, a))                           4.3.2

The features are of what was seen newest: for each number the twentieth of its range in which it lies, the action, and
each of the former with the action. Discount and step size, which the report leaves out, are those of the controller
``xavier``: gamma = 0.9, eta = 1 / (10 features).
"""

from __future__ import annotations

import numpy as np

EPSILON_OF_BANDIT = 0.3
WEIGHT_OF_NEWEST = 0.85
EPSILON_OF_SARSA = 0.2
DISCOUNT = 0.9
PARTS = 20


class Bandit:
    """One bandit each for ``count`` environments."""

    def __init__(self, count: int, choices: int, seed: int) -> None:
        self.rewards = np.zeros((count, choices))
        self.rng = np.random.default_rng(seed)

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Looks at nothing: what an arm paid is all it knows."""
        return _explored(self.rewards, EPSILON_OF_BANDIT, self.rng)

    def learn(self, actions: np.ndarray, rewards: np.ndarray, over: np.ndarray) -> None:
        """The reward of each action; what is over is left as it is."""
        of = np.flatnonzero(~over)
        known = self.rewards[of, actions[of]]
        self.rewards[of, actions[of]] = (1 - WEIGHT_OF_NEWEST) * known + WEIGHT_OF_NEWEST * rewards[of]


class Sarsa:
    """One linear function each for ``count`` environments, whose newest row has the bounds ``low`` and ``high``."""

    def __init__(self, count: int, choices: int, bounds: tuple[np.ndarray, np.ndarray], seed: int) -> None:
        self.low, self.high = bounds
        numbers = len(self.low)
        self.of_parts = np.zeros((count, numbers, PARTS))
        self.of_actions = np.zeros((count, choices))
        self.of_both = np.zeros((count, numbers, PARTS, choices))
        self.step = 1 / (10 * (2 * numbers + 1))
        self.rng = np.random.default_rng(seed)
        # The state and the action before, and what it paid.
        self.before: tuple[np.ndarray, np.ndarray] | None = None
        self.paid = np.zeros(count)
        self.over = np.zeros(count, bool)

    def parts(self, observations: np.ndarray) -> np.ndarray:
        """In which part of its range each number lies: ``(count, numbers)``."""
        share = (observations[:, : len(self.low)] - self.low) / (self.high - self.low)
        return np.clip((share * PARTS).astype(int), 0, PARTS - 1)

    def values(self, parts: np.ndarray) -> np.ndarray:
        """What each action is worth: ``(count, choices)``."""
        each, number = np.arange(len(parts))[:, None], np.arange(parts.shape[1])[None]
        state = self.of_parts[each, number, parts].sum(1)
        return state[:, None] + self.of_actions + self.of_both[each, number, parts].sum(1)

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Chooses, and learns what the action before was worth."""
        parts = self.parts(observations)
        values = self.values(parts)
        actions = _explored(values, EPSILON_OF_SARSA, self.rng)
        if self.before is not None:
            self._move(*self.before, self.paid + DISCOUNT * values[np.arange(len(actions)), actions])
        self.before = (parts, actions)
        return actions

    def learn(self, actions: np.ndarray, rewards: np.ndarray, over: np.ndarray) -> None:
        """What the actions paid; it is learned once the next ones are chosen."""
        self.paid, self.over = rewards.astype(float), over

    def _move(self, parts: np.ndarray, actions: np.ndarray, wanted: np.ndarray) -> None:
        each = np.arange(len(actions))
        error = wanted - self.values(parts)[each, actions]
        change = np.where(self.over, 0.0, self.step * error)
        number = np.arange(parts.shape[1])[None]
        self.of_parts[each[:, None], number, parts] += change[:, None]
        self.of_actions[each, actions] += change
        self.of_both[each[:, None], number, parts, actions[:, None]] += change[:, None]


def _explored(values: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Of each row the greatest, ties by lot, or with probability ``epsilon`` any."""
    count, choices = values.shape
    tied = np.where(values == values.max(1, keepdims=True), rng.random((count, choices)), -1.0)
    return np.where(rng.random(count) < epsilon, rng.integers(choices, size=count), tied.argmax(1))
