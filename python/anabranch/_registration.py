"""The environments in Gymnasium's registry."""

import gymnasium

from anabranch import _native

SCENARIO = "anabranch/Scenario-v0"
FLOW = "anabranch/Flow-v0"


def register() -> None:
    """Registers all, once."""
    ids = {f"anabranch/{name}-v0": {"environment": name} for name, _ in _native.environments()}
    for id, kwargs in {**ids, SCENARIO: {}, FLOW: {}}.items():
        if id not in gymnasium.registry:
            gymnasium.register(
                id,
                entry_point="anabranch.flow:FlowEnv" if id == FLOW else "anabranch.env:Env",
                vector_entry_point="anabranch.flow:FlowVectorEnv" if id == FLOW else "anabranch.vector:VectorEnv",
                kwargs=kwargs,
                # What is asked for wrongly is refused below; this checker would cost more than a step.
                disable_env_checker=True,
            )
