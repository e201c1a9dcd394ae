"""Congestion control that learns: simulated networks as learning environments, runs and sweeps.

``import anabranch`` registers the environments with Gymnasium, if it is installed::

    import anabranch, gymnasium
    env = gymnasium.make("anabranch/C3-Single-v0")
    envs = gymnasium.make_vec("anabranch/C3-Cross-v0", num_envs=64)

Runs, sweeps and experiments (:func:`run`, :func:`sweep`, :func:`reproduce`) give what the command ``anabranch`` gives, as
dicts and tables, and need numpy alone. Nothing that is optional is imported before it is asked for.
"""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec

from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from anabranch._native import RunError, ScenarioError, Table, __version__
from anabranch._runs import Result, controllers, experiments, reproduce, run, sweep
from anabranch._spec import Feature, environments, features

if _TYPE_CHECKING:
    from anabranch.parallel import HostsEnv as _HostsEnv

__all__ = [
    "Feature",
    "Result",
    "RunError",
    "ScenarioError",
    "Table",
    "__version__",
    "controllers",
    "environments",
    "experiments",
    "features",
    "parallel_env",
    "reproduce",
    "run",
    "sweep",
]


_MODULES = ("env", "flow", "parallel", "policy", "sb3", "to_onnx", "train", "vector")


def parallel_env(environment: str | None = None, **options: _Any) -> "_HostsEnv":
    """The hosts of an environment as agents, in PettingZoo's parallel API: see :class:`anabranch.parallel.HostsEnv`.

    Args:
        environment: A name of the catalogue, as "C3-Parallel"; or give ``scenario=``.
        options: As of :class:`anabranch.env.Env`.

    Raises:
        ModuleNotFoundError: PettingZoo is not installed.
    """
    if _find_spec("pettingzoo") is None:
        raise ModuleNotFoundError("PettingZoo is not installed: pip install pettingzoo", name="pettingzoo")
    from anabranch.parallel import HostsEnv

    return HostsEnv(environment, **options)


if not _TYPE_CHECKING:

    def __getattr__(name: str) -> _Any:
        """The modules, each loaded when it is asked for: some need Gymnasium, and others more than that."""
        if name in _MODULES:
            return _import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if _find_spec("gymnasium") is not None:
    from anabranch._registration import register as _register

    _register()
