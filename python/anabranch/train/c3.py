"""Trains the policies of the experiments on [C3], as ``anabranch reproduce`` runs them::

    python -m anabranch.train.c3 c3-scenario-1 --out out/policies
    anabranch reproduce c3-scenario-1 --policies out/policies

``anabranch reproduce c3-scenario-1 --train --out out`` does both. Policies go to ``OUT/ID/seed-N``, or to
``OUT/ID/VARIANT/seed-N`` where an experiment compares several. The repository's own, in ``policies/``, were made so; see
``policies/README.md``.
"""

from __future__ import annotations

import argparse

from anabranch.train import ppo
from anabranch.train._training import add_ray, folder, train_all
from anabranch.train.ppo import Settings

# An episode of the three scenarios has a hundred steps: an update after each ten episodes, and a look at what is directed
# after 10, 50 and 100, as the paper draws it.
SCENARIO = dict(steps=500_000, num_envs=10, rollout=100, keep=(1_000, 5_000, 10_000))
# Where another flow begins, its own features tell the first one only by the queue: each rollout is gone through ten times, as
# [PPO] has it for continuous actions, and what lies further ahead than five steps is not an action's, since the first flow
# has yielded after three.
STAGGERED = dict(SCENARIO, epochs=10, gamma=0.8)
CROSS = "anabranch/C3-Cross-v0"
SEEN = [
    "throughput", "queue", "dropped", "active", "flows", "previous_rate", "cross_share", "cross_age", "cross_on", "cross_off",
]  # fmt: skip
# What is expected of the step to come and was of the two before: an edge lies in one of them, or near.
EXPECTS = {"features": [*SEEN, "cross_expected"], "history": 3}
# What was directed in the last 12 steps, which reports ten steps late do not show yet, beside the reports themselves.
PROMPT_RATES = {"features": [*SEEN, "told"], "history": 12}
LATE_EXPECTS = {"features": [*SEEN, "cross_expected", "told"], "history": 12}

# Of each experiment its variants, "" for a single one: settings, and how many seeds.
TRAININGS: dict[str, dict[str, tuple[Settings, int]]] = {
    "c3-scenario-1": {"": (Settings("anabranch/C3-Single-v0", **SCENARIO), 5)},
    "c3-scenario-2": {"": (Settings("anabranch/C3-Parallel-v0", **SCENARIO), 5)},
    "c3-scenario-3": {"": (Settings("anabranch/C3-Staggered-v0", **STAGGERED), 5)},
    # Every 20 ms a step costs a fifth of the packets.
    "c3-cross-learned": {
        "100-ms": (Settings(CROSS, steps=262_144), 10),
        "20-ms": (Settings(CROSS, {"interval": 0.02}, steps=524_288, rollout=512, gamma=0.99), 5),
        "expects-100-ms": (Settings(CROSS, EXPECTS, steps=2_097_152), 10),
        "expects-20-ms": (Settings(CROSS, {"interval": 0.02, **EXPECTS}, steps=4_194_304), 5),
    },
    "c3-fairness": {"": (Settings("anabranch/C3-Fairness-v0", steps=262_144), 3)},
    # A step is a second, with all its packets: more updates for each.
    "c3-subdomains": {
        "": (Settings("anabranch/C3-Subdomains-v0", steps=32_768, rollout=32), 3),
        "longer": (Settings("anabranch/C3-Subdomains-v0", steps=262_144, rollout=32), 3),
    },
    "c3-delayed": {
        "": (Settings("anabranch/C3-Delayed-v0", steps=262_144), 3),
        "told": (Settings("anabranch/C3-Delayed-v0", PROMPT_RATES, steps=524_288), 3),
        "expects": (Settings("anabranch/C3-Delayed-v0", LATE_EXPECTS, steps=1_048_576), 3),
    },
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m anabranch.train.c3", description=__doc__.split("::")[0])
    parser.add_argument("id", choices=list(TRAININGS), help="the experiment")
    parser.add_argument("--variant", help="only this one of several")
    parser.add_argument("--out", type=folder, required=True, help="a folder; trainings that are there go on")
    add_ray(parser)
    args = parser.parse_args(arguments)
    variants = TRAININGS[args.id]
    if args.variant is not None and args.variant not in variants:
        known = ", ".join(filter(None, variants)) or "none"
        parser.error(f'{args.id} has no variant "{args.variant}"; it has: {known}')
    for name, (settings, seeds) in variants.items():
        if args.variant in (None, name):
            print(f"{args.id} {name}".rstrip(), flush=True)
            train_all(ppo, settings, seeds, args.out / args.id / name, args.ray)


if __name__ == "__main__":
    main()
