"""What all trainings have alike: how they are stopped, what they refuse, and what is written."""

import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

from anabranch.train import _curves, _training, c3, dqn, ppo, sac
from anabranch.train._checkpoint import alone, write, write_layers
from anabranch.train._training import bench, finished, train_all

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


HOSTS = ["--env", "anabranch/C3-Single-v0"]
REFUSED = {
    "no JSON": ([*HOSTS, "--options", "{x}"], "argument --options: {x} is no JSON, must be an object as"),
    "a list": ([*HOSTS, "--options", "[1]"], "argument --options: [1] is no object, must be one as"),
    "unknown key": ([*HOSTS, "--options", '{"colour": 1}'], "does not take the options {'colour': 1}: "),
    "wrong type": ([*HOSTS, "--options", '{"history": "x"}'], "history"),
    "negative": ([*HOSTS, "--options", '{"history": -1}'], "history"),
    "foreign": (["--env", "CartPole-v1"], "CartPole-v1 is none of the environments that these learners act in"),
    "unknown": (["--env", "anabranch/C3-Singel-v0"], "C3-Singel"),
    "a flow": (["--env", "anabranch/Flow-v0"], "this learner is for coordinators: anabranch.train.sac is for the"),
    "too few steps": ([*HOSTS, "--num-envs", "2", "--rollout", "2"], "num_envs times rollout is 4, must be 8 or more"),
    "too many steps": ([*HOSTS, "--steps", "9" * 30], f"--steps is {'9' * 30}, must be 2147483647 or less"),
    "too many updates": ([*HOSTS, "--steps", "2000000000", "--num-envs", "2", "--rollout", "4"], "steps is 2000000000, which"),
    "too long": ([*HOSTS, "--rollout", "3000000000"], "--rollout is 3000000000, must be 2147483647 or less"),
    "a mode": ([*HOSTS, "--options", '{"autoreset_mode": "SameStep"}'], "which a learner says itself: leave it away"),
    "how they are made": ([*HOSTS, "--options", '{"vectorization_mode": "sync"}'], "which a learner says itself"),
    "how many": ([*HOSTS, "--options", '{"num_envs": 3}'], "have num_envs, which a learner says itself"),
    "another": ([*HOSTS, "--options", '{"environment": "C3-Cross"}'], "have environment, which a learner says itself"),
}


@pytest.mark.parametrize("mistake", REFUSED)
@pytest.mark.parametrize("to", [["--out", "there"], ["--bench"]], ids=["train", "bench"])
def test_a_mistake_is_one_line_and_exit_code_2(mistake, to, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments, said = REFUSED[mistake]
    with pytest.raises(SystemExit) as raised:
        ppo.main([*arguments, *to])
    line = capsys.readouterr().err.splitlines()[-1]
    assert raised.value.code == 2 and said in line and "error: " in line, line
    assert not list(tmp_path.iterdir())


def test_two_presets_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        sac.main(["--preset", "aurora", "--options", '{"preset": "learningcc"}', "--out", str(tmp_path)])
    assert '--preset is aurora, and --options says "learningcc": give one of them' in capsys.readouterr().err


def test_where_nothing_can_be_written_nothing_is_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ppo, "baselines", None)
    file = tmp_path / "file"
    file.write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/seed-2").write_text("mine")
    for out, who in ((file, file), (file / "below", file), (tmp_path / "out", tmp_path / "out/seed-2")):
        with pytest.raises(SystemExit, match="2"):
            ppo.main([*SINGLE, "--seeds", "2", "--out", str(out)])
        assert capsys.readouterr().err == f"error: --out is {out}, and {who} is a file: give a folder\n"
    for main, arguments in ((ppo.main, SINGLE), (c3.main, ["c3-fairness"])):
        with pytest.raises(SystemExit, match="2"):
            main([*arguments, "--out", ""])
        assert "argument --out: is empty, must be a folder" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["results.json", "curves.html", "seed-1/policy.json", "seed-1/checkpoint.npz"])
def test_a_folder_where_a_file_is_to_be_is_said_before_a_training(place, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ppo, "baselines", None)
    (tmp_path / place).mkdir(parents=True)
    with pytest.raises(SystemExit, match="2"):
        ppo.main([*SINGLE, "--out", str(tmp_path)])
    said = capsys.readouterr().err
    assert said == f"error: --out is {tmp_path}, and {tmp_path / place} is a folder where a file is to be: give another --out\n"


@pytest.mark.parametrize("out", ["/proc/there", "/sys/there"])
def test_a_folder_that_cant_be_made_is_said_before_a_training(out, monkeypatch, capsys):
    monkeypatch.setattr(ppo, "baselines", None)
    with pytest.raises(SystemExit, match="2"):
        ppo.main([*SINGLE, "--out", out])
    said = capsys.readouterr().err
    assert said.startswith(f"error: --out: {out}: can't be written to (") and said.count("\n") == 1, said


def test_what_cant_be_written_at_the_end_is_a_line(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device", "curves.html")

    monkeypatch.setattr(_training, "write_page", full)
    with pytest.raises(SystemExit, match="2"):
        train_all(Nothing(lambda: None), Settings(), 1, tmp_path)
    assert capsys.readouterr().err == "error: [Errno 28] No space left on device: 'curves.html'\n"


@pytest.mark.parametrize("folder", ["", "seed-1"])
def test_a_folder_into_which_another_training_writes_is_refused(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ppo, "baselines", None)
    (tmp_path / "seed-1").mkdir()
    code = (
        "import sys; from pathlib import Path; from anabranch.train._checkpoint import alone\n"
        "with alone(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(SystemExit, match="2"):
            ppo.main([*SINGLE, "--out", str(tmp_path)])
        said = capsys.readouterr().err
        assert "another training writes here: wait for its end, or give another --out" in said and said.count("\n") == 1
        with pytest.raises(ValueError, match="another training writes here"):
            with alone(tmp_path / folder):
                pass
        other.stdin.close()
        assert other.wait() == 0
    with alone(tmp_path / folder):
        pass


def test_a_folder_in_which_nothing_was_written_goes_again(tmp_path):
    with alone(tmp_path / "a/b"), alone(tmp_path / "a/b/c"):
        assert (tmp_path / "a/b/c").is_dir()
    assert not list(tmp_path.iterdir())
    with alone(tmp_path / "a/b"):
        (tmp_path / "a/b/.x.1.part").write_text("of one who was killed")
        (tmp_path / "a/file").write_text("mine")
    with alone(tmp_path / "a/b"):
        assert not list((tmp_path / "a/b").iterdir())
    assert (tmp_path / "a/file").exists()


def test_a_file_that_cant_be_written_is_named(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "curve.csv"
    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write(path, b"rows")
    assert not list(tmp_path.iterdir())


def test_seeds_of_trainings_stay_below_those_of_evaluations(tmp_path, capsys):
    with pytest.raises(ValueError, match="seed is 1073741824, must be from 0 to 1073741823"):
        finished(ppo.train(ppo.Settings("anabranch/C3-Single-v0", num_envs=2, rollout=16), 2**30, tmp_path))
    with pytest.raises(SystemExit, match="2"):
        ppo.main([*SINGLE, "--seeds", str(2**30), "--out", str(tmp_path)])
    assert f"--seeds is {2**30}, must be {2**30 - 1} or less" in capsys.readouterr().err


@pytest.mark.parametrize("data", [b"", b"PK", b"no archive", "half", "other", "method", "encrypted"])
def test_a_damaged_checkpoint_is_named(data, tmp_path, capsys):
    ppo.main([*SINGLE, "--out", str(tmp_path)])
    path = tmp_path / "seed-1/checkpoint.npz"
    if data == "half":
        data = path.read_bytes()[: path.stat().st_size // 2]
    if data in ("method", "encrypted"):
        # Each entry's flags and its method, where the archive lists them.
        whole, place, new = bytearray(path.read_bytes()), *((10, 99) if data == "method" else (8, 1))
        at = whole.find(b"PK\x01\x02")
        while at >= 0:
            whole[at + place] = new
            at = whole.find(b"PK\x01\x02", at + 1)
        data = bytes(whole)
    if data == "other":
        write_layers(path, [([1.0], [2.0])])
    else:
        path.write_bytes(data)
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        ppo.main([*SINGLE, "--out", str(tmp_path)])
    said = capsys.readouterr().err
    assert said.startswith(f"error: {path}: is no checkpoint, or is damaged (") and said.count("\n") == 1, said


def test_a_page_has_the_trainings_of_its_call_alone(tmp_path):
    for name in ("seed-1", "seed-2", "seed-10", "seed-1.bak", "seed-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "curve.csv").write_text("steps,reward_per_step\n1,0.5\n")
    _curves.write_page(tmp_path, "learner", {}, {"rule": 1.0, "seed-1": 0.5, "seed-10": 0.25}, "reward")
    page = (tmp_path / "curves.html").read_text()
    assert "seed-1" in page and "seed-10" in page
    assert not {name for name in ("seed-2", "seed-1.bak", "seed-x") if name in page}


SMALL = dict(steps=32, num_envs=2, rollout=16, batch=4, updates=1)
LEARNERS = [
    (dqn, dqn.Settings("learningcc", **SMALL)),
    (sac, sac.Settings("anabranch/Flow-v0", {"preset": "aurora"}, **SMALL)),
]


@pytest.mark.parametrize(("learner", "settings"), LEARNERS, ids=["dqn", "sac"])
def test_a_network_is_written_whole_or_not_at_all(learner, settings, tmp_path, monkeypatch):
    """A disk that is full in the middle leaves what was there."""
    path, replace = tmp_path / "network.npz", Path.replace
    path.write_bytes(b"before")

    def full(self, target):
        if Path(target) == path:
            raise OSError("no space left")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        finished(learner.train(settings, 1, tmp_path))
    assert path.read_bytes() == b"before"
