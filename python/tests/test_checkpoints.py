"""Trainings that were stopped."""

import itertools
import json

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

from files import contents

from anabranch.train import _checkpoint, dqn, ppo, ppo_gru, sac
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


def test_a_curve_is_whole_again_after_a_training_was_killed_before_it_was_written(tmp_path, monkeypatch):
    settings = ppo.Settings(*C3, **LENGTH)
    finished(ppo.train(settings, 1, tmp_path))
    before = contents(tmp_path)
    (tmp_path / "curve.csv").write_text("steps,reward_per_step,deviation\n")
    finished(ppo.train(settings, 1, tmp_path))
    assert contents(tmp_path) == before


SCENARIO = """
[run]
seconds = 10

[dumbbell]
rate = "10 Mbit/s"
delay_ms = 20
queue = { ms = 60 }

[[flow]]
controller = "reno"
"""


def test_a_scenario_that_changed_is_another_training(tmp_path):
    file, out = tmp_path / "scenario.toml", tmp_path / "out"
    file.write_text(SCENARIO)
    settings = ppo.Settings("anabranch/Scenario-v0", {"scenario": str(file), "interval": 1.0}, **LENGTH)
    list(itertools.islice(ppo.train(settings, 1, out), 3))
    file.write_text(SCENARIO.replace("10 Mbit/s", "20 Mbit/s"))
    with pytest.raises(ValueError, match=f"{file} is another scenario than in the training that is there"):
        finished(ppo.train(settings, 1, out))
    file.write_text("# As it was.\n" + SCENARIO)
    finished(ppo.train(settings, 1, out))
    trained = json.loads((out / "policy.json").read_text())["trained"]
    assert trained["options"]["scenario"] == str(file) and trained["scenario"]["dumbbell"]["rate"] == "10 Mbit/s"


def test_no_checkpoint_of_another_training_is_replaced(tmp_path, monkeypatch):
    """Where folders can't be locked, as on some file systems."""
    monkeypatch.setattr(_checkpoint, "_lock", lambda *_: False)
    settings, other = (ppo.Settings(*C3, **LENGTH, gamma=gamma) for gamma in (0.9, 0.8))
    course = ppo.train(settings, 1, tmp_path)
    next(course)
    list(itertools.islice(ppo.train(other, 1, tmp_path), 3))
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="gamma was 0.8 in the training that is there, and is 0.9 now"):
        finished(course)
    assert contents(tmp_path) == before
