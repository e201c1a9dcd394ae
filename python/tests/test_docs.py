"""What the pages show does what they say: the code of the page on learning environments, and README's lines that train."""

import re
import shlex
import shutil
from pathlib import Path

import gymnasium
import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

import anabranch
from anabranch.policy import Policy
from anabranch.train import ppo

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/learning-environments.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with the scenarios of the repository, of which those that take minutes are short."""
    (tmp_path / "scenarios/flows").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    shutil.copy(ROOT / "scenarios/flows/one-flow.toml", tmp_path / "scenarios/flows")
    standard = re.sub(r"^seconds = \d+", "seconds = 10", (ROOT / "scenarios/standard.toml").read_text(), flags=re.M)
    (tmp_path / "scenarios/standard.toml").write_text(standard)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def known(block):
    """What a block takes for granted: what blocks before it imported and made, or what it is about."""
    env = gymnasium.make("anabranch/C3-Cross-v0")
    envs = gymnasium.make_vec("anabranch/C3-Cross-v0", num_envs=2)
    envs.reset(seed=1)
    row = env.observation_space.shape[0]
    sizes = [(row, 8), (8, 8), (8, 1)]
    layers = [(np.zeros(size, np.float32), np.zeros(size[1], np.float32)) for size in sizes]
    names = {"env": env, "envs": envs}
    for line in re.findall(r"^(?:import|from) .*", "\n".join(BLOCKS[: BLOCKS.index(block)]), re.M):
        exec(line, names)
    names |= {f"{kind}{place + 1}": part for place, pair in enumerate(layers) for kind, part in zip("wb", pair)}
    names["policy"] = Policy(layers)
    for name in ("polars", "pandas", "pyarrow"):
        if f"{name}." in block:
            names[name] = pytest.importorskip(name)
    if "sb3" in block:
        pytest.importorskip("stable_baselines3")
    return names


def test_the_page_has_code():
    assert len(BLOCKS) >= 7, "the page is written otherwise than this test reads it"


@pytest.mark.parametrize("block", BLOCKS, ids=[block.splitlines()[0] for block in BLOCKS])
def test_the_pages_code_runs(place, block):
    exec(compile(block, "docs/learning-environments.md", "exec"), known(block))


def test_readmes_lines_train_and_steer(place):
    section = (ROOT / "README.md").read_text().split("## Train a coordinator")[1]
    lines = [shlex.split(line, comments=True) for line in re.search(r"```sh\n(.*?)```", section, re.S)[1].splitlines()]
    train = next(line for line in lines if line[:3] == ["python", "-m", "anabranch.train.ppo"])
    runs = [line for line in lines if line[:2] == ["anabranch", "run"]]
    steps = train.index("--steps")
    assert int(train[steps + 1]) >= 100_000, "a training that learns"
    # A training that is as short as one can be: what is shown is that one thing fits the other.
    train[steps + 1] = "4096"
    ppo.main(train[3:])
    shutil.copytree(ROOT / "policies", place / "policies")
    assert len(runs) == 2
    goodputs = []
    for line in runs:
        sets = [line[at + 1].split("=", 1) for at, word in enumerate(line) if word == "--set"]
        result = anabranch.run(line[2], overrides=dict(sets) | {"run.seconds": 10})
        goodputs.append(result["metrics"])
    assert goodputs[0] != goodputs[1], "another policy steers otherwise"


