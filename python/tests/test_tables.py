"""Results as tables, read by those who read Arrow; and the papers' experiments."""

import copy
import multiprocessing
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor

import pytest
from test_runs import FLOWS, OVERLAY

import anabranch
from anabranch._runs import PointsFailed


@pytest.fixture(scope="module")
def swept():
    grid = {"overlay.relays": [1, 2], "overlay.controller": ["aimd", "random"]}
    return anabranch.sweep({**OVERLAY, "run": {"seconds": 8}}, grid, seeds=2, threads=1)


@pytest.mark.parametrize(("values", "found"), [
    ([10, 20], [10, 20]), ([10, 20.5], [10.0, 20.5]), (["10", "20"], ["10", "20"]),
], ids=["whole", "with a point", "texts"])  # fmt: skip
def test_what_a_grid_has_as_numbers_is_numbers_in_results(values, found, tmp_path):
    """The command's own files have them as they were written."""
    swept = anabranch.sweep(FLOWS, {"dumbbell.delay_ms": values}, out=tmp_path)
    for name in ("points", "combinations"):
        assert by_pyarrow(swept.tables[name])["dumbbell.delay_ms"] == found
        said = [row["set"]["dumbbell.delay_ms"] for row in swept[name]]
        assert said == found and [type(one) for one in said] == [type(one) for one in values]
    assert pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "results.parquet")["dumbbell.delay_ms"].to_pylist() == [
        str(one) for one in values
    ]


def by_pyarrow(table):
    return pytest.importorskip("pyarrow").table(table).to_pydict()


def by_polars(table):
    return pytest.importorskip("polars").DataFrame(table).to_dict(as_series=False)


def by_pandas(table):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame.from_arrow(table)
    return {name: [None if pandas.isna(value) else value for value in frame[name]] for name in frame}


READERS = pytest.mark.parametrize("read", [by_pyarrow, by_polars, by_pandas])


@READERS
def test_a_sweep_is_a_row_for_each_point_and_each_combination(swept, read):
    points = read(swept.tables["points"])
    assert points["overlay.controller"] == ["aimd", "aimd", "random", "random"] * 2
    assert points["seed"] == [1, 2] * 4
    for place, point in enumerate(swept["points"]):
        assert points["packet_hops"][place] == point["packet_hops"]
        for name, value in point["metrics"].items():
            assert points[name][place] == value, name
    # What did not converge has no number.
    assert points["convergence_s"] == [None] * 8
    means = read(swept.tables["combinations"])
    assert means["seeds"] == [2] * 4 and means["overlay.relays"] == [1, 1, 2, 2]
    for place, combination in enumerate(swept["combinations"]):
        found = combination["metrics"]["received_bytes_per_s"]
        assert means["received_bytes_per_s"][place] == found["mean"]
        assert means["received_bytes_per_s_ci95"][place] == found["ci95"]


@READERS
def test_a_run_is_its_series_and_a_row_of_metrics(read, tmp_path):
    ours = anabranch.run(FLOWS, out=tmp_path)
    series = read(ours.tables["series"])
    file = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "series.parquet").to_pydict()
    assert series.keys() == file.keys() and len(series["at_s"]) == len(ours.tables["series"]) > 100
    for name, values in file.items():
        assert series[name] == [None if value != value else value for value in values], name
    metrics = read(ours.tables["metrics"])
    assert {name: values[0] for name, values in metrics.items()} == ours["metrics"]
    assert ours.tables["series"].metadata["seed"] == "1" and "[[flow]]" in ours.tables["series"].metadata["scenario"]
    # Nothing is to be written for it.
    assert read(anabranch.run(FLOWS).tables["series"]) == series


@READERS
def test_an_experiment_is_a_row_for_each_figure(read):
    found = anabranch.reproduce("c3-fct", quick=True)
    assert (found["id"], found["quick"], found["seed"]) == ("c3-fct", True, 1)
    assert sum(sum(tally.values()) for tally in found["totals"].values()) == 4
    rows = read(found.tables["rows"])
    assert found.tables["rows"].columns == list(found["rows"][0])
    assert [dict(zip(rows, values)) for values in zip(*rows.values())] == found["rows"]
    cubic = next(row for row in found["rows"] if (row["subject"], row["metric"]) == ("cubic", "completion_ms"))
    # Four round trips of 50 ms, and what transmission takes.
    assert 200 < cubic["ours"] < 205 and cubic["verdict"] == "agrees"


def test_a_table_can_be_read_twice_and_outlives_its_result():
    polars = pytest.importorskip("polars")
    table = anabranch.run(FLOWS).tables["metrics"]
    assert polars.DataFrame(table).equals(polars.DataFrame(table), null_equal=True)
    assert table.columns and len(table) == 1 and "1 rows" in repr(table)


def test_tables_need_nobody_who_reads_them():
    program = """
import sys
for name in ("pandas", "polars", "pyarrow", "gymnasium"):
    sys.modules[name] = None
import anabranch
scenario = {"run": {"seconds": 1}, "dumbbell": {"rate": "1 Mbit/s", "delay_ms": 5}, "flow": [{"controller": "reno"}]}
table = anabranch.run(scenario).tables["series"]
assert type(table.__arrow_c_stream__()).__name__ == type(table.__arrow_c_schema__()).__name__ == "PyCapsule"
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def seeded(seed):
    return anabranch.run(FLOWS, seed=seed)


def test_a_result_goes_to_other_processes_with_its_tables(swept):
    pyarrow = pytest.importorskip("pyarrow")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        (there,) = pool.map(seeded, [3])
    here = seeded(3)
    assert there["metrics"] == here["metrics"]
    for result, copied in ((here, there), (swept, pickle.loads(pickle.dumps(swept)))):
        assert type(copied) is anabranch.Result and copied.keys() == result.keys()
        for name, table in result.tables.items():
            kept = pickle.loads(pickle.dumps(copied.tables[name]))
            assert pyarrow.table(kept).equals(pyarrow.table(table)) and pyarrow.schema(kept) == pyarrow.schema(table)
            assert (kept.columns, kept.metadata, len(kept), repr(kept)) == (
                table.columns, table.metadata, len(table), repr(table))  # fmt: skip


def test_what_has_failed_is_pickled_with_what_has_not(swept):
    pytest.importorskip("pyarrow")
    swept = copy.deepcopy(swept)
    swept["failed"] = ["seed 3: nothing"]
    error = pickle.loads(pickle.dumps(PointsFailed(swept)))
    assert str(error) == "seed 3: nothing" and error.result == swept
    assert error.result.tables.keys() == swept.tables.keys()


def test_a_copy_is_its_own_and_needs_nobody(swept, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    copied = copy.deepcopy(swept)
    assert copied == swept and copied.tables == swept.tables and type(copied) is anabranch.Result
    copied["points"].clear()
    assert swept["points"]
    with pytest.raises(ModuleNotFoundError, match="pip install pyarrow, or pickle dict"):
        pickle.dumps(swept)


def test_experiments_are_those_of_the_command():
    assert {"raiber-table-7.4", "learningcc-fig-5", "c3-fct"} <= anabranch.experiments().keys()
    with pytest.raises(ValueError, match="c3-fct"):
        anabranch.reproduce("c3-ftc")
    with pytest.raises(ValueError, match="cubik"):
        anabranch.reproduce("c3-fct", quick=True, controllers=["cubik"])
    with pytest.raises(TypeError, match='controllers is the text "cubic", must be a list'):
        anabranch.reproduce("c3-fct", controllers="cubic")


def test_ctrl_c_ends_an_experiment():
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        anabranch.reproduce("raiber-table-7.4")
    timer.join()
