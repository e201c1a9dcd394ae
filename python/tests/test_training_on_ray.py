"""Trainings by Ray's workers: the same bytes as one after the other, whatever becomes of a worker. Needs Ray."""

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")
ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")

from files import contents

import anabranch
from anabranch.train import _on_ray, dqn, ppo
from anabranch.train._training import finished

SMALL = ppo.Settings("anabranch/C3-Single-v0", {"interval": 1.0}, steps=8 * 64, num_envs=4, rollout=16, anew=2, keep=(128,))

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.mark.parametrize(
    "algorithm, settings",
    [(ppo, SMALL), (dqn, dqn.Settings("learningcc", steps=256, num_envs=4, rollout=16, anew=2, remembered=200, batch=16, updates=4))],
)
def test_files_are_those_of_one_after_the_other(tmp_path, algorithm, settings):
    here, there = tmp_path / "here", tmp_path / "there"
    reached = {}
    for seed in (1, 2, 3):
        learned = finished(algorithm.train(settings, seed, here / f"seed-{seed}"))
        reached[seed] = algorithm.score(settings, learned)
    assert list(_on_ray.train(algorithm, settings, 3, there, None)) == sorted(reached.items())
    assert contents(here) == contents(there) and len(contents(here)) >= 9
    assert ray.is_initialized(), "a program's own Ray stays"


def test_one_goes_on_from_the_other(tmp_path):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    finished(ppo.train(SMALL, 1, whole / "seed-1"))

    def stop(row):
        if row["steps"] == 5 * 64:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finished(ppo.train(SMALL, 1, stopped / "seed-1"), stop)
    assert "seed-1/policy.safetensors" not in contents(stopped)
    list(_on_ray.train(ppo, SMALL, 1, stopped, None))
    assert contents(whole) == contents(stopped)
    with pytest.raises(ValueError, match=f"{stopped}/seed-1/checkpoint.npz: steps was 512"):
        list(_on_ray.train(ppo, ppo.Settings(SMALL.env, SMALL.options, steps=64), 1, stopped, None))


def test_a_killed_worker_goes_on_from_the_last_checkpoint(tmp_path, monkeypatch):
    mark, begun = tmp_path / "mark", tmp_path / "begun"
    original = ppo.train

    def dying(settings, seed, folder):
        with begun.open("a") as file:
            file.write(f"{(folder / 'checkpoint.npz').exists()}\n")
        for row in original(settings, seed, folder):
            if row["steps"] == 5 * 64 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield row
        return (yield from original(settings, seed, folder))

    def trained(by, options, seed, had, version):
        from anabranch.train import ppo

        ppo.train = dying
        try:
            yield from _on_ray.trained(by, options, seed, had, version)
        finally:
            ppo.train = original

    monkeypatch.setattr(_on_ray, "trained", trained)
    list(_on_ray.train(ppo, SMALL, 1, tmp_path / "there", None))
    assert begun.read_text().split() == ["False", "True"]
    finished(ppo.train(SMALL, 1, tmp_path / "here/seed-1"))
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_what_a_worker_refuses_is_said(tmp_path, monkeypatch):
    with pytest.raises(anabranch.RunError, match="C3-Singel"):
        list(_on_ray.train(ppo, ppo.Settings("anabranch/C3-Singel-v0", steps=64), 1, tmp_path, None))
    monkeypatch.setattr(_on_ray._native, "measures", lambda: "0.0.1+0")
    with pytest.raises(anabranch.RunError, match="the training is one of 0.0.1"):
        list(_on_ray.train(ppo, SMALL, 1, tmp_path, None))


def test_the_command_begins_and_ends_a_ray_of_its_own(tmp_path):
    command = [sys.executable, "-m", "anabranch.train.ppo", "--env", "anabranch/C3-Single-v0", "--options", '{"interval": 1.0}',
               "--steps", "64", "--num-envs", "2", "--seeds", "2", "--out"]  # fmt: skip
    for out, more in (("here", []), ("there", ["--ray"])):
        said = subprocess.run([*command, out, *more], cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert said.returncode == 0, said.stderr
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
