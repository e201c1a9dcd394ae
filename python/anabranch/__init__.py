"""Congestion control that learns: simulated networks as learning environments, runs and sweeps.

``import anabranch`` registers the environments with Gymnasium, if it is installed::

    import anabranch, gymnasium
    env = gymnasium.make("anabranch/C3-Single-v0")
    envs = gymnasium.make_vec("anabranch/C3-Cross-v0", num_envs=64)

Runs and sweeps (:func:`run`, :func:`sweep`, :func:`controllers`) give what the command ``anabranch`` gives, and need
numpy alone. Nothing that is optional is imported before it is asked for.
"""

from importlib.util import find_spec as _find_spec

from anabranch._native import RunError, ScenarioError, __version__
from anabranch._runs import controllers, run, sweep
from anabranch._spec import Feature, environments, features

__all__ = [
    "Feature",
    "RunError",
    "ScenarioError",
    "__version__",
    "controllers",
    "environments",
    "features",
    "run",
    "sweep",
]

if _find_spec("gymnasium") is not None:
    from anabranch._registration import register as _register

    _register()
