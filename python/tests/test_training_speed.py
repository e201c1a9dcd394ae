"""``--bench`` of each learner times what the learner does, and leaves nothing behind."""

import json
import tempfile

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

from anabranch.train import dqn, ppo, ppo_gru, sac

SMALL = ["--env", "anabranch/C3-Single-v0", "--options", '{"interval": 1.0}', "--num-envs", "4"]


@pytest.mark.parametrize(
    ("algorithm", "arguments", "steps"),
    [
        (ppo, [*SMALL, "--steps", "500"], 512),
        (ppo_gru, [*SMALL, "--steps", "500"], 512),
        (sac, ["--preset", "aurora", "--num-envs", "4", "--steps", "128"], 128),
        (dqn, ["--num-envs", "4", "--steps", "128"], 128),
    ],
    ids=["ppo", "ppo_gru", "sac", "dqn"],
)
def test_bench_prints_one_object_and_leaves_nothing(tmp_path, monkeypatch, capsys, algorithm, arguments, steps):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    algorithm.main([*arguments, "--bench"])
    said = capsys.readouterr()
    measured = json.loads(said.out)
    assert said.err == "" and list(tmp_path.iterdir()) == []
    assert measured["learner"] == algorithm.__name__.rsplit(".", 1)[-1]
    assert measured["num_envs"] == 4 and measured["steps"] >= steps
    assert 0 < measured["first_iteration_s"] <= measured["seconds"]
    assert measured["steps_per_s"] == pytest.approx(measured["steps"] / measured["seconds"], rel=0.01)


@pytest.mark.parametrize("more", [["--out", "here"], ["--ray"], ["--seeds", "2"]])
def test_bench_is_of_one_training_alone(tmp_path, monkeypatch, capsys, more):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        ppo.main([*SMALL, "--bench", *more])
    assert "--bench" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
