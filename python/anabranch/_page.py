"""An episode so far as a page that stands alone: what was decided, what came of it, and what it was paid."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from anabranch import _native

# Of an episode, steps that are remembered: longer ones are cut there, and the page says so.
MOST_STEPS = 20_000

Line = tuple[str, list[tuple[float, float]]]


class Course:
    """What an episode has shown, step by step."""

    class Step(NamedTuple):
        """One of them."""

        at: float
        """Seconds of the episode at its end."""
        action: npt.NDArray[np.float32]
        terms: npt.NDArray[np.float32]
        reward: float
        shown: tuple[float, ...]
        """What the environment shows besides, in the order of its names."""

    def __init__(self) -> None:
        self.steps: list[Course.Step] = []
        self.is_cut = False

    def clear(self) -> None:
        """At the beginning of an episode."""
        self.steps.clear()
        self.is_cut = False

    def note(
        self,
        at: float,
        action: npt.NDArray[np.float32],
        terms: npt.NDArray[np.float32],
        reward: float,
        shown: tuple[float, ...],
    ) -> None:
        """A step is over."""
        if len(self.steps) < MOST_STEPS:
            self.steps.append(Course.Step(at, action, terms, reward, shown))
        else:
            self.is_cut = True

    def actions(self) -> npt.NDArray[np.float32]:
        """``(steps, numbers)``."""
        return np.array([step.action for step in self.steps], np.float32)

    def line(self, name: str, values: Iterable[float]) -> Line:
        """Values of the steps over their times."""
        return name, [(step.at, float(value)) for step, value in zip(self.steps, values)]


def target(path: str | os.PathLike[str]) -> str:
    """The file that a page is to replace: what a link points to.

    Raises:
        OSError: Something else is there, as a device.
    """
    place = os.path.realpath(os.fspath(path))
    try:
        mode = os.stat(place).st_mode
    except FileNotFoundError:
        return place
    if not stat.S_ISREG(mode):
        raise OSError(f"{os.fspath(path)}: is no regular file, which alone a page replaces: give the path of a file")
    return place


def write(
    path: str | os.PathLike[str],
    title: str,
    about: dict[str, str],
    course: Course,
    numbers: Sequence[str],
    terms: Sequence[str],
    charts: Sequence[tuple[str, tuple[str, str], list[Line]]],
) -> None:
    """Writes the page: charts of the environment's, those of rewards, and a table of decisions. ``numbers`` names what a
    decision has."""
    rewards = [step.reward for step in course.steps]
    of_terms = [course.line(name, [step.terms[place] for step in course.steps]) for place, name in enumerate(terms)]
    of_rewards = [
        ("What each step was paid for.", ("terms of the reward", ""), of_terms),
        ("Rewards together.", ("sum of rewards", ""), [course.line("reward", np.cumsum(rewards).tolist())]),
    ]
    about = about | {"steps": str(len(course.steps)), "sum of rewards": f"{sum(rewards):.4f}"}
    if course.is_cut:
        about["cut"] = f"the episode went on: a page has {MOST_STEPS} steps"
    rows = [[step.at, *map(float, step.action), step.reward] for step in course.steps]
    table = ("Decisions", ["at (s)", *numbers, "reward"], rows)
    _native.write_page(target(path), title, list(about.items()), ("time", "s"), [*charts, *of_rewards], table)
