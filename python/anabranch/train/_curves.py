"""Learning curves as a page that stands alone."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from anabranch import _native
from anabranch._page import target


def write_page(out: Path, by: str, about: Mapping[str, str], reached: Mapping[str, float], reached_is: str) -> None:
    """``out/curves.html``: the curves of trainings that reached something, one above the other, and what that is."""
    curves = {}
    # Whatever else lies beside their folders is somebody's.
    for seed in reached:
        if seed.startswith("seed-") and (path := out / seed / "curve.csv").exists():
            with path.open(newline="") as file:
                curves[seed] = list(csv.DictReader(file))
    columns = [name for name in next(iter(curves.values()), [{}])[0] if name != "steps"]
    charts = [
        (f"{column.replace('_', ' ')}, of each training.", (column.replace("_", " "), ""),
         [(seed, [(float(row["steps"]), float(row[column])) for row in rows]) for seed, rows in curves.items()])
        for column in columns
    ]  # fmt: skip
    facts = [*about.items(), *((f"{reached_is}: {who}", f"{value:.4f}") for who, value in reached.items())]
    rows = [[float(row[name]) for name in row] for rows in curves.values() for row in rows]
    table = ("All rows of the curves", ["steps", *columns], rows)
    _native.write_page(target(out / "curves.html"), f"Training by {by}", facts, ("steps", ""), charts, table)
