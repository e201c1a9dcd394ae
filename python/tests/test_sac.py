"""Soft actor-critic learns, and what it writes acts in Rust as it does in JAX."""

import json
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

import jax
import jax.numpy as jnp

import anabranch
from anabranch.policy import Policy
from anabranch.train import sac
from anabranch.train._checkpoint import Checkpoint
from anabranch.train._training import finished

ROOT = Path(__file__).parents[2]
SMALL = sac.Settings(
    "anabranch/C3-Single-v0", {"interval": 1.0}, steps=8 * 64, num_envs=4, rollout=16, anew=2, at_random=2, remembered=200,
    batch=16, updates=4,
)  # fmt: skip


@pytest.mark.parametrize(("name", "history"), [("C3-Single", 1), ("C3-Random", 3), ("C3-Fct", 1)])
def test_what_is_written_acts_in_rust_as_in_jax(tmp_path, name, history):
    settings = sac.Settings(f"anabranch/{name}-v0", {"history": history}, steps=256, num_envs=2, rollout=64, updates=8, at_random=1)
    finished(sac.train(settings, 3, tmp_path))
    envs = gymnasium.make_vec(settings.env, 2, history=history).unwrapped
    policy = Policy.load(tmp_path / "policy.safetensors", envs)
    assert policy.trained["seed"] == 3 and policy.trained["by"] == "anabranch.train.sac"
    envs.reset(seed=5)
    seen = envs.rollout(policy, 50)
    learner = sac.Learner(settings, envs, 3)
    assert Checkpoint(tmp_path, settings, 3).load(learner)[0] == 2
    # What training has not shown is cut before the network sees it.
    shape = learner.shape
    least, most = (np.asarray(part).reshape(shape.history, 1, shape.features) for part in learner.known)
    cut = np.clip(seen.observations.reshape(*seen.observations.shape[:-1], *shape), least, most)
    by_jax = learner.likeliest(cut.reshape(seen.observations.shape))
    assert by_jax.std() > 1e-4, "what is said depends on what is seen"
    low, high = envs.single_action_space.low[0], envs.single_action_space.high[0]
    assert low < by_jax.min() and by_jax.max() < high
    np.testing.assert_allclose(seen.actions, by_jax, atol=1e-5)


def test_the_density_of_an_action_is_that_of_a_squeezed_normal_distribution():
    """By hand: with deviation d, u = m + d e, and a = tanh(u), the density is N(e) / (d (1 - a^2))."""
    learner = sac.Learner(SMALL, sac.make(SMALL, 1), 1)
    actor = [(weights * 0, biases * 0) for weights, biases in learner.parameters["actor"]]
    mean, log_deviation = 0.4, -0.7
    actor[-1] = (actor[-1][0], jnp.array([mean, log_deviation], jnp.float32))
    observations = np.zeros((1000, learner.shape.row), np.float32)
    actions, said = (np.asarray(part, float) for part in learner._make_act(actor, observations, jax.random.key(1)))
    u = np.arctanh(actions[:, 0])
    e = (u - mean) / np.exp(log_deviation)
    by_hand = -0.5 * e**2 - 0.5 * np.log(2 * np.pi) - log_deviation - np.log(1 - actions[:, 0] ** 2)
    np.testing.assert_allclose(said, by_hand, atol=1e-3)
    assert abs(e.mean()) < 0.1 and abs(e.std() - 1) < 0.1


def test_critics_and_actor_find_the_best_action():
    """A state that ends at once pays ``-(a - 0.9)^2``: the likeliest action comes close to 0.9."""
    settings = sac.Settings("anabranch/C3-Single-v0", remembered=512, batch=64, updates=400, rate=3e-3, gamma=0.5)
    learner = sac.Learner(settings, sac.make(settings, 1), 1)
    rng = np.random.default_rng(1)
    row = learner.shape.row
    actions = rng.uniform(0.0, 1.25, (512, 1)).astype(np.float32)
    paid = -((actions[:, 0] - 0.9) ** 2)
    seen = np.zeros((512, row), np.float32)
    learner.remember(seen, actions, paid, seen, np.zeros(512, np.float32))
    errors = [learner.learn(iteration, rng) for iteration in range(5)]
    assert errors[-1] < errors[0]
    assert abs(learner.likeliest(seen[:1])[0, 0] - 0.9) < 0.1
    assert learner.alpha < 1, "being random is dear where it costs"


def test_critics_begin_at_what_is_paid():
    learner = sac.Learner(SMALL, sac.make(SMALL, 1), 1)
    rewards = np.array([1.0, 3.0], np.float32)
    seen = np.zeros((2, learner.shape.row), np.float32)
    before = [critic[-1][1][0] for critic in learner.parameters["critics"]]
    learner.remember(seen, np.zeros((2, 1), np.float32), rewards, seen, np.ones(2, np.float32))
    # A mean of 2 in deviations of 1, for good: 2 / (1 - 0.95).
    after = [critic[-1][1][0] for critic in learner.parameters["critics"]]
    np.testing.assert_allclose(np.array(after) - np.array(before), [40, 40], rtol=1e-5)


def test_a_training_gets_better(tmp_path):
    settings = sac.Settings("anabranch/C3-Single-v0", steps=8192)
    rows = []
    finished(sac.train(settings, 1, tmp_path), rows.append)
    assert rows[-1]["reward_per_step"] > rows[0]["reward_per_step"] + 0.1


def test_the_command_writes_what_it_reached_beside_the_baselines(tmp_path, capsys):
    command = ["--env", "anabranch/C3-Single-v0", "--options", '{"interval": 1.0}', "--steps", "512", "--num-envs", "2"]
    sac.main([*command, "--seeds", "2", "--out", str(tmp_path / "c3")])
    rewards = json.loads((tmp_path / "c3/results.json").read_text())["reward_per_step"]
    assert list(rewards) == ["rule", "oracle", "seed-1", "seed-2"]
    page = (tmp_path / "c3/curves.html").read_text()
    assert "<svg" in page and "alpha" in page and "src=" not in page
    assert "seed-1" not in capsys.readouterr().err


def test_a_flow_that_has_learned_is_run_by_the_simulator(tmp_path):
    sac.main(["--preset", "aurora", "--steps", "512", "--num-envs", "2", "--out", str(tmp_path)])
    rewards = json.loads((tmp_path / "results.json").read_text())["reward_per_step"]
    assert list(rewards) == ["always the middle", "at random", "seed-1"]
    folder = tmp_path / "seed-1"
    assert (folder / "network.npz").exists()
    # What it says is what was trained, but for what its training has not shown.
    settings = sac.Settings("anabranch/Flow-v0", {"preset": "aurora"}, steps=512, num_envs=2)
    env = gymnasium.make(settings.env, preset="aurora").unwrapped
    policy = Policy.load(folder / "policy.safetensors", env)
    assert policy.trained["by"] == "anabranch.train.sac" and policy.purpose["interval_rtts"] == 0.5
    learner = sac.Learner(settings, sac.make(settings, 1), 1)
    Checkpoint(folder, settings, 1).load(learner)
    observation, _ = env.reset(seed=5)
    said = []
    for _ in range(50):
        action = policy.rates(env, observation)
        by_jax = learner.likeliest(np.clip(observation, *learner.known.arrays)[None])[0]
        np.testing.assert_allclose(action, by_jax, rtol=1e-5, atol=1e-4)
        said.append(action[0])
        observation = env.step(action)[0]
    assert np.std(said) > 1e-3 and -40 < min(said) < max(said) < 40, "what is said depends on what is seen"
    flow = {"controller": "policy", "parameters": {"file": str(folder / "policy.safetensors")}}
    link = {"rate": "4 Mbit/s", "delay_ms": 100, "queue": {"packets": 200}}
    run = anabranch.run({"run": {"seconds": 20}, "dumbbell": link, "flow": [flow]}, seed=1)
    assert 0 < run["metrics"]["goodput_mbit_s"] < 4
    flow["parameters"]["file"] = str(tmp_path / "none.safetensors")
    with pytest.raises(anabranch.ScenarioError, match="none.json: No such file"):
        anabranch.run({"run": {"seconds": 20}, "dumbbell": link, "flow": [flow]})


def test_the_repositorys_policy_of_a_flow_does_what_its_page_says_and_knows_what_it_sees():
    run = anabranch.run(ROOT / "policies/aurora.toml")
    page = (ROOT / "docs/flow/policy.md").read_text()
    rows = ("goodput, Mbit/s", "mean delay, one way, ms", "lost, %")
    goodput, delay, lost = (re.search(rf"^\|[^|]*\| {row} \| ([\d.]+) \|", page, re.M)[1] for row in rows)
    metrics = run["metrics"]
    said = (f"{metrics['goodput_mbit_s']:.2f}", f"{metrics['one_way_mean_ms']:.0f}", f"{metrics['loss_percent']:.0f}")
    assert said == (goodput, delay, lost)
    assert run["notes"] == [], "a link as those of its training"


def test_what_is_a_choice_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        sac.main(["--preset", "learningcc", "--out", str(tmp_path)])
    assert "is a choice of 5: anabranch.train.dqn is for those" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        sac.main(["--out", str(tmp_path)])
    assert "one of the arguments --env --preset is required" in capsys.readouterr().err
