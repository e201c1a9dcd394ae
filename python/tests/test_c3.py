"""The policies of the experiments on C3: each was made by the command that its page names."""

import json
from dataclasses import asdict
from pathlib import Path

import gymnasium
import pytest

pytest.importorskip("jax")
pytest.importorskip("optax")

import anabranch
from anabranch.policy import Policy
from anabranch.train import c3, ppo

POLICIES = Path(__file__).parents[2] / "policies"
VARIANTS = [(name, variant) for name, variants in c3.TRAININGS.items() for variant in variants]


@pytest.mark.parametrize("experiment, variant", VARIANTS)
def test_the_repositorys_policies_are_those_that_the_command_trains(experiment, variant):
    settings, seeds = c3.TRAININGS[experiment][variant]
    env = gymnasium.make(settings.env, **settings.options)
    options = json.loads(json.dumps(asdict(settings)))
    for seed in range(1, seeds + 1):
        folder = POLICIES / experiment / variant / f"seed-{seed}"
        kept = [f"steps-{steps}" for steps in settings.keep] if seed == 1 else []
        for name in ["policy", *kept]:
            policy = Policy.load(folder / f"{name}.safetensors", env)
            by = {key: policy.trained[key] for key in options}
            assert (by, policy.trained["seed"]) == (options, seed), folder


def test_there_are_no_others():
    folders = {path.name for path in POLICIES.iterdir() if path.is_dir()}
    assert folders == set(c3.TRAININGS)
    assert folders <= set(anabranch.experiments())


def test_what_was_trained_elsewhere_is_played_in_place_of_the_repositorys(tmp_path, monkeypatch):
    short = ppo.Settings("anabranch/C3-Single-v0", steps=1000, num_envs=10, rollout=100, keep=(1000,))
    monkeypatch.setitem(c3.TRAININGS, "c3-scenario-1", {"": (short, 1)})
    c3.main(["c3-scenario-1", "--out", str(tmp_path)])
    assert (tmp_path / "c3-scenario-1/seed-1/steps-1000.safetensors").exists()

    def reward(**options):
        rows = anabranch.reproduce("c3-scenario-1", quick=True, **options)["rows"]
        return next(row["ours"] for row in rows if row["metric"] == "reward_per_step[at the end]")

    assert reward(policies=tmp_path) < reward(), "a thousand steps are few"


def test_wrong_policies_are_refused_in_words(tmp_path):
    with pytest.raises(ValueError, match="anabranch.train.c3 c3-scenario-1 --out DIR"):
        anabranch.reproduce("c3-scenario-1", quick=True, policies=tmp_path)
    with pytest.raises(ValueError, match="c3-fct plays no policies; those that do: c3-scenario-1"):
        anabranch.reproduce("c3-fct", quick=True, policies=tmp_path)
    folder = tmp_path / "c3-scenario-1/seed-1"
    folder.mkdir(parents=True)
    (folder / "policy.safetensors").write_bytes(b"none")
    with pytest.raises(ValueError, match="policy.json: is missing"):
        anabranch.reproduce("c3-scenario-1", quick=True, policies=tmp_path)


def test_a_variant_that_is_not_there_is_answered_by_those_that_are(capsys):
    with pytest.raises(SystemExit):
        c3.main(["c3-cross-learned", "--variant", "20ms", "--out", "out"])
    assert 'c3-cross-learned has no variant "20ms"; it has: 100-ms, 20-ms' in capsys.readouterr().err
