"""Deep Q-learning learns, and refuses what it can't choose in."""

import json

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

from anabranch.train import dqn
from anabranch.train._steps import Memory
from anabranch.train._tabular import Bandit, Sarsa

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
    alone = [f"always {choice}" for choice in range(5)]
    assert list(reached) == [*alone, "at random", "bandit", "linear SARSA", "seed-1"]
    assert reached["always 0"] != reached["always 4"] and "seed 1: " in capsys.readouterr().out
    page = (tmp_path / "curves.html").read_text()
    assert "<svg" in page and "reward per step" in page and "src=" not in page


def test_a_bandit_finds_the_arm_that_pays_most_and_goes_on_trying_others():
    bandit = Bandit(count=200, choices=5, seed=1)
    over = np.arange(200) < 20
    chosen = []
    for _ in range(60):
        actions = bandit.act(np.zeros((200, 3)))
        chosen.append(actions)
        bandit.learn(actions, actions.astype(np.float32), over)
    # Nine tenths of 0.7 and a fifth of 0.3 choose the best one; who is over learns nothing.
    assert 0.66 < (np.stack(chosen[20:])[:, 20:] == 4).mean() < 0.82
    assert (bandit.rewards[:20] == 0).all() and set(chosen[-1]) == set(range(5))
    # Equation 5, by hand.
    one = Bandit(count=1, choices=2, seed=1)
    one.learn(np.array([1]), np.array([2.0]), np.array([False]))
    one.learn(np.array([1]), np.array([1.0]), np.array([False]))
    assert one.rewards[0] == pytest.approx([0, 0.15 * 0.85 * 2 + 0.85])


def test_sarsa_learns_which_action_pays_in_which_state():
    bounds = np.zeros(2, np.float32), np.ones(2, np.float32)
    sarsa, rng = Sarsa(count=50, choices=2, bounds=bounds, seed=1), np.random.default_rng(1)
    over, right = np.zeros(50, bool), []
    for step in range(3000):
        seen = rng.random((50, 2)).astype(np.float32)
        actions = sarsa.act(seen)
        best = (seen[:, 0] > 0.5).astype(int)
        right.append((actions == best).mean())
        sarsa.learn(actions, (actions == best).astype(np.float32), over)
    # A tenth of all choices are wrong by lot.
    assert np.mean(right[-500:]) > 0.85, np.mean(right[-500:])
    # One update by hand: five features of a state of two numbers and an action, each with 1/50 of the error.
    one = Sarsa(count=1, choices=2, bounds=bounds, seed=1)
    first = one.act(np.array([[0.0, 0.99]], np.float32))
    one.learn(first, np.array([3.0]), np.array([False]))
    one.act(np.array([[0.5, 0.5]], np.float32))
    weights = [one.of_parts[0, 0, 0], one.of_parts[0, 1, 19], one.of_actions[0, first[0]], one.of_both[0, 0, 0, first[0]]]
    assert weights == pytest.approx([3 / 50] * 4) and one.of_parts.sum() == pytest.approx(2 * 3 / 50)


def test_what_is_no_choice_is_refused(tmp_path, capsys):
    for preset, said in [("aurora", '"aurora" is no choice of a few: learningcc and xavier have those'), ("auror", "there is no preset")]:
        with pytest.raises(SystemExit, match="2"):
            dqn.main(["--preset", preset, "--out", str(tmp_path)])
        assert said in capsys.readouterr().err
