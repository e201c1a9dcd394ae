#!/usr/bin/env python3
"""Writes the figures of full runs into the experiments' pages.

    anabranch reproduce --all --out out/full
    python3 experiments/tables.py out/full

Each README.md has a place between two comments; what stands there is replaced by
tables made from rows.json. A quick run is refused: pages hold full runs only.

A long experiment may be run in parts (--controllers, --setting), each with a folder of
its own. Given all of them, or a folder that holds them, the rows are put together; of two
with the same controller and metric the later one counts.

    python3 experiments/tables.py out/parts out/again

Without a folder it only counts anew, for the project's README.md, what the pages and
quick-verdicts.csv say, and says on pages whose quick run has since come to other verdicts
that they are older, which it does after writing pages too.
"""

import csv
import hashlib
import json
import pathlib
import re
import sys

# What each page calls what it is held against.
SOURCES = {
    "raiber": "thesis",
    "learningcc": "letter",
    "efthymiopoulos": "paper",
    "xavier": "report",
    "remy": "Remy's simulator",
    "c3": "slides",
    "anabranch": "reference",
    "stream": "reference",
    "onion": "reference",
}
# Whose experiments they are, in the table of all verdicts.
PAPERS = {
    "raiber": "[Raiber 2010]",
    "learningcc": "[LearningCC]",
    "efthymiopoulos": "[Efthymiopoulos 2015]",
    "xavier": "[Xavier]",
    "remy": "Remy's simulator",
    "c3": "[C3]",
    "anabranch": "our learners",
    "stream": "our streams",
    "onion": "our onion overlay",
}
KINDS = ["predeclared", "after", "fitted"]
VERDICTS = {"agrees": "agrees", "disagrees": "**disagrees**", "open": "open", None: "–"}
BEGIN, END = "<!-- figures of a full run -->", "<!-- end of figures -->"
# What quick runs said at the time of a page's full run, and what a page says once they say something else.
QUICK = re.compile(r"<!-- quick runs said ([0-9a-f]{8}) -->")
OLDER = "**Older than the code**: since this run, quick runs of this experiment have come to other verdicts.\n"
BEGIN_ALL, END_ALL = "<!-- verdicts of all experiments -->", "<!-- end of verdicts -->"


def number(value):
    if value is None:
        return "–"
    size = abs(value)
    if size >= 1e5:
        return f"{value:,.0f}".replace(",", " ")
    if size >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    if size >= 100 or value == int(value):
        return f"{value:.0f}" if value == int(value) else f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    if size >= 0.001:
        return f"{value:.3g}"
    return f"{value:.2g}"


def ours(row):
    text = number(row["ours"])
    return f"{text} ± {number(row['ci95'])}" if row.get("ci95") is not None else text


def with_unit(row):
    return ours(row) + (f" {row['unit']}" if row["unit"] else "")


def totals(result):
    """The rows of each kind in words; only predeclared ones are counted."""
    said = []
    for kind, tally in result["totals"].items():
        if kind == "predeclared" or any(tally.values()):
            counts = f"{tally['agree']} agree, {tally['disagree']} disagree, {tally['open']} open"
            said.append(f"{kind}{'' if kind == 'predeclared' else ' (not counted)'} {counts}")
    return "; ".join(said) + "."


def of_paper(names, name):
    return next(said for start, said in names.items() if name.startswith(start))


def table(header, lines):
    out = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return out + ["| " + " | ".join(line) + " |" for line in lines]


def tables(result, source):
    plain, swept = [], {}
    for row in result["rows"]:
        match = re.fullmatch(r"([^\[]+)\[(.*)\]", row["metric"])
        # A judged row is a statement of its own, even at one value of a parameter.
        if match and row["verdict"] is None and row["paper"] is None:
            base, at = match.groups()
            swept.setdefault((base, row["unit"], at.split("=")[0] if "=" in at else ""), {}).setdefault(at, {})[row["subject"]] = row
        else:
            plain.append(row)
    out = []
    # A paper's numbers first, then ranges alone; the rest folds away.
    said = [row for row in plain if row["paper"] is not None or row["kind"] is not None]
    said.sort(key=lambda row: row["paper"] is None)
    rest = [row for row in plain if row["paper"] is None and row["kind"] is None]
    if said:
        lines = [
            [
                row["subject"],
                f"`{row['metric']}`",
                with_unit(row),
                number(row["paper"]),
                VERDICTS[row["verdict"]],
                row["kind"] or "–",
                row["note"] or "–",
            ]
            for row in said
        ]
        out += table(["controller", "metric", "ours", source, "verdict", "range", "what is judged"], lines)
        out += ["", f"Verdicts: {totals(result)}", ""]
    folded = []
    if rest:
        lines = [[row["subject"], f"`{row['metric']}`", with_unit(row), row["note"] or "–"] for row in rest]
        folded += table(["controller", "metric", "ours", "note"], lines) + [""]
    for (base, unit, _), rows in swept.items():
        subjects = list(dict.fromkeys(subject for row in rows.values() for subject in row))
        head = f"`{base}`" + (f" ({unit})" if unit else "")
        lines = [[at] + [ours(row[s]) if s in row else "–" for s in subjects] for at, row in rows.items()]
        folded += table([head, *subjects], lines) + [""]
    if folded and said:
        folded = ["<details>", "<summary>All other figures</summary>", "", *folded, "</details>", ""]
    out += folded
    out.append(f"First seed {result['seed']}.")
    return "\n".join(out)


def merged(parts, expected):
    """One result of several: its rows in the order of the expectations, then as they come."""
    for rows, part in parts:
        if part["quick"]:
            sys.exit(f"{rows}: this was a quick run")
        if "totals" not in part:
            sys.exit(f"{rows}: an older version made it; run the experiment again")
        if part["seed"] != parts[0][1]["seed"]:
            sys.exit(f"{rows}: another seed than that of {parts[0][0]}")
    result = parts[-1][1]
    if len(parts) == 1:
        return result
    kept = {(row["subject"], row["metric"]): row for _, part in parts for row in part["rows"]}
    metrics = list(dict.fromkeys([metric for _, metric in expected] + [metric for _, metric in kept]))
    subjects = list(dict.fromkeys([subject for subject, _ in expected] + [subject for subject, _ in kept]))
    rows = sorted(kept.values(), key=lambda row: (metrics.index(row["metric"]), subjects.index(row["subject"])))
    totals = {kind: dict.fromkeys(["agree", "disagree", "open"], 0) for kind in result["totals"]}
    for row in rows:
        if row["kind"] and row["verdict"]:
            totals[row["kind"]][{"agrees": "agree", "disagrees": "disagree"}.get(row["verdict"], "open")] += 1
    return result | {"rows": rows, "totals": totals}


def quick_runs(here):
    """The lines of quick-verdicts.csv, by their experiments."""
    lines = {}
    for line in csv.DictReader((here / "quick-verdicts.csv").read_text(encoding="utf-8").splitlines()):
        lines.setdefault(line["experiment"], []).append(line)
    return lines


def digest(lines):
    """Eight hexadecimal digits for what a quick run said of an experiment."""
    said = sorted(",".join(line.values()) for line in lines)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:8]


def aged(figures, lines):
    """A page's figures, which say that they are older than the code if quick runs now come to other verdicts."""
    figures = figures.replace(OLDER, "")
    then = QUICK.search(figures)
    if not figures.strip() or not lines or (then and then.group(1) == digest(lines)):
        return figures
    return f"\n\n{OLDER}\n{figures.lstrip()}"


def counts_of(here):
    """For each experiment, whether its page shows a full run, and how many rows of each kind agree, disagree and are
    open: in that run or, where there is none, in the quick run that quick-verdicts.csv keeps."""
    quick = {}
    for name, lines in quick_runs(here).items():
        quick[name] = {kind: dict.fromkeys(["agrees", "disagrees", "open"], 0) for kind in KINDS}
        for line in lines:
            quick[name][line["range"]][line["verdict"]] += 1
    for page in sorted(here.glob("*/README.md")):
        name = page.parent.name
        figures = page.read_text(encoding="utf-8").split(BEGIN, 1)[1].split(END, 1)[0]
        if not figures.strip():
            yield name, False, {kind: tuple(tally.values()) for kind, tally in quick.get(name, {}).items()}
            continue
        said = re.search(r"^Verdicts: (.*)\.$", figures, re.M).group(1)
        found = re.findall(r"(\w+)(?: \(not counted\))? (\d+) agree, (\d+) disagree, (\d+) open", said)
        yield name, True, {kind: tuple(map(int, numbers)) for kind, *numbers in found}


def of_all(here):
    """The table of all verdicts: a line for each paper, and one for its experiments without a full run."""
    lines = {}
    for name, is_full, counts in counts_of(here):
        line = lines.setdefault((of_paper(PAPERS, name), is_full), {"experiments": 0} | dict.fromkeys(KINDS, (0, 0, 0)))
        line["experiments"] += 1
        for kind, numbers in counts.items():
            line[kind] = tuple(map(sum, zip(line[kind], numbers)))
    order = list(PAPERS.values())
    lines = sorted(lines.items(), key=lambda item: (order.index(item[0][0]), not item[0][1]))
    cell = lambda numbers: " / ".join(map(str, numbers)) if any(numbers) else "–"
    return "\n".join(
        table(
            ["agree / disagree / open", "runs", "experiments", *KINDS],
            [
                [paper, "full" if is_full else "quick", str(line["experiments"]), *(cell(line[kind]) for kind in KINDS)]
                for (paper, is_full), line in lines
            ],
        )
    )


def write_between(page, begin, end, what):
    """Replaces what stands in `page` between two comments."""
    before, rest = page.read_text(encoding="utf-8").split(begin, 1)
    page.write_text(f"{before}{begin}\n\n{what}\n\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")


def main():
    folders, here = [pathlib.Path(folder) for folder in sys.argv[1:]], pathlib.Path(__file__).parent
    quick = quick_runs(here)
    for page in sorted(here.glob("*/README.md")) if folders else []:
        name = page.parent.name
        found = [rows for folder in folders for rows in sorted(folder.rglob(f"{name}/rows.json"))]
        if not found:
            print(f"{name}: no rows.json", file=sys.stderr)
            continue
        lines = (page.parent / "expected.csv").read_text(encoding="utf-8").splitlines()
        lines = csv.DictReader(line for line in lines if not line.startswith("#"))
        expected = [(line["subject"], line["metric"]) for line in lines]
        result = merged([(rows, json.loads(rows.read_text(encoding="utf-8"))) for rows in found], expected)
        there = {(row["subject"], row["metric"]) for row in result["rows"]}
        for subject, metric in expected:
            if (subject, metric) not in there:
                print(f"{name}: no figure for {subject}, {metric}", file=sys.stderr)
        said = tables(result, of_paper(SOURCES, name))
        if name in quick:
            said += f"\n\n<!-- quick runs said {digest(quick[name])} -->"
        write_between(page, BEGIN, END, said)
    for page in sorted(here.glob("*/README.md")):
        text = page.read_text(encoding="utf-8")
        before, rest = text.split(BEGIN, 1)
        figures, after = rest.split(END, 1)
        new = f"{before}{BEGIN}{aged(figures, quick.get(page.parent.name))}{END}{after}"
        if new != text:
            page.write_text(new, encoding="utf-8")
    write_between(here.parent / "README.md", BEGIN_ALL, END_ALL, of_all(here))


if __name__ == "__main__":
    main()
