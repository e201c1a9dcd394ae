"""A training of a policy with memory learns, and acts in Rust as in JAX."""

import json

import gymnasium
import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

import jax.numpy as jnp

from anabranch.policy import Memory, Policy
from anabranch.train import ppo_gru
from anabranch.train._checkpoint import Checkpoint
from anabranch.train._training import finished


@pytest.mark.parametrize(("name", "history"), [("C3-Single", 1), ("C3-Random", 2)])
def test_what_is_written_acts_in_rust_as_in_jax(tmp_path, name, history):
    """Over two rollouts, in which episodes end: states go on from one to the other, and are new with each episode."""
    options = {"history": history, "interval": 0.5}
    settings = ppo_gru.Settings(f"anabranch/{name}-v0", options, steps=64, num_envs=4, rollout=16)
    finished(ppo_gru.train(settings, 3, tmp_path))
    envs = gymnasium.make_vec(settings.env, 4, **options).unwrapped
    policy = Policy.load(tmp_path / "policy.safetensors", envs)
    assert policy.remembers and policy.trained["by"] == "anabranch.train.ppo_gru"
    envs.reset(seed=5)
    learner = ppo_gru.Learner(settings, envs, 3)
    assert Checkpoint(tmp_path, settings, 3).load(learner)[0] == 1
    learner.forget()
    history, _, features = learner.shape
    least, most = (np.asarray(part).reshape(history, 1, features) for part in learner.known)
    ends = 0
    for steps in (29, 17):
        seen = envs.rollout(policy, steps)
        cut = np.clip(seen.observations.reshape(*seen.observations.shape[:-1], *learner.shape), least, most)
        seen = seen._replace(observations=cut.reshape(seen.observations.shape))
        batch, states = learner._batch(learner.parameters, *seen, learner.was_over, learner.is_fresh, learner.states)
        by_jax, _ = learner.rates(learner.parameters, seen.observations, learner.states[0], batch.fresh)
        by_jax = np.asarray(by_jax)
        assert by_jax.std() > 1e-4, "what is said depends on what is seen"
        np.testing.assert_allclose(seen.actions, by_jax, atol=1e-5)
        over = seen.terminated | seen.truncated
        ends += over.sum()
        learner.states, learner.was_over, learner.is_fresh = states, over[:, -1], over[:, -2]
    assert ends >= 8, "episodes of 20 steps end"


def test_a_unit_is_what_it_is_by_hand():
    cell = ((jnp.array([[0.5, -1.0, 2.0]]), jnp.array([0.25, 0.0, -0.5])), (jnp.array([[1.0, 0.5, -2.0]]), jnp.array([0.0, 0.125, 0.25])))
    h = 0.0
    for x in (0.75, -0.5, 2.0):
        r, z = 1 / (1 + np.exp(-(0.5 * x + 0.25 + h))), 1 / (1 + np.exp(-(-x + 0.5 * h + 0.125)))
        following = (1 - z) * np.tanh(2 * x - 0.5 + r * (-2 * h + 0.25)) + z * h
        found = ppo_gru.recur(cell, jnp.array([x]), jnp.array([h]))
        assert float(found[0]) == pytest.approx(following, abs=1e-6)
        h = following


def test_updates_draw_whole_environments(tmp_path, capsys):
    with pytest.raises(ValueError, match="num_envs is 6, must be a multiple of 4"):
        ppo_gru.Settings("anabranch/C3-Single-v0", num_envs=6)
    with pytest.raises(SystemExit, match="2"):
        ppo_gru.main(["--env", "anabranch/C3-Single-v0", "--num-envs", "6", "--out", str(tmp_path)])
    assert "must be a multiple of 4" in capsys.readouterr().err


def test_what_was_shown_counts_and_is_forgotten(tmp_path):
    command = ["--env", "anabranch/C3-Single-v0", "--options", '{"interval": 1.0}', "--steps", "64", "--num-envs", "4"]
    ppo_gru.main([*command, "--out", str(tmp_path)])
    assert list(json.loads((tmp_path / "results.json").read_text())["reward_per_step"]) == ["rule", "oracle", "seed-1"]
    env = gymnasium.make("anabranch/C3-Single-v0", interval=1.0)
    policy, memory = Policy.load(tmp_path / "seed-1/policy.safetensors", env), Memory()
    observation, _ = env.reset(seed=1)
    first = policy.rates(env, observation, memory)
    assert policy.rates(env, observation, memory) != first, "the second time is another"
    memory.forget()
    assert policy.rates(env, observation, memory) == first
    with pytest.raises(ValueError, match="this policy remembers: give rates"):
        policy.rates(env, observation)


def test_a_training_gets_better(tmp_path):
    settings = ppo_gru.Settings("anabranch/C3-Single-v0", steps=16_384, num_envs=16, rollout=64)
    rows = []
    finished(ppo_gru.train(settings, 1, tmp_path), rows.append)
    assert rows[-1]["reward_per_step"] > rows[0]["reward_per_step"] + 0.1
