"""What is in Rust. The package around it is what to use."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt

__all__ = [
    "Driver",
    "Environments",
    "Memory",
    "Policy",
    "RunError",
    "ScenarioError",
    "Senders",
    "Table",
    "__version__",
    "controllers",
    "environments",
    "experiments",
    "features",
    "load_policy",
    "measure_point",
    "measures",
    "reproduce",
    "run",
    "save_flow_policy",
    "save_policy",
    "sweep",
    "write_page",
]
__version__: str

class ScenarioError(ValueError):
    """A scenario can't be read: its file, line and key, and what is expected there."""

class RunError(RuntimeError):
    """A run can't go on: which flow or environment, and why."""

def controllers() -> str: ...
def run(
    scenario: Any,
    overrides: dict[str, Any] | None = ...,
    seed: int | None = ...,
    out: Any = ...,
    threads: int | None = ...,
) -> tuple[str, list[tuple[str, Table]]]: ...
def sweep(
    scenario: Any,
    grid: dict[str, Any],
    out: Any,
    seeds: list[int] | None = ...,
    overrides: dict[str, Any] | None = ...,
    threads: int | None = ...,
    again: bool = ...,
) -> tuple[str, list[tuple[str, Table]]]: ...
def experiments() -> list[tuple[str, str]]: ...
def reproduce(
    experiment: str,
    quick: bool = ...,
    seed: int | None = ...,
    controllers: Sequence[str] = ...,
    settings: Sequence[str] = ...,
    policies: Any = ...,
) -> tuple[str, list[tuple[str, Table]]]: ...
def write_page(
    path: Any,
    title: str,
    about: list[tuple[str, str]],
    x: tuple[str, str],
    charts: list[tuple[str, tuple[str, str], list[tuple[str, list[tuple[float, float]]]]]],
    table: tuple[str, list[str], list[list[float]]],
) -> None: ...
def measures() -> str: ...
def measure_point(point: str) -> str: ...
def environments() -> list[tuple[str, str]]: ...
def features() -> list[tuple[str, str, float, float, bool]]: ...

@final
class Table:
    """Columns of equal length with names and types, for whoever reads Arrow. Numbers that there are not are null."""

    columns: list[str]
    metadata: dict[str, str]

    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = ...) -> object: ...

@final
class Driver:
    """A sweep whose points other processes measure; what they say is checked and kept here."""

    def __new__(
        cls,
        scenario: Any,
        grid: dict[str, Any],
        out: Any,
        seeds: list[int] | None = ...,
        overrides: dict[str, Any] | None = ...,
        again: bool = ...,
    ) -> Self: ...
    def missing(self) -> list[tuple[int, str]]: ...
    def finished(self) -> tuple[int, int]: ...
    def keep(self, place: int, outcome: str) -> None: ...
    def tell(self) -> tuple[str, list[tuple[str, Table]]]: ...

@final
class Environments:
    """Environments of one kind, which are stepped together."""

    count: int
    hosts: int
    observation_len: int
    threads: int
    most: float
    interval: float
    history: int
    delay: int
    actuator: str
    features: list[tuple[str, str, float, float, bool]]
    terms: list[str]

    def __new__(
        cls,
        environment: str | None = ...,
        *,
        scenario: Any = ...,
        overrides: dict[str, Any] | None = ...,
        count: int = ...,
        seed: int = ...,
        threads: int = ...,
        autoreset: str = ...,
        link: str | None = ...,
        interval: float | None = ...,
        actuator: str | None = ...,
        features: Sequence[str] | None = ...,
        deployable: bool = ...,
        history: int | None = ...,
        delay: int | None = ...,
        agents: str | None = ...,
        weights: Mapping[str, float] | None = ...,
    ) -> Self: ...
    def reset(
        self,
        observations: npt.NDArray[np.float32],
        seed: int | None = ...,
        seeds: Sequence[int | None] | None = ...,
        mask: Sequence[bool] | None = ...,
    ) -> None: ...
    def step(
        self,
        actions: npt.NDArray[np.float32],
        observations: npt.NDArray[np.float32],
        rewards: npt.NDArray[np.float32],
        terms: npt.NDArray[np.float32],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        last: npt.NDArray[np.float32] | None = ...,
    ) -> None: ...
    def rollout(
        self,
        policy: Policy,
        steps: int,
        observations: npt.NDArray[np.float32],
        actions: npt.NDArray[np.float32],
        rewards: npt.NDArray[np.float32],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        next: npt.NDArray[np.float32],
        deviations: Sequence[float],
    ) -> None: ...
    def directed_by(self, who: str, actions: npt.NDArray[np.float32]) -> None: ...
    def seen(
        self, environment: int
    ) -> tuple[tuple[float, float, float], list[tuple[float, float, float, float]]]: ...
    def now(self, environment: int) -> float: ...

@final
class Senders:
    """Environments whose agent is one flow's sender, which are stepped together."""

    count: int
    hosts: int
    observation_len: int
    threads: int
    range: tuple[float, float] | None
    choices: int | None
    history: int
    features: list[tuple[str, str, float, float, bool]]
    terms: list[str]

    def __new__(
        cls,
        preset: str,
        *,
        scenario: Any = ...,
        overrides: dict[str, Any] | None = ...,
        count: int = ...,
        seed: int = ...,
        threads: int = ...,
        autoreset: str = ...,
    ) -> Self: ...
    def reset(
        self,
        observations: npt.NDArray[np.float32],
        seed: int | None = ...,
        seeds: Sequence[int | None] | None = ...,
        mask: Sequence[bool] | None = ...,
    ) -> None: ...
    def step(
        self,
        actions: npt.NDArray[np.float32],
        observations: npt.NDArray[np.float32],
        rewards: npt.NDArray[np.float32],
        terms: npt.NDArray[np.float32],
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_],
        last: npt.NDArray[np.float32] | None = ...,
    ) -> None: ...
    def now(self, environment: int) -> float: ...
    def limits(self, environment: int) -> tuple[float, float | None]: ...

@final
class Memory:
    """What a policy with memory remembers."""

    def __new__(cls) -> Self: ...
    def forget(self) -> None: ...

@final
class Policy:
    """A network of fully connected layers that says rates, with or without memory."""

    inputs: int
    outputs: int
    remembers: bool

    def __new__(
        cls,
        layers: Sequence[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]],
        activation: str,
        mean: npt.NDArray[np.float32],
        deviation: npt.NDArray[np.float32],
        known: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None = ...,
        cell: tuple[
            tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]], tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
        ]
        | None = ...,
    ) -> Self: ...
    def rates(
        self,
        observation: npt.NDArray[np.float32],
        hosts: int,
        features: int,
        history: int,
        into: npt.NDArray[np.float32],
        memory: Memory,
    ) -> None: ...

def save_policy(policy: Policy, path: str | PathLike[str], environments: Environments | Senders, trained: str) -> None: ...
def save_flow_policy(
    policy: Policy, path: str | PathLike[str], features: Sequence[str], history: int, interval_rtts: float, trained: str
) -> None: ...
def load_policy(path: str | PathLike[str], environments: Environments | Senders | None = ...) -> tuple[Policy, str, str]: ...
