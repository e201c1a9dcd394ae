"""What the command ``anabranch`` gives, as dicts."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch import _native

Scenario = str | os.PathLike[str] | Mapping[str, Any]
"""The path of a scenario file, or a dict with its tables."""


def _as_path_or_dict(scenario: Scenario) -> Any:
    return dict(scenario) if isinstance(scenario, Mapping) else scenario


def controllers() -> list[dict[str, Any]]:
    """What can be asked for by name, in the order of ``anabranch controllers``.

    Each has ``name``, ``kind`` ("path": a rate for each peer; "flow": one sender's window and pacing rate), ``summary``,
    ``source`` (the paper or RFC), ``real_network`` (False: in simulations alone) and ``needs`` (a text or None).
    """
    return json.loads(_native.controllers())


def run(
    scenario: Scenario,
    *,
    overrides: Mapping[str, Any] | None = None,
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Runs a scenario: what ``anabranch run SCENARIO --json`` prints, as a dict.

    Args:
        scenario: The path of a file, or a dict with the tables of one.
        overrides: What is otherwise than the scenario says, as ``{"run.seconds": 10}``.
        seed: Of every random stream, in place of the scenario's.
        out: Where ``summary.json``, ``series.parquet`` and ``report.html`` go; without it no file is written.

    Raises:
        ScenarioError: The scenario can't be read: file, line, key, and what is expected.
        RunError: A controller can't go on.
        KeyboardInterrupt: On Ctrl-C, within a tenth of a second.
    """
    return json.loads(_native.run(_as_path_or_dict(scenario), _copy(overrides), seed, out))


def sweep(
    scenario: Scenario,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    seeds: int | Sequence[int] | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    again: bool = False,
) -> dict[str, Any]:
    """Runs a scenario over a grid: what ``anabranch sweep SCENARIO --json`` prints, as a dict.

    ``result["points"]`` has a dict for each combination and seed (``set``, ``seed``, ``controller``, ``metrics``,
    ``packet_hops``), ``result["combinations"]`` the means over seeds. Results do not depend on ``threads``.

    Args:
        scenario: The path of a file, or a dict with the tables of one.
        grid: Keys and the values that they take in turn, as ``{"overlay.relays": [1, 2, 3]}``.
        seeds: How many, from 1 on, or which; the scenario's own unless given.
        overrides: What is otherwise than the scenario says, in all points.
        out: Where results go. Points that are there already are not run again, and what is done before Ctrl-C stays:
            the command and this function go on from each other's. Without it nothing is kept.
        threads: How many points run at once; as many as there are cores unless given.
        again: Run points again that are there.

    Raises:
        ScenarioError: The scenario, an override or a value of the grid is wrong.
        RunError: A point can't be run.
    """
    if isinstance(seeds, int):
        if seeds < 1:
            raise ValueError(f"seeds is {seeds}, must be how many, 1 or more, or a list")
        seeds = range(1, seeds + 1)
    arguments = (
        _copy(grid) or {},
        None if seeds is None else list(seeds),
        _copy(overrides),
        threads,
        again,
    )
    if out is not None:
        return _sweep(scenario, out, *arguments)
    with tempfile.TemporaryDirectory(prefix="anabranch-") as temporary:
        return _sweep(scenario, temporary, *arguments)


def _sweep(scenario, out, grid, seeds, overrides, threads, again) -> dict[str, Any]:
    return json.loads(_native.sweep(_as_path_or_dict(scenario), grid, out, seeds, overrides, threads, again))


def _copy(mapping: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A plain dict, with lists in place of other sequences such as ranges and tuples."""
    if mapping is None:
        return None
    return {key: list(value) if isinstance(value, (range, tuple)) else value for key, value in mapping.items()}
