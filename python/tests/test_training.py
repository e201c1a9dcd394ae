"""What all trainings have alike: how they are stopped, what they refuse, and what is written."""

import dataclasses
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

from anabranch.train._training import bench, train_all

SINGLE = ["--env", "anabranch/C3-Single-v0", "--options", '{"interval": 1.0}', "--steps", "64", "--num-envs", "2"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Of a training that does nothing."""

    steps: int = 5
    num_envs: int = 1


class Nothing:
    """A learner whose iterations do what is told."""

    __name__ = "anabranch.train.nothing"

    def __init__(self, *iterations):
        self.iterations, self.done = iterations, 0

    def train(self, settings, seed, folder):
        for number, iteration in enumerate(self.iterations):
            iteration()
            self.done += 1
            yield {"steps": number + 1, "reward_per_step": 0.0}

    def score(self, settings, learned):
        return 1.0

    def baselines(self, settings):
        return {"chance": 0.0}

    def about(self, settings):
        return {}


def press():
    signal.raise_signal(signal.SIGINT)


def press_where_it_is_lost():
    """As in a callback of JAX's while it compiles: what is raised there is printed, and no more."""
    try:
        press()
    except KeyboardInterrupt:
        pass


@pytest.mark.parametrize("call", [lambda learner, out: train_all(learner, Settings(), 2, out),
                                  lambda learner, out: bench(learner, Settings())], ids=["train", "bench"])  # fmt: skip
def test_ctrl_c_is_not_lost_and_ends_a_training_after_its_iteration(call, tmp_path, capfd):
    learner = Nothing(lambda: None, press_where_it_is_lost, lambda: None)
    with pytest.raises(SystemExit) as raised:
        call(learner, tmp_path)
    assert raised.value.code == 130 and learner.done == 2
    said = capfd.readouterr().err.split("\n")
    assert "Ctrl-C again stops at once" in said[1] and said[3].startswith("stopped")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        press()


def test_the_second_ctrl_c_stops_at_once(tmp_path):
    learner = Nothing(lambda: (press(), press()))
    with pytest.raises(SystemExit, match="130"):
        train_all(learner, Settings(), 1, tmp_path)
    assert learner.done == 0


def test_a_programs_own_handler_stays(tmp_path):
    came = []
    signal.signal(signal.SIGINT, lambda *_: came.append(1))
    try:
        train_all(Nothing(press), Settings(), 1, tmp_path)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert came == [1]


def test_a_stopped_command_keeps_its_checkpoint_and_goes_on(tmp_path):
    command = [sys.executable, "-m", "anabranch.train.ppo", "--env", "anabranch/C3-Single-v0", "--steps", "4000000",
               "--num-envs", "2", "--rollout", "16", "--out", str(tmp_path)]  # fmt: skip
    training = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (tmp_path / "seed-1/checkpoint.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    training.send_signal(signal.SIGINT)
    said = training.communicate(timeout=60)[1]
    assert training.returncode == 130, said
    assert said.endswith("stopped; the same command goes on from the last checkpoint\n")
    assert not (tmp_path / "seed-1/policy.safetensors").exists()
