"""What the command ``anabranch`` gives, as dicts and tables."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from numbers import Real
from typing import Any

import numpy as np

from anabranch import _given as given
from anabranch import _native
from anabranch._kept import register
from anabranch._native import Table

register()

Scenario = str | os.PathLike[str] | Mapping[str, Any]
"""The path of a scenario file, or a dict with its tables."""

BACKENDS = ("local", "ray")

_MOST_THREADS = 1024
"""As for the command: more only wait for one another."""

_MOST_SEED = 2**63 - 1

_SEED = "run.seed"

_MOST_POINTS = 1_000_000
"""Of a sweep."""


class Result(dict[str, Any]):
    """What a command prints with ``--json``, as a dict; and ``tables``, for whoever works with columns.

    Each table is an :class:`anabranch.Table`: it has ``columns``, ``metadata`` and a length, and hands its rows over by the
    Arrow PyCapsule interface (``__arrow_c_stream__``), without a copy. None of these needs another::

        pandas.DataFrame.from_arrow(result.tables["points"])       # pandas 3
        polars.DataFrame(result.tables["points"])
        pyarrow.table(result.tables["points"])

    Numbers that there are not, as the convergence of what did not converge, are null. A result is pickled, as for other
    processes, with its tables, which needs pyarrow; ``dict(result)`` needs nothing.
    """

    tables: dict[str, Table]

    def __init__(self, result: tuple[str, list[tuple[str, Table]]]) -> None:
        super().__init__(json.loads(result[0]))
        self.tables = dict(result[1])

    def __deepcopy__(self, memo: dict[int, Any]) -> Result:
        copied = type(self).__new__(type(self))
        copied.update(copy.deepcopy(dict(self), memo))
        # They never change.
        copied.tables = dict(self.tables)
        return copied


class PointsFailed(_native.RunError):
    """Points of a sweep that have no run; ``result`` has all others."""

    def __init__(self, result: Result) -> None:
        super().__init__("; ".join(result["failed"]))
        self.result = result

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.result,)


def _as_path_or_dict(scenario: Scenario) -> Any:
    return dict(scenario) if isinstance(scenario, Mapping) else scenario


def controllers() -> list[dict[str, Any]]:
    """What can be asked for by name, in the order of ``anabranch controllers``.

    Each has ``name``, ``kind`` ("path": a rate for each peer; "flow": one sender's window and pacing rate), ``summary``,
    ``source`` (the paper or RFC), ``real_network`` (False: in simulations alone) and ``needs`` (a text or None).
    """
    found: list[dict[str, Any]] = json.loads(_native.controllers())
    return found


def run(
    scenario: Scenario,
    *,
    overrides: Mapping[str, Any] | None = None,
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> Result:
    """Runs a scenario: what ``anabranch run SCENARIO --json`` prints, as a dict.

    ``result.tables["series"]`` has what happened over time, in the columns of ``series.parquet``; ``["metrics"]`` the
    metrics as one row.

    Args:
        scenario: The path of a file, or a dict with the tables of one.
        overrides: What is otherwise than the scenario says, as ``{"run.seconds": 10}``.
        seed: Of every random stream, in place of the scenario's; not beside an override of ``run.seed``.
        out: Where ``summary.json``, ``series.parquet`` and ``report.html`` go; without it no file is written.
        threads: That run a large overlay together, as many as there are cores for None. The result is the same.

    Raises:
        ScenarioError: The scenario can't be read: file, line, key, and what is expected.
        ValueError: Not a number of threads.
        RunError: A controller can't go on, or nothing was delivered.
        KeyboardInterrupt: On Ctrl-C, within a tenth of a second.
    """
    _check_threads(threads)
    _check_seed(seed)
    given.folder("out", out)
    _check_said_once(overrides, {} if seed is None else {_SEED: "seed"})
    return Result(_native.run(_as_path_or_dict(scenario), _copy("overrides", overrides), seed, out, threads))


def _check_said_once(overrides: Mapping[str, Any] | None, others: Mapping[str, str]) -> None:
    """Refuses an override of a key that something else says, too: it would do nothing."""
    for key, value in overrides.items() if isinstance(overrides, Mapping) else ():
        if key in others:
            raise ValueError(f'overrides["{key}"] is {value!r}, and {others[key]} says {key}, too: give one of them')


def _check_threads(threads: int | None) -> None:
    if threads is not None:
        given.integer("threads", threads, 1, _MOST_THREADS)


def _check_seed(seed: int | None) -> None:
    if seed is not None:
        given.integer("seed", seed, 0, _MOST_SEED)


def experiments() -> dict[str, str]:
    """The papers' experiments by name, as ``anabranch reproduce --list`` has them, and what each asks."""
    return dict(_native.experiments())


def reproduce(
    experiment: str,
    *,
    quick: bool = False,
    seed: int | None = None,
    controllers: Sequence[str] = (),
    settings: Sequence[str] = (),
    policies: str | os.PathLike[str] | None = None,
) -> Result:
    """Runs a paper's experiment: what ``anabranch reproduce EXPERIMENT --json`` prints, as a dict.

    ``result["rows"]`` has a dict for each figure, ours beside the paper's, and what that says (``verdict``);
    ``result["totals"]`` counts; ``result.tables["rows"]`` is the rows as a table.

    Args:
        experiment: A name of :func:`experiments`.
        quick: A short run, of up to half a minute: the ordering holds, intervals are wide.
        seed: Of every random stream, in place of the scenario's.
        controllers: Others than the paper's, by name; ``["all"]`` is each that there is.
        settings: Only these of an experiment that has several.
        policies: A folder that ``python -m anabranch.train.c3`` has filled, in place of the repository's policies, for an
            experiment that plays some.

    Raises:
        ValueError: There is no such experiment, controller, setting or policy.
        KeyboardInterrupt: On Ctrl-C; there is nothing of the experiment then.
    """
    _check_seed(seed)
    return Result(
        _native.reproduce(
            given.text("experiment", experiment),
            given.flag("quick", quick),
            seed,
            given.names("controllers", controllers),
            given.names("settings", settings),
            given.folder("policies", policies),
        )
    )


def sweep(
    scenario: Scenario,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    again: bool = False,
    backend: str = "local",
    address: str | None = None,
) -> Result:
    """Runs a scenario over a grid: what ``anabranch sweep SCENARIO --json`` prints, as a dict.

    ``result["points"]`` has a dict for each combination and seed (``set``, ``seed``, ``controller``, ``metrics``,
    ``packet_hops``), ``result["combinations"]`` the means over seeds; both are ``result.tables``. Values of the grid are
    numbers there where all that a key takes are; the command has them as they were written. Results do not depend on
    ``threads`` or ``backend``.

    Args:
        scenario: The path of a file, or a dict with the tables of one.
        grid: Keys and the values that they take in turn, as ``{"overlay.relays": [1, 2, 3]}``.
        seeds: How many, from 1 on, or which, each once; the scenario's own unless given. A sweep has a million points
            at most.
        overrides: What is otherwise than the scenario says, in all points; no key of the grid.
        out: Where results go. Points that are there already are not run again, and what is done before Ctrl-C stays:
            the command and this function go on from each other's. Without it nothing is kept.
        threads: How many points run at once; as many as there are cores unless given.
        again: Run points again that are there.
        backend: "local" is threads of this process; "ray" is Ray's workers (``pip install ray``), on this machine or a
            cluster. A worker that dies loses nothing: its points are run again. This process alone writes.
        address: Of a Ray cluster, where the same version of this package is installed; without it Ray begins here, with
            ``threads`` workers. A program that has begun Ray itself (``ray.init``) keeps it.

    Raises:
        ScenarioError: The scenario, an override or a value of the grid is wrong.
        RunError: Points can't be run or deliver nothing: all others are measured, and written if there is ``out``, which
            says why the rest is missing; the same call tries that again. Or a worker has another version.
        ModuleNotFoundError: Ray is asked for and not installed.
    """
    if backend not in BACKENDS:
        raise ValueError(f'backend is "{backend}", must be "local" or "ray"')
    if address is not None and backend != "ray":
        raise ValueError("an address is that of a Ray cluster: it needs backend=\"ray\"")
    if address is not None and threads is not None:
        raise ValueError("threads are those of this machine: give them or the address of a cluster, not both")
    _check_threads(threads)
    given.folder("out", out)
    checked_grid = _checked_grid(_copy("grid", grid) or {})
    _check_said_once(overrides, ({} if seeds is None else {_SEED: "seeds"}) | dict.fromkeys(checked_grid, "grid"))
    arguments = (
        _as_path_or_dict(scenario),
        checked_grid,
        None if seeds is None else _checked_seeds(seeds),
        _copy("overrides", overrides),
        threads,
        given.flag("again", again),
    )

    def swept(out: Any) -> Result:
        scenario, grid, seeds, overrides, threads, again = arguments
        if backend == "ray":
            from anabranch._ray import drive

            driver = _native.Driver(scenario, grid, out, seeds, overrides, again)
            result = Result(drive(driver, threads=threads, address=address))
        else:
            result = Result(_native.sweep(scenario, grid, out, seeds, overrides, threads, again))
        if result.get("failed"):
            raise PointsFailed(result)
        return result

    if out is not None:
        return swept(out)
    with tempfile.TemporaryDirectory(prefix="anabranch-") as temporary:
        return swept(temporary)


def _checked_seeds(seeds: Any) -> list[int]:
    """Which they are: a number that is too large would fill the memory before Rust could refuse it."""
    if isinstance(seeds, str) or not isinstance(seeds, Iterable) or getattr(seeds, "shape", None) == ():
        return list(range(1, given.integer("seeds", seeds, 1, _MOST_POINTS, ", or a list of seeds") + 1))
    found = list(islice(seeds, _MOST_POINTS + 1))
    if len(found) > _MOST_POINTS:
        raise ValueError(f"seeds has more than {_MOST_POINTS}, must have {_MOST_POINTS} at most")
    found = [given.integer(f"seeds[{place}]", seed, 0, _MOST_SEED) for place, seed in enumerate(found)]
    if twice := _twice(found):
        raise ValueError(f"seeds has {twice[0]} twice: a mean would count it twice")
    return found


def _checked_grid(grid: dict[str, Any]) -> dict[str, Any]:
    """The grid, in which no number is there twice, however it is written."""
    for key, values in grid.items():
        if isinstance(values, (list, np.ndarray)):
            numbers = [one for one in values if isinstance(one, Real) and not isinstance(one, bool)]
            if twice := _twice(numbers):
                one, other = (str(number) for number in twice)
                said = f"{one} twice" if one == other else f"{one} and {other}, which are the same"
                raise ValueError(f'grid["{key}"] has {said}')
    return grid


def _twice(values: Iterable[Any]) -> tuple[Any, Any] | None:
    """The first that is there twice, as it is and as it was before."""
    seen: dict[Any, Any] = {}
    for value in values:
        if value in seen:
            return seen[value], value
        seen[value] = value
    return None


def _copy(name: str, mapping: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A plain dict, with lists in place of other sequences such as ranges and tuples."""
    if mapping is None:
        return None
    if not isinstance(mapping, Mapping):
        raise TypeError(f"{name} is of type {type(mapping).__name__}, must be a dict")
    return {key: list(value) if isinstance(value, (range, tuple)) else value for key, value in mapping.items()}
