"""What is given by name is taken where it is what it must be, NumPy's numbers too, and else refused by its name."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from test_runs import FLOWS

import anabranch
from anabranch._sweep_command import parser
from anabranch.policy import Policy
from anabranch.vector import VectorEnv

LAYERS = [(np.full((6, 1), 0.1, np.float32), np.zeros(1, np.float32))]
GRID = {"run.seconds": [2, 3]}


def env(**options):
    return gymnasium.make("anabranch/C3-Parallel-v0", **options)


def envs(**options):
    made = gymnasium.make_vec("anabranch/C3-Parallel-v0", **{"num_envs": 2, **options}).unwrapped
    made.reset(seed=1)
    return made


def rollout(steps=2, deviation=0.1):
    return envs().rollout(Policy(LAYERS), steps, deviation=deviation)


def saved(path="p.safetensors", **changes):
    options = {"features": ["loss"], "history": 6, "interval_rtts": 1.0, **changes}
    Policy(LAYERS).save_for_flow(path, **options)


def sweep(**options):
    return anabranch.sweep(FLOWS, **{"grid": GRID, **options})


REFUSED = [
    (lambda: env(history=-1), ValueError, "history is -1, must be from 1 to 64"),
    (lambda: env(history=1.5), TypeError, "history is of type float, must be an int from 1 to 64"),
    (lambda: env(history=True), TypeError, "history is of type bool"),
    (lambda: env(delay=-1), ValueError, "delay is -1, must be from 0 to 64"),
    (lambda: env(interval=True), TypeError, "interval is of type bool, must be a number"),
    (lambda: env(interval="1"), TypeError, "interval is of type str, must be a number"),
    (lambda: env(features={"queue"}), TypeError, "features is of type set, must be a list of names"),
    (lambda: env(features=5), TypeError, "features is of type int, must be a list of names"),
    (lambda: env(features=[1]), TypeError, "features[0] is of type int, must be a text"),
    (lambda: env(weights=[1]), TypeError, "weights is of type list, must be a dict"),
    (lambda: env(weights={"queue": True}), TypeError, 'weights["queue"] is of type bool, must be a number'),
    (lambda: env(weights={"queue": 10**400}), ValueError, 'weights["queue"] is larger than any float'),
    (lambda: env(link=5), TypeError, "link is of type int, must be a text"),
    (lambda: gymnasium.make("anabranch/Flow-v0", preset=5), TypeError, "preset is of type int, must be a text"),
    (lambda: envs(num_envs=-1), ValueError, "num_envs is -1, must be from 1 to 65536"),
    (lambda: envs(threads=-1), ValueError, "threads is -1, must be from 1 to 1024"),
    (lambda: envs(threads=True), TypeError, "threads is of type bool"),
    (lambda: envs(autoreset_mode="Later"), ValueError, 'autoreset_mode is "Later", must be one of "NextStep", '),
    (lambda: envs().reset(options=[1]), TypeError, "options is of type list, must be a dict"),
    (lambda: envs().step(np.zeros((2, 2), np.float32), out=()), TypeError, "out is of type tuple, must be what buf"),
    (lambda: envs().rollout(Policy(LAYERS), 1, out=()), TypeError, "out is of type tuple, must be what traj"),
    (lambda: envs().reset(seed="12"), TypeError, "seed is of type str, must be an int"),
    (lambda: rollout(steps=-1), ValueError, "steps is -1, must be from 1"),
    (lambda: rollout(steps=2.0), TypeError, "steps is of type float, must be an int"),
    (lambda: envs().trajectory(-1), ValueError, "steps is -1, must be from 1"),
    (lambda: rollout(deviation=-0.1), ValueError, "deviation is -0.1, must be 0 or more"),
    (lambda: rollout(deviation=None), TypeError, "deviation is of type NoneType, must be a number"),
    (lambda: rollout(deviation=[True]), TypeError, "deviation[0] is of type bool, must be a number"),
    (lambda: saved(history=-6), ValueError, "history is -6, must be from 1 to 64"),
    (lambda: saved(features="loss"), TypeError, 'features is the text "loss", must be a list of names'),
    (lambda: saved(features={"loss"}), TypeError, "features is of type set"),
    (lambda: saved(interval_rtts=True), TypeError, "interval_rtts is of type bool, must be a number"),
    (lambda: sweep(seeds=0), ValueError, "seeds is 0, must be from 1 to 1000000, or a list of seeds"),
    (lambda: sweep(seeds=10**9), ValueError, "seeds is 1000000000, must be from 1 to 1000000"),
    (lambda: sweep(seeds=range(10**9)), ValueError, "seeds has more than 1000000"),
    (lambda: sweep(seeds=True), TypeError, "seeds is of type bool"),
    (lambda: sweep(seeds="12"), TypeError, "seeds is of type str"),
    (lambda: sweep(seeds=[2, -1]), ValueError, "seeds[1] is -1, must be from 0 to 9223372036854775807"),
    (lambda: sweep(seeds=[1, 2, np.int64(1)]), ValueError, "seeds has 1 twice"),
    (lambda: sweep(grid={"run.seconds": [2, 3, 2.0]}), ValueError, "has 2 and 2.0, which are the same"),
    (lambda: sweep(again="yes"), TypeError, "again is of type str, must be True or False"),
    (lambda: sweep(threads=True), TypeError, "threads is of type bool"),
    (lambda: sweep(out=""), ValueError, "out is empty, must be the path of a folder"),
    (lambda: anabranch.run(FLOWS, out=""), ValueError, "out is empty"),
    (lambda: anabranch.run(FLOWS, out=5), TypeError, "out is of type int, must be the path of a folder"),
    (lambda: anabranch.run(FLOWS, seed=True), TypeError, "seed is of type bool"),
    (lambda: anabranch.reproduce("c3-fct", quick=1), TypeError, "quick is of type int, must be True or False"),
    (lambda: anabranch.reproduce("c3-fct", controllers=None), TypeError, "controllers is of type NoneType"),
    (lambda: anabranch.reproduce("c3-fct", policies=""), ValueError, "policies is empty"),
    (lambda: anabranch.reproduce(3), TypeError, "experiment is of type int, must be a text"),
    (lambda: VectorEnv("Flow"), ValueError, "environments with hosts"),
    (lambda: VectorEnv(5), TypeError, "environment is of type int, must be a text"),
]


@pytest.mark.parametrize(("call", "error", "said"), REFUSED, ids=[said for _, _, said in REFUSED])
def test_what_can_not_be_is_named(call, error, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error) as raised:
        call()
    assert said in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_numpys_numbers_are_numbers(tmp_path):
    one = env(history=np.int64(2), delay=np.uint8(1), interval=np.float64(0.5), weights={"queue": np.float32(0.5)})
    assert one.observation_space.shape == (24,)
    many = envs(num_envs=np.int64(3), threads=np.int8(1))
    assert type(many.num_envs) is int and many.reset(seed=np.array([1, 2, 3]))[0].shape == (3, 12)
    of_floats = rollout(deviation=0.25).actions.tobytes()
    for deviation in (np.float32(0.25), np.float64(0.25), np.array(0.25), [np.float32(0.25)], np.array([0.25])):
        assert rollout(np.int64(2), deviation).actions.tobytes() == of_floats
    saved(tmp_path / "p.safetensors", history=np.int64(6), interval_rtts=np.float32(1))
    assert len(sweep(seeds=np.int64(2), threads=np.int64(1))["points"]) == 4
    assert anabranch.run(FLOWS, seed=np.int64(3))["seed"] == 3


@pytest.mark.parametrize("name", ["C3-Parallel", "anabranch/C3-Parallel-v0"])
def test_an_environment_is_named_alike_wherever_one_is_made(name):
    from anabranch.env import Env

    pytest.importorskip("pettingzoo")
    rows = [Env(name).reset(seed=1)[0], VectorEnv(name).reset(seed=1)[0][0]]
    hosts = anabranch.parallel_env(name)
    hosts.reset(seed=1)
    assert {row.tobytes() for row in (*rows, hosts.state())} == {env().reset(seed=1)[0].tobytes()}
    assert VectorEnv("anabranch/Scenario-v0", scenario=FLOWS).hosts == VectorEnv(scenario=FLOWS).hosts == 1


def test_the_command_of_sweeps_names_too_many_seeds(capsys):
    with pytest.raises(SystemExit, match="2"):
        parser().parse_args(["s.toml", "--out", "out", "--seeds", "1..1000000000"])
    assert "1..1000000000 are more than the 1000000 points that a sweep may have" in capsys.readouterr().err


def test_ray_is_asked_for_without_gymnasium():
    program = """
import sys, types
sys.modules["gymnasium"] = None
ray = sys.modules["ray"] = types.ModuleType("ray")
ray.exceptions = sys.modules["ray.exceptions"] = types.ModuleType("ray.exceptions")
ray.exceptions.RayError = ray.exceptions.RayTaskError = RuntimeError
import importlib.util
importlib.util.find_spec = lambda name, *rest: None
import anabranch, anabranch._ray
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
