"""Trainings that were stopped."""

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

from files import contents

from anabranch.train import dqn, ppo, ppo_gru, sac
from anabranch.train._training import finished

C3 = ("anabranch/C3-Single-v0", {"interval": 1.0})
LENGTH = dict(steps=8 * 64, num_envs=4, rollout=16, anew=2)
BATCHES = dict(remembered=200, batch=16, updates=4)


@pytest.mark.parametrize(
    "algorithm, settings, result",
    [
        (ppo, ppo.Settings(*C3, **LENGTH), "policy.safetensors"),
        (ppo_gru, ppo_gru.Settings(*C3, **LENGTH, keep=(128,)), "policy.safetensors"),
        (sac, sac.Settings(*C3, **LENGTH, **BATCHES, at_random=2), "policy.safetensors"),
        (dqn, dqn.Settings("learningcc", **LENGTH, **BATCHES), "network.npz"),
    ],
    ids=["ppo", "ppo_gru", "sac", "dqn"],
)
def test_a_training_that_was_stopped_goes_on_to_the_same_bytes(tmp_path, algorithm, settings, result):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    rows = []
    finished(algorithm.train(settings, 1, whole), rows.append)
    assert [row["steps"] for row in rows] == [64 * (number + 1) for number in range(8)]

    def stop(row):
        if row["steps"] == 5 * 64:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finished(algorithm.train(settings, 1, stopped), stop)
    assert result not in contents(stopped)
    again = []
    finished(algorithm.train(settings, 1, stopped), again.append)
    assert again == rows[4:], "it goes on from its last checkpoint"
    assert contents(stopped) == contents(whole)
    # What is kept on the way is there, too.
    assert {f"steps-{steps}.safetensors" for steps in getattr(settings, "keep", ())} <= set(contents(whole))
    # Another seed is another training, and what is there is not overwritten by one with other settings.
    finished(algorithm.train(settings, 2, tmp_path / "other"))
    assert contents(tmp_path / "other")[result] != contents(whole)[result]
    with pytest.raises(ValueError, match="seed was 1 in the training that is there, and is 2 now"):
        finished(algorithm.train(settings, 2, whole))
