"""A training learns, and what it writes acts in Rust as it does in JAX."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

import anabranch
from anabranch.policy import Memory, Policy
from anabranch.train import ppo, ppo_gru
from anabranch.train._checkpoint import Checkpoint
from anabranch.train._steps import EVALUATION_EPISODES, evaluated
from anabranch.train._training import finished


@pytest.mark.parametrize(("name", "history"), [("C3-Single", 1), ("C3-Random", 3), ("C3-Fct", 1)])
def test_what_is_written_acts_in_rust_as_in_jax(tmp_path, name, history):
    settings = ppo.Settings(f"anabranch/{name}-v0", {"history": history}, steps=32, num_envs=2, rollout=16)
    finished(ppo.train(settings, 3, tmp_path))
    envs = gymnasium.make_vec(settings.env, 2, history=history).unwrapped
    policy = Policy.load(tmp_path / "policy.safetensors", envs)
    assert policy.trained["seed"] == 3
    envs.reset(seed=5)
    seen = envs.rollout(policy, 50)
    learner = ppo.Learner(settings, envs, 3)
    assert Checkpoint(tmp_path, settings, 3).load(learner)[0] == 1
    # What training has not shown, as here a few numbers, is cut before the network sees it.
    history, _, features = learner.shape
    least, most = (np.asarray(part).reshape(history, 1, features) for part in learner.known)
    observations = seen.observations.reshape(*seen.observations.shape[:-1], *learner.shape)
    cut = np.clip(observations, least, most).reshape(seen.observations.shape)
    by_jax = np.asarray(ppo.rates(learner.parameters, cut, learner.normal, learner.shape)) * learner.unit
    assert by_jax.std() > 1e-4, "what is said depends on what is seen"
    np.testing.assert_allclose(seen.actions, by_jax, atol=1e-5)


def test_advantages_stop_where_an_episode_does():
    """Two environments: one ends for good after its second step, one is cut off there. By hand, with values of 0.5."""
    settings = ppo.Settings("anabranch/C3-Single-v0", num_envs=2, rollout=4, gamma=0.5, trace=1.0)
    envs = gymnasium.make_vec(settings.env, 2).unwrapped
    learner = ppo.Learner(settings, envs, 1)
    network = [(weights * 0, biases * 0) for weights, biases in learner.parameters["value"]]
    network[-1] = (network[-1][0], network[-1][1] + 0.5)
    learner.parameters["value"] = network
    seen = envs.trajectory(4)
    seen.rewards[:] = [[1, 2, 0, 4], [1, 2, 0, 4]]
    seen.terminated[0, 1] = seen.truncated[1, 1] = True
    batch = learner._batch(learner.parameters, *seen, np.array([False, False]))
    # A_3 = 4 + 0.25 - 0.5; nothing was done in step 2; A_1 = 2 - 0.5, or 2 + 0.25 - 0.5 where time was over;
    # A_0 = 1 + 0.25 - 0.5 + 0.5 A_1.
    assert np.asarray(batch.advantages).tolist() == [1.5, 1.5, 0, 3.75, 1.625, 1.75, 0, 3.75]
    assert np.asarray(batch.counts).tolist() == [1, 1, 0, 1] * 2
    # A rollout that begins where an episode has ended begins with a step in which nothing is done.
    assert np.asarray(learner._batch(learner.parameters, *seen, np.array([True, False])).counts)[0] == 0


def test_a_training_gets_better(tmp_path):
    settings = ppo.Settings("anabranch/C3-Single-v0", steps=40_960, num_envs=16, rollout=128)
    rows = []
    finished(ppo.train(settings, 1, tmp_path), rows.append)
    assert rows[-1]["reward_per_step"] > rows[0]["reward_per_step"] + 0.1


@pytest.mark.parametrize("learner", [ppo, ppo_gru], ids=["ppo", "ppo_gru"])
@pytest.mark.parametrize(("name", "answer", "deviation"), [("C3-Single", 0.5, 0.3), ("C3-Fct", 4.0, 2.4)])
def test_what_is_told_at_first_is_of_the_actions_range(learner, name, answer, deviation):
    settings = learner.Settings(f"anabranch/{name}-v0", steps=1000, num_envs=20, rollout=50)
    envs = gymnasium.make_vec(settings.env, 20).unwrapped
    observations, _ = envs.reset(seed=1)
    began = learner.Learner(settings, envs, 1)
    assert began.deviation == pytest.approx(deviation)
    said = began.policy().rates(envs, observations[0], Memory())
    assert said == pytest.approx(answer, rel=0.05)


def test_a_training_learns_initial_windows(tmp_path):
    """Of which all below ten packets act alike: whoever begins there learns nothing."""
    settings = ppo.Settings("anabranch/C3-Fct-v0", steps=8_000, num_envs=20, rollout=50)
    learned = finished(ppo.train(settings, 1, tmp_path))
    envs = ppo.made_for_hosts(settings, EVALUATION_EPISODES, autoreset_mode="Disabled")
    nothing = evaluated(envs, lambda envs, _: np.zeros((envs.num_envs, envs.hosts), np.float32))
    assert ppo.score(settings, learned) > nothing + 0.01


def test_readmes_training_makes_a_policy_that_steers(tmp_path):
    """Its command, but for far fewer steps; then its scenario runs under what was trained."""
    root = Path(__file__).parents[2]
    block = (root / "README.md").read_text().split("## Train a coordinator")[1].split("```sh\n")[1].split("```")[0]
    train = next(line for line in block.splitlines() if "anabranch.train.ppo" in line).split()
    assert train[:3] == ["python", "-m", "anabranch.train.ppo"]
    options = dict(zip(train[3::2], train[4::2])) | {"--steps": "32", "--num-envs": "2", "--out": str(tmp_path)}
    ppo.main([word for pair in options.items() for word in pair])
    assert "steering.policy=out/cross/seed-1/policy.safetensors" in block
    trained = str(tmp_path / "seed-1" / "policy.safetensors")
    overrides = {"steering.policy": trained, "run.seconds": 3}
    run = anabranch.run(root / "policies" / "cross.toml", overrides=overrides)
    assert run["metrics"]["goodput_mbit_s"] > 1
    # So few steps have not shown it that cross traffic comes, which it is told.
    assert run["notes"][0].startswith(f"{trained}: at ") and "in its training" in run["notes"][0]


def test_the_command_writes_what_it_reached_beside_the_baselines(tmp_path, capsys):
    command = ["--env", "anabranch/C3-Single-v0", "--options", '{"interval": 1.0}', "--steps", "64", "--num-envs", "2"]
    ppo.main([*command, "--seeds", "2", "--out", str(tmp_path)])
    rewards = json.loads((tmp_path / "results.json").read_text())["reward_per_step"]
    assert list(rewards) == ["rule", "oracle", "seed-1", "seed-2"]
    assert rewards["oracle"] > 0.7 and all(np.isfinite(reward) for reward in rewards.values())
    said = capsys.readouterr()
    assert "seed 2: " in said.out and said.err == "", "a live line is for terminals"
    assert (tmp_path / "seed-2" / "curve.csv").read_text().startswith("steps,reward_per_step,deviation\n")
    with pytest.raises(SystemExit, match="2"):
        ppo.main([*command, "--steps", "96", "--out", str(tmp_path)])
    said = capsys.readouterr().err
    assert said.startswith("error: ") and "steps was 64 in the training that is there, and is 96 now" in said
