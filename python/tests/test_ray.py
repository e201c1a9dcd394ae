"""Sweeps on Ray's workers: the same bytes as on one thread, whatever becomes of a worker. Needs Ray."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from files import contents

import anabranch
from anabranch import _native

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")

from anabranch import _ray  # noqa: E402

SCENARIO = {"run": {"seconds": 40}, "overlay": {"peers": 20, "relays": 3, "controller": "aimd"}}
GRID = {"overlay.relays": [1, 2], "overlay.controller": ["aimd", "random"]}

pytestmark = pytest.mark.usefixtures("cluster")


def test_files_are_those_of_one_thread_and_either_goes_on_from_the_other(tmp_path):
    one, both = tmp_path / "one", tmp_path / "ray"
    ours = anabranch.sweep(SCENARIO, GRID, seeds=3, threads=1, out=one)
    rays = anabranch.sweep(SCENARIO, GRID, seeds=3, backend="ray", out=both)
    assert contents(one) == contents(both) and len(contents(one)) == 15
    assert {**ours, "wall_s": 0} == {**rays, "wall_s": 0}
    assert len(rays.tables["points"]) == 12
    assert anabranch.sweep(SCENARIO, GRID, seeds=3, threads=2, out=both)["skipped"] == 12
    shutil.rmtree(both / "points")
    (both / "points").mkdir()
    kept = sorted((one / "points").iterdir())[:5]
    for path in kept:
        shutil.copy(path, both / "points")
    assert anabranch.sweep(SCENARIO, GRID, seeds=3, backend="ray", out=both)["skipped"] == 5
    assert contents(one) == contents(both)
    assert ray.is_initialized(), "a program's own Ray stays"


def test_a_killed_worker_loses_nothing(tmp_path, monkeypatch):
    """Each of two points kills its worker the first time that it is measured."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def dying(points, version):
        for place, _ in points:
            mark = marks / str(place)
            if place in (3, 8) and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return _ray.measured(points, version)

    monkeypatch.setattr(_ray, "measured", dying)
    one, both = tmp_path / "one", tmp_path / "ray"
    anabranch.sweep(SCENARIO, GRID, seeds=3, threads=1, out=one)
    anabranch.sweep(SCENARIO, GRID, seeds=3, backend="ray", out=both)
    assert sorted(path.name for path in marks.iterdir()) == ["3", "8"]
    assert contents(one) == contents(both)


def test_another_version_is_refused(monkeypatch, tmp_path):
    with pytest.raises(anabranch.RunError, match="the sweep is one of 0.0.1.*install the same everywhere"):
        _ray.measured([(0, "")], "0.0.1+0")
    # And what came from one is not kept.
    driver = _native.Driver(SCENARIO, {}, tmp_path)
    ((place, text),) = driver.missing()
    outcome = json.loads(_native.measure_point(text))
    with pytest.raises(anabranch.RunError, match="measured by version 0.0.1"):
        driver.keep(place, json.dumps({**outcome, "version": "0.0.1+0"}))
    with pytest.raises(anabranch.RunError, match="does not read"):
        driver.keep(place, "{}")
    with pytest.raises(ValueError, match="there is no point 1"):
        driver.keep(1, json.dumps(outcome))
    driver.keep(place, json.dumps(outcome))
    assert driver.finished() == (1, 1)
    # A worker of another version ends the sweep, and says why.
    monkeypatch.setattr(_ray._native, "measures", lambda: "0.0.1+0")
    with pytest.raises(anabranch.RunError, match="the sweep is one of 0.0.1"):
        anabranch.sweep(SCENARIO, backend="ray", out=tmp_path / "other")


def test_a_point_that_can_not_be_run_ends_the_sweep(tmp_path):
    overlay = {"peers": 20, "relays": 3, "controller": "aimd"}
    with pytest.raises(anabranch.ScenarioError):
        anabranch.sweep({"run": {"seconds": 5}, "overlay": {**overlay, "relays": 30}}, backend="ray", out=tmp_path)


def test_ctrl_c_keeps_what_is_over(tmp_path):
    grid = {"run.seconds": [20, 2_000_000, 3_000_000]}
    timer = threading.Thread(target=interrupt_when, args=(lambda: any((tmp_path / "points").glob("*.json")),))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        anabranch.sweep(SCENARIO, grid, backend="ray", out=tmp_path)
    timer.join()
    assert len(list((tmp_path / "points").glob("*.json"))) == 1
    assert anabranch.sweep(SCENARIO, {"run.seconds": [20]}, out=tmp_path)["skipped"] == 1
    # The workers are free again.
    assert anabranch.sweep(SCENARIO, backend="ray")["finished"] == 1


def interrupt_when(is_so):
    deadline = time.monotonic() + 60
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.02)
    signal.raise_signal(signal.SIGINT)


def test_tasks_are_long_enough_and_shared_out():
    assert _ray.chunk(100, 2, None) == 1
    assert _ray.chunk(100, 2, 5.0) == 1
    assert _ray.chunk(1000, 2, 0.1) == 20
    assert _ray.chunk(40, 2, 0.1) == 10
    assert _ray.chunk(1, 2, 0.001) == 1
    assert _ray.chunk(10**6, 2, 0.0) == 1000


def test_the_command_is_the_function(tmp_path):
    """``python -m anabranch.sweep`` begins a Ray of its own, and ends it."""
    scenario = tmp_path / "s.toml"
    scenario.write_text('[run]\nseconds = 10\n[overlay]\npeers = 20\nrelays = 3\ncontroller = "aimd"\n')
    command = [sys.executable, "-m", "anabranch.sweep", "s.toml", "--grid", "overlay.controller=aimd,random", "--seeds",
               "2..3", "--set", "run.seconds=20", "--out", "out", "--threads", "2", "--json"]  # fmt: skip
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    first = json.loads(said.stdout)
    again = anabranch.sweep(scenario, {"overlay.controller": ["aimd", "random"]}, seeds=[2, 3],
                            overrides={"run.seconds": 20}, out=tmp_path / "out")  # fmt: skip
    assert again["skipped"] == 4 and again["points"] == first["points"]
