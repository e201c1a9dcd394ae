"""Hosts as agents are what one agent for all is, and keep PettingZoo's rules."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

import anabranch
from anabranch.env import Env

pettingzoo = pytest.importorskip("pettingzoo")

NAMES = ["C3-Single", "C3-Parallel", "C3-Staggered", "C3-Random"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_pettingzoos_checkers_find_nothing(name):
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    parallel_api_test(anabranch.parallel_env(name), num_cycles=120)
    parallel_seed_test(lambda: anabranch.parallel_env(name), num_cycles=20)


def test_hosts_see_and_earn_what_one_agent_for_all_does():
    options = {"history": 2}
    hosts, one = anabranch.parallel_env("C3-Parallel", **options), gymnasium.make("anabranch/C3-Parallel-v0", **options)
    seen, infos = hosts.reset(seed=5)
    observation, info = one.reset(seed=5)
    ended = False
    while not ended:
        assert hosts.state().tobytes() == observation.tobytes()
        rows = observation.reshape(2, 2, -1)
        for host, agent in enumerate(hosts.agents):
            assert seen[agent].tobytes() == np.ascontiguousarray(rows[:, host]).tobytes()
            assert infos[agent] == info
        action = np.float32([0.2 + 0.3 * rows[0, 0, 0], 0.4])
        seen, rewards, terminated, truncated, infos = hosts.step({"host_0": action[:1], "host_1": action[1:]})
        observation, reward, one_terminated, one_truncated, info = one.step(action)
        assert rewards == {"host_0": reward, "host_1": reward}
        assert set(terminated.values()) == {one_terminated} and set(truncated.values()) == {one_truncated}
        ended = one_terminated or one_truncated
    assert hosts.agents == [] and hosts.possible_agents == ["host_0", "host_1"]
    hosts.reset()
    assert hosts.agents == hosts.possible_agents


def test_what_is_no_action_is_refused_with_its_agent():
    hosts = anabranch.parallel_env("C3-Parallel")
    with pytest.raises(RuntimeError, match="call it before step"):
        hosts.step({})
    hosts.reset(seed=1)
    fair = np.float32([0.5])
    for actions, error, said in [
        (None, TypeError, "actions is of type NoneType, must be a dict"),
        ({"host_0": fair}, ValueError, "none for host_1"),
        ({"host_0": fair, "host_1": fair, "host_2": fair}, ValueError, "one for host_2; there are: host_0, host_1"),
        ({"host_0": fair, "host_1": 0.5}, TypeError, "the action of host_1 is 0.5, must be a numpy array of float32"),
        ({"host_0": fair, "host_1": np.float32([np.nan])}, ValueError, "host_1 is nan, must be a number from 0 to"),
    ]:
        with pytest.raises(error, match=said):
            hosts.step(actions)


def test_render_modes_are_an_environments():
    assert anabranch.parallel_env("C3-Single").metadata["render_modes"] == Env.metadata["render_modes"]
    program = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "matplotlib" else found(name, *rest)
import anabranch
assert anabranch.parallel_env("C3-Single").metadata["render_modes"] == ["ansi"]
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
