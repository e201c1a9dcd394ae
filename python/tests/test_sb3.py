"""Stable-Baselines3's interface, by its own abstract class and beside its own vector of single environments.

Its files that need no torch are loaded by themselves; training needs torch, and is tested where that is installed.
"""

import importlib
import importlib.util
import subprocess
import sys
import types
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from anabranch.policy import Policy

SHORT = {"interval": 1.5}
IDS = ["anabranch/C3-Single-v0", "anabranch/C3-Parallel-v0", "anabranch/C3-Staggered-v0"]


@pytest.fixture(scope="module")
def sb3():
    """``VecEnv`` of ours and ``DummyVecEnv`` of theirs."""
    found = importlib.util.find_spec("stable_baselines3")
    if found is None:
        pytest.skip("Stable-Baselines3 is not installed: pip install --no-deps stable-baselines3")
    import anabranch.sb3

    if importlib.util.find_spec("torch") is not None:
        from stable_baselines3.common.vec_env import DummyVecEnv

        return anabranch.sb3.VecEnv, DummyVecEnv
    # Their packages' own code imports torch: these stand in for the packages, not for what is in them.
    folder = Path(found.submodule_search_locations[0])
    kept = dict(sys.modules)
    for name in ("stable_baselines3", "stable_baselines3.common", "stable_baselines3.common.vec_env"):
        package = types.ModuleType(name)
        package.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    # Of this one, only a check for nested spaces is used, which ours are not.
    preprocessing = types.ModuleType("stable_baselines3.common.preprocessing")
    preprocessing.check_for_nested_spaces = lambda space: None
    sys.modules[preprocessing.__name__] = preprocessing
    package.VecEnv = importlib.import_module("stable_baselines3.common.vec_env.base_vec_env").VecEnv
    try:
        dummy = importlib.import_module("stable_baselines3.common.vec_env.dummy_vec_env").DummyVecEnv
        yield anabranch.sb3.VecEnv, dummy
    finally:
        vars(anabranch.sb3).pop("VecEnv", None)
        for name in set(sys.modules) - set(kept):
            if name.startswith("stable_baselines3"):
                del sys.modules[name]


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("threads", [1, 2])
def test_it_is_what_their_vector_makes_of_single_ones(sb3, id, threads):
    ours = sb3[0](id, num_envs=5, threads=threads, **SHORT)
    theirs = sb3[1]([lambda: gymnasium.make(id, **SHORT) for _ in range(5)])
    assert (ours.num_envs, ours.observation_space, ours.action_space) == (
        theirs.num_envs, theirs.observation_space, theirs.action_space)  # fmt: skip
    assert ours.seed(11) == theirs.seed(11) == [11, 12, 13, 14, 15]
    assert ours.reset().tobytes() == theirs.reset().tobytes()
    ends = 0
    for step in range(18):
        actions = ((np.arange(5 * ours.envs.hosts) * 7 + step * 3) % 11 / 10).astype(np.float32).reshape(5, -1)
        left, right = ours.step(actions), theirs.step(actions)
        for one, other in zip(left[:3], right[:3]):
            assert one.dtype == other.dtype and one.tobytes() == other.tobytes()
        for one, other in zip(left[3], right[3]):
            last, other_last = one.pop("terminal_observation", None), other.pop("terminal_observation", None)
            assert (last is None) == (other_last is None)
            assert last is None or last.tobytes() == other_last.tobytes()
            assert one.keys() == other.keys() and one["TimeLimit.truncated"] == other["TimeLimit.truncated"]
            assert {name: np.float32(value) for name, value in one["terms"].items()} == other["terms"]
        ends += left[2].sum()
        # Which begins anew counts on from its own seed, as theirs does.
    assert ends == 10
    assert ours.reset().tobytes() == theirs.reset().tobytes(), "the next episodes"


def test_a_flow_that_has_sent_all_is_not_cut_off(sb3):
    scenario = {
        "run": {"seconds": 10},
        "dumbbell": {"rate": "5 Mbit/s", "delay_ms": 5},
        "flow": [{"controller": "cubic", "workload": {"once_bytes": 200_000}, "handshake": True}],
    }
    envs = sb3[0](scenario=scenario, num_envs=2)
    envs.reset()
    for _ in range(100):
        observations, _, over, infos = envs.step(np.full((2, 1), 0.9, np.float32))
        if over.any():
            break
    assert over.all() and not infos[0]["TimeLimit.truncated"]
    assert infos[0]["terminal_observation"].shape == observations[0].shape


def test_what_single_environments_have_is_the_vectors(sb3):
    envs = sb3[0]("C3-Parallel", num_envs=3)
    envs.seed(1)
    envs.reset()
    assert envs.get_attr("hosts") == [2, 2, 2] and envs.get_attr("render_mode", [0, 2]) == [None, None]
    assert envs.has_attr("features") and not envs.has_attr("colour")
    assert [row.tolist() for row in envs.env_method("directed_by", "oracle", indices=1)] == [[0.5, 0.5]]
    assert envs.env_is_wrapped(gymnasium.Wrapper) == [False] * 3
    with pytest.raises(AttributeError, match="there are: directed_by"):
        envs.env_method("reset")
    with pytest.raises(AttributeError, match="make others"):
        envs.set_attr("interval", 1.0)
    with pytest.raises(RuntimeError, match="step_async"):
        envs.step_wait()
    with pytest.raises(ValueError, match=r"actions has the shape \(3, 1\)"):
        envs.step(np.zeros((3, 1), np.float32))
    envs.set_options({"reset_mask": 1})
    with pytest.raises(ValueError, match="no options"):
        envs.reset()
    envs.close()


def test_a_policy_is_saved_for_it_and_acts_in_it(sb3, tmp_path):
    envs = sb3[0]("C3-Parallel", num_envs=3)
    layers = [(np.full((6, 1), 0.1, np.float32), np.zeros(1, np.float32))]
    Policy(layers).save(tmp_path / "p.safetensors", envs)
    assert Policy.load(tmp_path / "p.safetensors", envs).rates(envs, envs.reset()[0]).shape == (2,)


def test_one_flow_is_refused_with_what_takes_it(sb3):
    ours, _ = sb3
    with pytest.raises(ValueError, match=r"make_vec_env\("):
        ours("anabranch/Flow-v0", num_envs=2)


def test_attributes_are_those_of_single_environments(sb3):
    ours, theirs = sb3
    id = "anabranch/C3-Parallel-v0"
    envs, others = ours(id, num_envs=3, **SHORT), theirs([lambda: gymnasium.make(id, **SHORT).unwrapped for _ in range(3)])
    for one in (envs, others):
        one.seed(5)
        one.reset()
        one.step(np.full((3, 2), 0.5, np.float32))
    for name in ("observation_space", "action_space", "np_random_seed", "now", "hosts", "render_mode", "features"):
        for indices in (None, 1, -1, [0, 2]):
            assert envs.get_attr(name, indices) == others.get_attr(name, indices), (name, indices)
    specs = [one.get_attr("spec")[0] for one in (envs, others)]
    assert [(spec.id, spec.kwargs) for spec in specs] == [(id, {"environment": "C3-Parallel", **SHORT})] * 2
    for ask in (lambda: envs.get_attr("hosts", [7]), lambda: envs.env_is_wrapped(object, 3),
                lambda: envs.env_method("directed_by", "rule", indices=-4)):  # fmt: skip
        with pytest.raises(IndexError):
            ask()


def test_nothing_of_it_is_imported_before_it_is_used():
    program = """
import sys
sys.modules["stable_baselines3"] = None
import anabranch.sb3
assert "torch" not in sys.modules
try:
    anabranch.sb3.VecEnv
except ModuleNotFoundError as error:
    assert "pip install stable-baselines3" in str(error), error
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.filterwarnings("default")
def test_it_trains(sb3):
    pytest.importorskip("torch", reason="torch is not installed: Stable-Baselines3 itself is not tried")
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecMonitor

    envs = VecMonitor(sb3[0]("C3-Single", num_envs=8))
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=128, n_epochs=1, seed=1, device="cpu").learn(1024)
    assert model.num_timesteps == 1024
