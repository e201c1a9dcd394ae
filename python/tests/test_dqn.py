"""Deep Q-learning learns, and refuses what it can't choose in."""

import json

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

from anabranch.train import dqn
from anabranch.train._steps import Memory

SMALL = dqn.Settings("learningcc", steps=8 * 64, num_envs=4, rollout=16, anew=2, remembered=200, batch=16, updates=4)


def test_what_is_remembered_is_the_newest(tmp_path):
    memory = Memory.of(4, 1, np.int32(0))
    numbers = np.arange(6, dtype=np.float32)
    for some in (numbers[:3], numbers[3:]):
        memory = memory.put(some[:, None], some.astype(np.int32), some, some[:, None] + 1, np.ones(3))
    assert sorted(memory.rewards) == [2, 3, 4, 5] and memory.count == 6
    assert (memory.following[:, 0] == memory.observations[:, 0] + 1).all(), "what belongs together stays together"


def test_values_are_those_of_what_follows():
    """Two states after each other: the first is paid nothing and leads to the second, which pays by the action and ends."""
    settings = dqn.Settings("learningcc", remembered=64, batch=32, updates=200, rate=0.01, gamma=0.5, renewal=1)
    learner = dqn.Learner(settings, dqn.make(settings, 1), 1)
    low, high = learner.normal[0] - learner.normal[1], learner.normal[0] + learner.normal[1]
    first, second = (low + 0.25 * (high - low)).astype(np.float32), (low + 0.75 * (high - low)).astype(np.float32)
    actions = np.tile(np.arange(5, dtype=np.int32), 6)[:30]
    here = np.where(np.arange(30)[:, None] < 15, first, second).astype(np.float32)
    paid = np.where(np.arange(30) < 15, 0.0, actions).astype(np.float32)
    following = np.broadcast_to(second, here.shape).copy()
    learner.remember(here, actions, paid, following, (np.arange(30) < 15).astype(np.float32))
    rng = np.random.default_rng(1)
    for iteration in range(20):
        learner.learn(iteration, rng)
    # As if each step were paid less by the mean: 1 of the 30, in units of their deviation.
    mean, deviation = learner.paid
    values = learner.values(np.stack([first, second])) * deviation
    assert np.allclose(values[1], np.arange(5) - mean, atol=0.2), values
    assert np.allclose(values[0], -mean + 0.5 * (4 - mean), atol=0.2), values


def test_acting_is_at_random_at_first_and_greedy_later():
    learner = dqn.Learner(SMALL, dqn.make(SMALL, 1), 1)
    shares = [learner.epsilon(iteration) for iteration in (0, 2, 4, 8)]
    assert shares == pytest.approx([1.0, 0.525, 0.05, 0.05])
    seen, rng = np.zeros((200, 4), np.float32), np.random.default_rng(1)
    assert len(set(learner.act(seen, 1.0, rng))) == 5
    assert set(learner.act(seen, 0.0, rng)) == {int(learner.values(seen)[0].argmax())}


def test_the_command_says_what_it_reached_beside_each_action(tmp_path, capsys):
    dqn.main(["--steps", "512", "--num-envs", "4", "--out", str(tmp_path)])
    reached = json.loads((tmp_path / "results.json").read_text())["reward_per_step"]
    assert list(reached) == [*(f"always {choice}" for choice in range(5)), "at random", "seed-1"]
    assert reached["always 0"] != reached["always 4"] and "seed 1: " in capsys.readouterr().out
    page = (tmp_path / "curves.html").read_text()
    assert "<svg" in page and "reward per step" in page and "src=" not in page


def test_what_is_no_choice_is_refused(tmp_path, capsys):
    for preset, said in [("aurora", '"aurora" is no choice of a few: learningcc and xavier have those'), ("auror", "there is no preset")]:
        with pytest.raises(SystemExit, match="2"):
            dqn.main(["--preset", preset, "--out", str(tmp_path)])
        assert said in capsys.readouterr().err
