"""The arguments and the words of ``python -m anabranch.sweep``."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from typing import Any

import anabranch
from anabranch import _native
from anabranch._runs import _MOST_POINTS, PointsFailed

INTERRUPTED = 130


def grid_key(text: str) -> tuple[str, list[str]]:
    """``KEY=V1,V2,...``; a comma within brackets or quotes belongs to its value, as the command has it."""
    key, equals, values = text.partition("=")
    found, depth, quoted = [""], 0, False
    for letter in values:
        quoted ^= letter == '"'
        depth += 0 if quoted else (letter in "[{") - (letter in "]}")
        if letter == "," and not quoted and depth <= 0:
            found.append("")
        else:
            found[-1] += letter
    found = [value.strip() for value in found]
    if not equals or not key.strip() or "" in found:
        raise argparse.ArgumentTypeError("expected KEY=VALUE,VALUE,... such as overlay.relays=1,2,3")
    return key.strip(), found


def override(text: str) -> tuple[str, Any]:
    """``KEY=VALUE``; what is no value of TOML is a text, as the command has it."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError("expected KEY=VALUE, such as run.seconds=500")
    try:
        found = tomllib.loads(f"value = {value}")["value"]
        json.dumps(found)
    except (tomllib.TOMLDecodeError, TypeError):
        found = value.strip()
    return key.strip(), found


def seed_range(text: str) -> list[int]:
    """``10`` or ``1..10``."""
    found = re.fullmatch(r"(?:(\d+)\s*\.\.\s*)?(\d+)", text.strip())
    if found is None or not (seeds := range(int(found[1] or 1), int(found[2]) + 1)):
        raise argparse.ArgumentTypeError("expected how many seeds, such as 10, or the first and the last, such as 1..10")
    if len(seeds) > _MOST_POINTS:
        raise argparse.ArgumentTypeError(f"{text} are more than the {_MOST_POINTS} points that a sweep may have")
    return list(seeds)


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    parser = argparse.ArgumentParser(
        "anabranch sweep --ray", description="Run a scenario over a grid of values and seeds, on Ray's workers.",
        allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("scenario", metavar="SCENARIO.toml")
    parser.add_argument("--grid", action="append", default=[], type=grid_key, metavar="KEY=V1,V2,...")
    parser.add_argument("--set", action="append", default=[], type=override, metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=seed_range, metavar="SEEDS")
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--again", action="store_true", help="run all points again")
    parser.add_argument("--threads", type=int, help="workers, where Ray begins here")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--ray", nargs="?", const=None, metavar="ADDRESS", help="of a cluster; without it Ray begins here")
    parser.add_argument("--made-by", help=argparse.SUPPRESS)
    return parser


def lines(result: dict[str, Any]) -> list[str]:
    """A line for each combination, with means over the seeds."""

    def shown(value: dict[str, float | None]) -> str:
        mean, half = value["mean"], value["ci95"]
        return "-" if mean is None else f"{mean:.4g}" if half is None else f"{mean:.4g} \u00b1 {half:.2g}"

    rows = [[*one["set"].values(), *map(shown, one["metrics"].values())] for one in result["combinations"]]
    first = result["combinations"][0]
    rows.insert(0, [*first["set"], *first["metrics"]])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def main(arguments: list[str] | None = None) -> int:
    """Runs what is missing; the exit code."""
    args = parser().parse_args(arguments)
    if args.made_by is not None and args.made_by != _native.measures():
        return failed(
            f"the command is version {args.made_by}, and the Python module is {_native.measures()}, which may measure "
            "something else: install both from the same sources"
        )
    grid = dict(args.grid)
    if len(grid) != len(args.grid):
        return failed("--grid: a key has two lists; give all its values in one, as in overlay.relays=1,2,3")
    failures: list[str] = []
    try:
        result = anabranch.sweep(
            args.scenario, grid, seeds=args.seeds, overrides=dict(args.set), out=args.out, threads=args.threads,
            again=args.again, backend="ray", address=args.ray,
        )  # fmt: skip
    except KeyboardInterrupt:
        how = (
            f"the same command runs all points again, and without --again what {args.out} has of the others counts"
            if args.again
            else "the same command goes on from there"
        )
        print(f"anabranch: interrupted: what is over is kept in {args.out}; {how}", file=sys.stderr)
        return INTERRUPTED
    except PointsFailed as error:
        result, failures = error.result, error.result["failed"]
    except (ValueError, TypeError, OSError, RuntimeError, ModuleNotFoundError) as error:
        return failed(str(error))
    if result["skipped"]:
        print(f"{result['skipped']} of {len(result['points'])} points were there already; --again runs them again",
              file=sys.stderr)  # fmt: skip
    if args.json:
        print(json.dumps({**result, "interrupted": False}))
    else:
        print(*lines(result), f"{len(result['points'])} points, {result['wall_s']:.2f} s", sep="\n")
    if result["finished"]:
        print(f"wrote results.csv, results.parquet and report.html in {args.out}", file=sys.stderr)
    if not failures:
        return 0
    print(*failures, sep="\n", file=sys.stderr)
    return failed(
        f"{len(failures)} of {len(result['points'])} points have no run, and no figures in {args.out}; the same command tries "
        "them again"
    )


def failed(what: str) -> int:
    """Says it as the command does."""
    print(f"anabranch: {what}", file=sys.stderr)
    return 2
