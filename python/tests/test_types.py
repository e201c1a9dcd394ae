"""That the package's types hold: for itself, as `pyproject.toml` has mypy check them, and for who writes a script with it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch

ROOT = Path(__file__).parents[2]

# What is wrong in it, and nothing else, is to be found.
SCRIPT = """
import gymnasium
import numpy as np

import anabranch
from anabranch.env import Env
from anabranch.flow import FlowEnv
from anabranch.policy import Memory, Policy
from anabranch.vector import VectorEnv


def shown(seed: int) -> float:
    env = Env("C3-Single", history=2)
    observation, info = env.reset(seed=seed)
    observation, reward, terminated, truncated, info = env.step(env.action_space.high)
    env.step([0.5])  # wrong
    env.reset(seed=str(seed))  # wrong
    return reward + float(np.sum(observation))


def rated(policy: Policy) -> int:
    made = gymnasium.make("anabranch/C3-Single-v0")
    observation, info = made.reset(seed=1)
    rates = policy.rates(made, observation, Memory())
    made.step(rates)
    return rates.size


def stepped(count: int) -> int:
    envs = VectorEnv("C3-Cross", num_envs=count)
    envs.reset(seed=[1, None])
    envs.reset(seed=["1", None])  # wrong
    observations, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample(), out=envs.buffers())
    return int(np.count_nonzero(terminated | truncated))


VectorEnv("C3-Cross", histories=2)  # wrong
FlowEnv("xavier").step(3)
result = anabranch.run("scenario.toml", overrides={"run.seconds": 1}, seed=1)
columns: list[str] = result.tables["series"].columns
anabranch.run("scenario.toml", seed="1")  # wrong
anabranch.features()[0].units  # wrong
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One for all: mypy reads NumPy and Gymnasium, and that takes most of its time."""
    return tmp_path_factory.mktemp("cache")


def mypy(folder, cache, *arguments):
    """Beside this folder, the package is where mypy finds what is installed."""
    environment = dict(os.environ, PYTHONPATH=str(Path(anabranch.__file__).parents[1]), MYPY_CACHE_DIR=str(cache))
    command = [sys.executable, "-m", "mypy", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_the_package_holds_its_own_types(cache):
    package = ROOT / "python" / "anabranch"
    checked = [*package.glob("*.py"), *package.glob("*.pyi")]
    said = mypy(ROOT, cache)
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"Success: no issues found in {len(checked)} source files" in said.stdout


def test_of_a_typed_script_what_is_wrong_is_found_and_nothing_else(cache, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    said = mypy(tmp_path, cache, "--config-file=", "--strict", "script.py")
    found = {int(line) for line in re.findall(r"^script\.py:(\d+): error:", said.stdout, re.MULTILINE)}
    wrong = {number for number, line in enumerate(SCRIPT.splitlines(), 1) if line.endswith("# wrong")}
    assert said.returncode == 1 and found == wrong, said.stdout + said.stderr
