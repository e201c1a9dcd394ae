"""``python -m anabranch.sweep``, as far as it needs no Ray."""

import subprocess
import sys

import pytest

import anabranch
from anabranch._sweep_command import grid_key, override, seed_range


def command(*arguments, without=()):
    program = "import sys\n" + "".join(f"sys.modules[{name!r}] = None\n" for name in without)
    program += "import runpy\nrunpy.run_module('anabranch.sweep', run_name='__main__')"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60)


def test_the_module_does_not_take_the_functions_place():
    import anabranch.sweep

    assert callable(anabranch.sweep) and anabranch.sweep.__name__ == "sweep"
    from anabranch import sweep

    assert sweep is anabranch.sweep


def test_what_is_missing_is_named(tmp_path):
    said = command("s.toml", "--out", str(tmp_path / "out"), without=["ray"])
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == "anabranch: Ray is not installed: pip install ray\n"
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match='backend is "dask", must be "local" or "ray"'):
        anabranch.sweep({}, backend="dask")
    with pytest.raises(ValueError, match='it needs backend="ray"'):
        anabranch.sweep({}, address="ray.example:6379")
    with pytest.raises(ValueError, match="threads is 0, must be from 1 to 1024"):
        anabranch.sweep({}, backend="ray", threads=0)
    with pytest.raises(ValueError, match="not both"):
        anabranch.sweep({}, backend="ray", address="ray.example:6379", threads=2)


def test_another_version_than_the_commands_is_refused():
    said = command("s.toml", "--out", "out", "--made-by", "0.0.1+0")
    assert said.returncode == 2 and "the command is version 0.0.1+0" in said.stderr


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--seeds", "0"], "how many seeds"),
        (["--seeds", "3..1"], "how many seeds"),
        (["--grid", "overlay.relays"], "expected KEY=VALUE,VALUE"),
        (["--grid", "overlay.relays=1,,2"], "expected KEY=VALUE,VALUE"),
        (["--set", "=5"], "expected KEY=VALUE"),
        (["--grid", "a=1", "--grid", "a=2"], "two lists"),
        (["--gird", "a=1"], "--gird"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_is_right(wrong, said):
    done = command("s.toml", "--out", "out", *wrong)
    assert done.returncode == 2 and said in done.stderr


def test_values_are_read_as_the_command_reads_them():
    assert grid_key('flow.0.rates=[1, 2],"a,b", 3') == ("flow.0.rates", ["[1, 2]", '"a,b"', "3"])
    assert override("run.seconds=500") == ("run.seconds", 500)
    assert override("overlay.controller=aimd") == ("overlay.controller", "aimd")
    assert seed_range("3") == [1, 2, 3] and seed_range("2..3") == [2, 3]
