"""README.md's table of all verdicts says what the experiments' pages and their quick runs say."""

import csv
import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"

spec = importlib.util.spec_from_file_location("experiments_tables", EXPERIMENTS / "tables.py")
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)


def test_the_table_is_what_the_pages_say():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text.split(tables.BEGIN_ALL)[1].split(tables.END_ALL)[0].strip()
    assert shown == tables.of_all(EXPERIMENTS), "run python3 experiments/tables.py"


def test_every_experiment_that_is_held_is_counted():
    counts = {name: sum(map(sum, kinds.values())) for name, _, kinds in tables.counts_of(EXPERIMENTS)}
    folders = {page.parent.name for page in EXPERIMENTS.glob("*/README.md")}
    assert counts.keys() == folders and len(folders) > 50
    assert [name for name, count in counts.items() if count == 0] == []


def test_a_changed_page_changes_the_table(tmp_path):
    (tmp_path / "quick-verdicts.csv").write_text(
        "experiment,subject,metric,range,verdict\nc3-fct,cubic,ms,predeclared,open\nc3-loss,cubic,kept,after,agrees\n"
    )
    for name, figures in [
        ("c3-fct", ""),
        ("c3-loss", "Verdicts: predeclared 1 agree, 0 disagree, 2 open; after (not counted) 0 agree, 3 disagree, 0 open."),
    ]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text(f"{tables.BEGIN}\n\n{figures}\n\n{tables.END}\n")
    assert tables.of_all(tmp_path).splitlines()[2:] == [
        "| [C3] | full | 1 | 1 / 0 / 2 | 0 / 3 / 0 | – |",
        "| [C3] | quick | 1 | 0 / 0 / 1 | – | – |",
    ]


def test_a_papers_numbers_come_first_then_ranges_and_the_rest_folds_away():
    def row(metric, paper, kind):
        return {"subject": "cubic", "metric": metric, "unit": "", "ours": 1.0, "paper": paper, "verdict": None, "kind": kind, "note": ""}

    rows = [row("unsaid", None, None), row("range_1", None, "after"), row("number_1", 2.0, "after"), row("range_2", None, "after"), row("number_2", 2.0, None)]
    totals = {"predeclared": dict.fromkeys(["agree", "disagree", "open"], 0)}
    page = tables.tables({"rows": rows, "totals": totals, "seed": 1}, "report")
    shown, folded = page.split("<details>")
    places = [shown.index(f"`{name}`") for name in ("number_1", "number_2", "range_1", "range_2")]
    assert places == sorted(places) and "unsaid" not in shown and "`unsaid`" in folded


def test_pages_are_in_that_order():
    seen = 0
    for page in EXPERIMENTS.glob("*/README.md"):
        figures = page.read_text(encoding="utf-8").split(tables.BEGIN)[1].split(tables.END)[0]
        said = figures.split("\nVerdicts: ")[0]
        numbers = [line.split(" | ")[3] != "–" for line in said.splitlines() if line.count(" | ") == 6][1:]
        seen += len(numbers)
        assert numbers == sorted(numbers, reverse=True), page
    assert seen > 100


def figures_of(page):
    return page.read_text(encoding="utf-8").split(tables.BEGIN)[1].split(tables.END)[0]


def test_pages_whose_quick_runs_say_something_else_by_now_say_that_they_are_older():
    quick = tables.quick_runs(EXPERIMENTS)
    for page in EXPERIMENTS.glob("*/README.md"):
        figures = figures_of(page)
        assert figures == tables.aged(figures, quick.get(page.parent.name)), f"{page}: run python3 experiments/tables.py"


def test_a_page_is_older_once_a_verdict_turns_and_no_longer_once_it_is_run_again():
    line = {"experiment": "c3-loss", "subject": "cubic", "metric": "kept", "range": "after", "verdict": "agrees"}
    figures = f"\n\n| ... |\n\nFirst seed 1.\n\n<!-- quick runs said {tables.digest([line])} -->\n\n"
    assert tables.aged(figures, [line]) == figures
    other = [line | {"verdict": "open"}]
    older = tables.aged(figures, other)
    assert older.startswith(f"\n\n{tables.OLDER}\n| ... |") and tables.aged(older, other) == older
    assert tables.aged(older, [line]).strip() == figures.strip()
    assert tables.aged("\n\n", other) == "\n\n" and tables.aged(figures, None) == figures


def is_shown(figures, subject, metric):
    """Whether a figure has a line of its own, or one for its value of a parameter in a table of its metric."""
    base, _, at = metric.rstrip("]").partition("[")
    return f"\n| {subject} | `{metric}` |" in figures or (f"\n| `{base}`" in figures and f"\n| {at} |" in figures)


def test_every_judged_figure_is_on_its_page():
    for page in EXPERIMENTS.glob("*/README.md"):
        figures = figures_of(page)
        lines = (page.parent / "expected.csv").read_text(encoding="utf-8").splitlines()
        judged = [line for line in csv.DictReader(line for line in lines if not line.startswith("#")) if line["kind"]]
        missing = [line["metric"] for line in judged if not is_shown(figures, line["subject"], line["metric"])]
        assert not figures.strip() or missing == [], page
