"""Environments for Stable-Baselines3 (``pip install stable-baselines3``), which has an interface of its own::

    from stable_baselines3 import PPO
    import anabranch.sb3

    envs = anabranch.sb3.VecEnv("C3-Cross", num_envs=64)
    PPO("MlpPolicy", envs, n_steps=64, batch_size=1024).learn(100_000)

Nothing of it is imported before ``VecEnv`` is asked for: it brings torch along. One thread of torch is faster than two
beside environments that have all processors (``torch.set_num_threads(1)``).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack, cast

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from anabranch._base import AnyWorlds, Options, Worlds
from anabranch._registration import SCENARIO
from anabranch.vector import VectorEnv

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv as _Base

    # What is made below, for whoever checks types: no name outside a function stands for it there.
    class VecEnv(_Base):
        envs: VectorEnv

        def __init__(
            self, environment: str | None = None, *, num_envs: int = 1, threads: int | None = None, **options: Unpack[Options]
        ) -> None: ...
        def reset(self) -> np.ndarray: ...
        def step_async(self, actions: np.ndarray) -> None: ...
        def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]: ...
        def close(self) -> None: ...
        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]: ...
        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None: ...
        def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]: ...
        def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]: ...


def _made() -> type[_Base]:
    """The class; it inherits from Stable-Baselines3's, which is imported here."""
    try:
        from stable_baselines3.common.vec_env import VecEnv as Base
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("stable_baselines3", "torch"):
            raise
        said = "Stable-Baselines3 is not installed: pip install stable-baselines3"
        raise ModuleNotFoundError(said, name=error.name) from error

    class VecEnv(Base):
        """:class:`anabranch.vector.VectorEnv` as a ``VecEnv`` of Stable-Baselines3: environment ``i`` after ``seed(s)``
        is the single environment seeded ``s + i``, whatever ``threads`` is.

        An episode that is over begins anew in the same step. Its last observation is ``infos[i]["terminal_observation"]``,
        and ``infos[i]["TimeLimit.truncated"]`` says whether only its time was over, so that a learner adds the value of
        what was cut off. ``infos[i]["terms"]`` has the reward's terms by name.

        ``envs`` is the vector. :meth:`get_attr` says what single environments would have, as their spaces, seeds and spec.

        Args:
            environment: A name of the catalogue, as "C3-Cross", or an id, as "anabranch/C3-Cross-v0"; or give ``scenario=``.
            num_envs: 1 to 65536.
            threads: As many as there are processors unless given.
            options: As of :class:`anabranch.env.Env`.

        Raises:
            ValueError: It is no environment with hosts.
            ModuleNotFoundError: Stable-Baselines3 or torch is not installed.
        """

        def __init__(
            self, environment: str | None = None, *, num_envs: int = 1, threads: int | None = None, **options: Unpack[Options]
        ) -> None:
            if environment in ("Flow", "anabranch/Flow-v0"):
                raise ValueError(
                    "this is for environments with hosts; those of one flow are Gymnasium's like any other: "
                    'stable_baselines3.common.env_util.make_vec_env("anabranch/Flow-v0", n_envs=8)'
                )
            self.envs = VectorEnv(
                environment, num_envs=num_envs, threads=threads, autoreset_mode=AutoresetMode.SAME_STEP, **options
            )
            self._actions: np.ndarray | None = None
            self._spec = _spec_of(environment, options)
            super().__init__(num_envs, self.envs.single_observation_space, self.envs.single_action_space)

        @property
        def _worlds(self) -> AnyWorlds:
            return self.envs._worlds

        def reset(self) -> np.ndarray:
            """Begins episodes: of what ``seed`` said, or the next ones."""
            if any(self._options):
                raise ValueError("environments take no options at their reset")
            seeds = None if all(seed is None for seed in self._seeds) else list(self._seeds)
            observations, infos = self.envs.reset(seed=seeds)
            self.reset_infos = _infos(infos["terms"], self.num_envs)
            self._reset_seeds()
            self._reset_options()
            self._actions = None
            return observations

        def step_async(self, actions: np.ndarray) -> None:
            """Keeps ``(num_envs, hosts)`` actions for :meth:`step_wait`."""
            self._actions = np.ascontiguousarray(actions, np.float32)

        def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
            """Takes the step: observations, rewards, whether episodes are over, and an info for each."""
            if self._actions is None:
                raise RuntimeError("there is no step to wait for: call step_async() before")
            actions, self._actions = self._actions, None
            observations, rewards, terminated, truncated, infos = self.envs.step(actions)
            over = terminated | truncated
            by_env = _infos(infos["terms"], self.num_envs)
            for info, was_cut in zip(by_env, truncated & ~terminated):
                info["TimeLimit.truncated"] = bool(was_cut)
            if over.any():
                final = _infos(infos["final_info"]["terms"], self.num_envs)
                for place in np.flatnonzero(over):
                    self.reset_infos[place] = {"terms": by_env[place]["terms"]}
                    by_env[place]["terms"] = final[place]["terms"]
                    by_env[place]["terminal_observation"] = infos["final_obs"][place]
            return observations, rewards, over, by_env

        def close(self) -> None:
            """Ends the threads with the object."""
            self.envs.close()

        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            """What each environment has by that name, as :class:`anabranch.env.Env` would have it; what those do not have
            is the vector's."""
            return [self._of_one(attr_name, place) for place in self._places(indices)]

        def _of_one(self, name: str, place: int) -> Any:
            if name in ("observation_space", "action_space"):
                return getattr(self.envs, f"single_{name}")
            if name == "np_random_seed":
                return self.envs._seeds[place] if self.envs._seeds else None
            if name == "now":
                return cast(Worlds, self.envs._worlds).native.now(place)
            if name == "spec":
                return self._spec
            return getattr(self.envs, name)

        def _places(self, indices: Any) -> list[int]:
            """Which environments are meant; from the end where below 0, as of a list."""
            everyone = range(self.num_envs)
            return [everyone[index] for index in self._get_indices(indices)]

        def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
            """Environments are what they were made as: nothing of them can be set."""
            raise AttributeError(f"{attr_name} can't be set: environments are what they were made as; make others")

        def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
            """``directed_by("rule")``, ``"period"`` and ``"oracle"``, a row for each; other methods are the vector's: ``envs``."""
            if method_name != "directed_by":
                raise AttributeError(f"environments have no method {method_name} of their own; there are: directed_by")
            rows = self.envs.directed_by(*method_args, **method_kwargs)
            return [rows[place] for place in self._places(indices)]

        def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
            """No: nothing is between them and Rust."""
            return [False] * len(self._places(indices))

        def get_images(self) -> list[None]:
            """None: single environments are shown, with ``render_mode="rgb_array"``."""
            return [None] * self.num_envs

    VecEnv.__module__, VecEnv.__qualname__ = __name__, "VecEnv"
    return VecEnv


def _spec_of(environment: str | None, options: Mapping[str, Any]) -> EnvSpec:
    """What :func:`gymnasium.make` would be asked for."""
    name = SCENARIO if environment is None else f"anabranch/{environment.removeprefix('anabranch/').removesuffix('-v0')}-v0"
    spec = copy.deepcopy(gymnasium.spec(name))
    spec.kwargs.update(options)
    return spec


def _infos(terms: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """An info for each environment, of a vector's terms."""
    names = [name for name in terms if not name.startswith("_")]
    rows = zip(*(terms[name].tolist() for name in names)) if names else [()] * count
    return [{"terms": dict(zip(names, row))} for row in rows]


def __getattr__(name: str) -> Any:
    if name == "VecEnv":
        made = globals()["VecEnv"] = _made()
        return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["VecEnv"]
