"""What the command gives, as dicts."""

import json
import signal
import subprocess
import sys
import threading
import time

import numpy
import pytest

import anabranch

OVERLAY = {"run": {"seconds": 5}, "overlay": {"peers": 20, "relays": 3, "controller": "aimd"}}
FLOWS = {
    "run": {"seconds": 3},
    "dumbbell": {"rate": "1 Mbit/s", "delay_ms": 5},
    "flow": [{"controller": "reno"}],
}


def without_clock(result):
    return {key: value for key, value in result.items() if key not in ("wall_s", "packet_hops_per_s", "scenario")}


def test_controllers_are_those_that_can_be_asked_for():
    listed = {(entry["kind"], entry["name"]): entry for entry in anabranch.controllers()}
    assert {"cubic", "bbr", "learningcc", "xavier"} <= {name for kind, name in listed if kind == "flow"}
    assert {"aimd", "q-learning", "random"} <= {name for kind, name in listed if kind == "path"}
    assert listed["flow", "cubic"]["source"].startswith("RFC 9438")
    assert not all(entry["real_network"] for entry in listed.values())


@pytest.mark.parametrize("scenario", [OVERLAY, FLOWS], ids=["overlay", "flows"])
def test_a_dict_runs_as_the_file_does_and_a_seed_says_everything(scenario, tmp_path):
    path = tmp_path / "scenario.toml"
    # Every JSON value here is one of TOML too.
    lines = []
    for table, content in scenario.items():
        for keys in content if isinstance(content, list) else [content]:
            lines.append(f"[[{table}]]" if isinstance(content, list) else f"[{table}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    path.write_text("\n".join(lines))
    of_dict = anabranch.run(scenario, seed=5)
    assert of_dict["metrics"] and of_dict["seed"] == 5 and not of_dict["interrupted"]
    assert without_clock(of_dict) == without_clock(anabranch.run(str(path), overrides={"run.seed": 5}))
    if scenario is OVERLAY:
        assert without_clock(of_dict) != without_clock(anabranch.run(path, seed=6))


def test_files_are_written_where_it_is_said(tmp_path):
    result = anabranch.run(FLOWS, out=tmp_path / "run")
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"summary.json", "series.parquet", "report.html"}
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["metrics"] == result["metrics"]


def test_a_sweep_has_each_point_whatever_the_threads_and_goes_on_from_what_is_there(tmp_path):
    grid = {"overlay.relays": [1, 2], "overlay.controller": ["aimd", "random"]}
    one = anabranch.sweep(OVERLAY, grid, seeds=2, threads=1)
    two = anabranch.sweep(OVERLAY, grid, seeds=[1, 2], threads=2, out=tmp_path)
    assert one["points"] == two["points"] and one["combinations"] == two["combinations"]
    assert [point["seed"] for point in one["points"]] == [1, 2] * 4
    assert one["points"][2]["set"] == {"overlay.relays": 1, "overlay.controller": "random"}
    again = anabranch.sweep(OVERLAY, grid, seeds=2, out=tmp_path)
    assert (again["skipped"], again["points"]) == (8, one["points"])
    alone = anabranch.run(OVERLAY, seed=2, overrides={"overlay.relays": 1})
    assert alone["packet_hops"] == one["points"][1]["packet_hops"]


def wrong(call, *arguments, **options):
    with pytest.raises((ValueError, TypeError, OSError)) as raised:
        call(*arguments, **options)
    return raised.value


def test_what_is_wrong_is_said_with_what_would_be_right(tmp_path):
    error = wrong(anabranch.run, {**OVERLAY, "overlay": {"relay": 3}})
    assert isinstance(error, anabranch.ScenarioError) and "relays" in str(error)
    assert "run.seconds is None" in str(wrong(anabranch.run, {"run": {"seconds": None}}))
    assert 'overrides["run.second"]' in str(wrong(anabranch.run, OVERLAY, overrides={"run.second": 1}))
    assert isinstance(wrong(anabranch.run, tmp_path / "none.toml"), FileNotFoundError)
    assert "path of a file or a dict" in str(wrong(anabranch.run, 5))
    assert "must be a list" in str(wrong(anabranch.sweep, OVERLAY, {"overlay.relays": 3}))
    assert "twice" in str(wrong(anabranch.sweep, OVERLAY, {"overlay.relays": [3, 3]}))
    assert "seeds is 0" in str(wrong(anabranch.sweep, OVERLAY, seeds=0))
    assert "threads is 0" in str(wrong(anabranch.sweep, OVERLAY, threads=0))
    for call in (anabranch.run, anabranch.sweep):
        # A hundred thousand threads would keep the machine waiting.
        assert "threads is 100000, must be from 1 to 1024" in str(wrong(call, OVERLAY, threads=100_000))
        assert "threads is of type str, must be an int from 1 to 1024" in str(wrong(call, OVERLAY, threads="2"))
        assert "overrides is of type list, must be a dict" in str(wrong(call, OVERLAY, overrides=["run.seconds"]))
    assert "seed is -1, must be from 0 to 9223372036854775807" in str(wrong(anabranch.run, OVERLAY, seed=-1))
    assert "seed is of type float, must be an int" in str(wrong(anabranch.run, OVERLAY, seed=1.5))
    assert "seed is -1, must be from 0 to 9223372036854775807" in str(
        wrong(anabranch.reproduce, "raiber-table-7.1", seed=-1)
    )
    assert "no point" in str(wrong(anabranch.sweep, OVERLAY, seeds=[]))
    for overrides, said in (
        ({"run.seconds": float("nan")}, "run.seconds is nan, must be a finite number"),
        ({"run.seconds": numpy.float64("inf")}, "run.seconds is inf, must be a finite number"),
        ({"run.seconds": 2**64}, "run.seconds is 18446744073709551616, must be from -2^63 to 2^64 - 1"),
        ({"run.seconds": {1}}, "run.seconds is of type set, must be a number, a text, a list or a dict"),
        ({"overlay.relays": [1, [object()]]}, "overlay.relays[1][0] is of type object, must be a number"),
        ({5: 1}, "is a dict with a key of type int, must be a text"),
    ):
        assert said in str(wrong(anabranch.run, OVERLAY, overrides=overrides)), overrides
    endless = {}
    endless["run"] = endless
    assert ".run is nested more than 16 deep" in str(wrong(anabranch.run, endless))


def test_a_key_is_said_once():
    """As for the command: what is said twice would do nothing."""
    for call, said in [
        (lambda: anabranch.sweep(OVERLAY, {"overlay.relays": [1, 2]}, overrides={"overlay.relays": 3}), "3, and grid says"),
        (lambda: anabranch.sweep(OVERLAY, seeds=2, overrides={"run.seed": 4}), "4, and seeds says run.seed, too: give one"),
        (lambda: anabranch.run(OVERLAY, seed=2, overrides={"run.seed": 4}), "4, and seed says run.seed, too: give one of them"),
    ]:
        with pytest.raises(ValueError, match=said):
            call()


def test_numbers_of_numpy_are_numbers():
    plain = anabranch.run(OVERLAY, overrides={"overlay.relays": 2, "run.seconds": 20})
    of_numpy = anabranch.run(OVERLAY, overrides={"overlay.relays": numpy.int64(2), "run.seconds": numpy.uint8(20)})
    assert plain["metrics"] == of_numpy["metrics"]
    swept = anabranch.sweep(OVERLAY, {"overlay.relays": numpy.arange(1, 3)})
    assert [point["set"]["overlay.relays"] for point in swept["points"]] == [1, 2]


@pytest.mark.parametrize("call", [anabranch.run, anabranch.sweep])
def test_ctrl_c_stops_a_run_at_once(call):
    long = {**OVERLAY, "run": {"seconds": 10_000_000}}
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        call(long)
    assert time.monotonic() - began < 30
    timer.join()


@pytest.mark.parametrize("missing", ["gymnasium", "jax", "ray", "matplotlib"])
def test_it_is_imported_without_what_is_optional(missing):
    program = f"""
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.split(".")[0] == "{missing}" else found(name, *rest)
sys.modules["{missing}"] = None
import anabranch
assert anabranch.controllers() and anabranch.environments()
assert not {{"jax", "ray", "matplotlib", "torch"}} & {{name for name, module in sys.modules.items() if module}}
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


STREAM = {"run": {"seconds": 20}, "audience": {"clients": 3, "arrival_s": 1, "span_ms": 200_000}}
ONION = {"run": {"seconds": 40, "warmup_s": 4}, "onion": {"relays": 12, "loss": 0.99}, "users": {"count": 2}}


@pytest.mark.parametrize(("scenario", "whom"), [(STREAM, "any viewer"), (ONION, "users or services")], ids=["stream", "onion"])
def test_what_delivers_nothing_is_an_error_and_writes_nothing(scenario, whom, tmp_path):
    said = f"in {scenario['run']['seconds']} s nothing was delivered to {whom}"
    with pytest.raises(anabranch.RunError, match=said):
        anabranch.run(scenario, out=tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())
    with pytest.raises(anabranch.RunError, match=f"^seed 3: {said}"):
        anabranch.sweep(scenario, seeds=[3])
