"""Deep Q-learning (Mnih et al. 2015) with double estimation (van Hasselt et al. 2016), in plain JAX on processors.

For environments in which an agent chooses one of a few actions: ``anabranch/Flow-v0`` with the decisions of LearningCC or
Xavier, whose papers use a bandit and a linear SARSA: what those reach stands beside it
(:mod:`anabranch.train._tabular`). A network says what each action is worth from here on; it is moved
towards what was paid and what the next state is worth, by steps that were taken at any time before::

    a* = argmax_a Q(s', a)                                              chosen by the network
    y = (r - mean) / deviation + gamma Q'(s', a*)      Q' = 0 after an end       valued by an older one
    loss = mean huber(Q(s, a) - y)

Acting is greedy but for a share ``epsilon`` of steps, which falls in a straight line. Mean and deviation of rewards are those of
the first rollout, which chooses at random: what all actions are paid alike would else have to be learned first. Where
episodes only end with the time, as there, it does not change which action is best. What a training depends on, and how it goes on, is as in
:mod:`anabranch.train.ppo`; the steps that it remembers are in the checkpoint, too.

::

    python -m anabranch.train.dqn --preset learningcc --steps 100000 --seeds 3 --out out/dqn
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces

from anabranch.train._checkpoint import Checkpoint, write_layers
from anabranch.train._networks import HIDDEN, forward, layers, scaled
from anabranch.train._steps import EVALUATION_EPISODES, EVALUATION_SEED, Memory, Walk, evaluated
from anabranch.train._tabular import Bandit, Sarsa
from anabranch.train._training import Course, parsed, parser, train_as_told
from anabranch.vector import VectorEnv


@dataclass(frozen=True)
class Settings:
    """All that a training depends on, besides its seed."""

    preset: str
    steps: int = 100_000
    num_envs: int = 16
    rollout: int = 32
    """Steps of each environment between two times of learning."""
    anew: int = 8
    """Iterations between two checkpoints."""
    remembered: int = 50_000
    """Steps from which is learned: the newest."""
    batch: int = 128
    updates: int = 32
    """Between two rollouts."""
    renewal: int = 4
    """Iterations after which the older network is the present one."""
    rate: float = 1e-3
    gamma: float = 0.95
    epsilon: tuple[float, float] = (1.0, 0.05)
    """The share of random steps at first, and from half of the training on."""
    most_gradient: float = 10.0

    @property
    def iterations(self) -> int:
        """Rollouts, the last of which may go beyond ``steps``."""
        return -(-self.steps // (self.num_envs * self.rollout))


class Learner:
    """The networks of one training, what it remembers, and what an update does."""

    def __init__(self, settings: Settings, envs: VectorEnv, seed: int) -> None:
        self.settings, self.choices = settings, int(envs.single_action_space.n)
        # Of all links that a preset may have: over one alone what is seen hardly varies (docs/learning-environments.md).
        low, high = envs.single_observation_space.low, envs.single_observation_space.high
        self.normal = ((low + high) / 2, (high - low) / 2)
        self.key = jax.random.key(seed)
        row = len(low)
        self.parameters = layers(jax.random.fold_in(self.key, 1), (row, *HIDDEN, self.choices), 0.01, 0.0)
        self.older = self.parameters
        self.optimiser = optax.chain(optax.clip_by_global_norm(settings.most_gradient), optax.adam(settings.rate))
        self.state = self.optimiser.init(self.parameters)
        self.memory = Memory.of(settings.remembered, row, np.int32(0))
        # Mean and deviation of rewards.
        self.paid = np.zeros(2, np.float32)
        self._values, self._update = jax.jit(self._make_values), jax.jit(self._make_update)

    @property
    def numbers(self) -> Any:
        """All that learning changes."""
        return self.parameters, self.older, self.state, tuple(self.memory), self.paid

    @numbers.setter
    def numbers(self, numbers: Any) -> None:
        self.parameters, self.older, self.state, memory, paid = numbers
        # Written to by hand: numpy's, and not JAX's, which can't be.
        self.memory, self.paid = Memory(*(np.array(part) for part in memory)), np.array(paid)

    def epsilon(self, iteration: int) -> float:
        """The share of random steps."""
        first, last = self.settings.epsilon
        return first + (last - first) * min(2 * iteration / self.settings.iterations, 1.0)

    def _make_values(self, parameters: Any, observations: jax.Array) -> jax.Array:
        return forward(parameters, scaled(observations, self.normal))

    def values(self, observations: np.ndarray) -> np.ndarray:
        """What each action is worth: ``(n, choices)``."""
        return np.asarray(self._values(self.parameters, observations))

    def act(self, observations: np.ndarray, epsilon: float, rng: np.random.Generator) -> np.ndarray:
        """The best action of each, or now and then any."""
        count = len(observations)
        drawn, is_random = rng.integers(self.choices, size=count), rng.random(count) < epsilon
        return np.where(is_random, drawn, self.values(observations).argmax(1))

    def remember(self, *steps: np.ndarray) -> None:
        """Steps from which is learned from now on."""
        if self.memory.count == 0:
            self.paid = np.array([steps[2].mean(), max(float(steps[2].std()), 1e-6)], np.float32)
        self.memory = self.memory.put(*steps)

    def _loss(self, parameters: Any, older: Any, batch: Any, paid: jax.Array) -> jax.Array:
        observations, actions, rewards, following, goes_on = batch
        best = self._make_values(parameters, following).argmax(-1)
        worth = jnp.take_along_axis(self._make_values(older, following), best[:, None], -1)[:, 0]
        wanted = jax.lax.stop_gradient((rewards - paid[0]) / paid[1] + self.settings.gamma * goes_on * worth)
        values = jnp.take_along_axis(self._make_values(parameters, observations), actions[:, None], -1)[:, 0]
        return optax.huber_loss(values, wanted).mean()

    def _make_update(self, parameters: Any, older: Any, state: Any, batches: Any, paid: jax.Array) -> Any:
        def one(carry: Any, batch: Any) -> Any:
            parameters, state = carry
            loss, gradient = jax.value_and_grad(self._loss)(parameters, older, batch, paid)
            changes, state = self.optimiser.update(gradient, state, parameters)
            return (optax.apply_updates(parameters, changes), state), loss

        (parameters, state), losses = jax.lax.scan(one, (parameters, state), batches)
        return parameters, state, losses.mean()

    def learn(self, iteration: int, rng: np.random.Generator) -> float:
        """From what it remembers; the mean loss."""
        settings = self.settings
        batches = self.memory.drawn(rng, (settings.updates, settings.batch))
        self.parameters, self.state, loss = self._update(self.parameters, self.older, self.state, batches, self.paid)
        if (iteration + 1) % settings.renewal == 0:
            self.older = self.parameters
        return float(loss)


def make(settings: Settings, count: int, **options: Any) -> VectorEnv:
    """Environments in which an agent chooses.

    Raises:
        ValueError: An action of the preset's is a number, not a choice.
    """
    envs = gymnasium.make_vec("anabranch/Flow-v0", count, preset=settings.preset, **options).unwrapped
    if not isinstance(envs.single_action_space, spaces.Discrete):
        raise ValueError(f'an action of the preset "{settings.preset}" is no choice of a few: learningcc and xavier have those')
    return envs


def train(settings: Settings, seed: int, folder: Path) -> Course:
    """Trains, or goes on from the folder's checkpoint; ``network.npz`` has the network's layers at the end.

    What has learned is given back.
    """
    envs = make(settings, settings.num_envs)
    learner, walk = Learner(settings, envs, seed), Walk(envs, seed)

    def iterate(iteration: int) -> dict[str, float]:
        rng = np.random.default_rng([seed, iteration])
        if iteration % settings.anew == 0:
            walk.begin(iteration // settings.anew)
        epsilon = learner.epsilon(iteration)
        steps, reward = walk.take(settings.rollout, lambda seen: learner.act(seen, epsilon, rng))
        learner.remember(*steps)
        loss = learner.learn(iteration, rng)
        count = (iteration + 1) * settings.num_envs * settings.rollout
        return {"steps": count, "reward_per_step": reward, "loss": loss, "epsilon": epsilon}

    yield from Checkpoint(folder, settings, seed).go_on(learner, iterate)
    write_layers(folder / "network.npz", learner.parameters)
    return learner


def evaluate(settings: Settings, act: Callable[[np.ndarray], np.ndarray]) -> float:
    """Mean reward of a step in episodes that no training has seen."""
    envs = make(settings, EVALUATION_EPISODES, autoreset_mode="Disabled")
    return evaluated(envs, lambda _, seen: act(seen))


def score(settings: Settings, learner: Learner) -> float:
    """That of the network's best actions."""
    return evaluate(settings, lambda seen: learner.values(seen).argmax(1))


def baselines(settings: Settings) -> dict[str, float]:
    """Each action alone, chance, and the papers' own learners, which know nothing at first and learn while they act."""
    reached: dict[str, float] = {}
    choices = int(make(settings, 1).single_action_space.n)
    for choice in range(choices):
        reached[f"always {choice}"] = evaluate(settings, lambda seen: np.full(len(seen), choice))
    rng = np.random.default_rng(EVALUATION_SEED)
    reached["at random"] = evaluate(settings, lambda seen: rng.integers(choices, size=len(seen)))
    for name, make_learner in {"bandit": _bandit, "linear SARSA": _sarsa}.items():
        envs = make(settings, EVALUATION_EPISODES, autoreset_mode="Disabled")
        learner = make_learner(envs)
        reached[name] = evaluated(envs, lambda _, seen: learner.act(seen), learner.learn)
    return reached


def _bandit(envs: VectorEnv) -> Bandit:
    return Bandit(envs.num_envs, int(envs.single_action_space.n), EVALUATION_SEED)


def _sarsa(envs: VectorEnv) -> Sarsa:
    row = len(envs.features)
    bounds = envs.single_observation_space.low[:row], envs.single_observation_space.high[:row]
    return Sarsa(envs.num_envs, int(envs.single_action_space.n), bounds, EVALUATION_SEED)


def about(settings: Settings) -> dict[str, str]:
    """What was trained in."""
    return {"preset": settings.preset}


def main(arguments: list[str] | None = None) -> None:
    command = parser(sys.modules[__name__], steps=Settings.steps, num_envs=Settings.num_envs)
    command.add_argument("--preset", default="learningcc", help="of anabranch/Flow-v0: learningcc or xavier")
    args = parsed(command, arguments)
    train_as_told(sys.modules[__name__], Settings(args.preset, args.steps, args.num_envs), args)


if __name__ == "__main__":
    # By its name, so that what is written is the same whoever calls it.
    from anabranch.train import dqn

    dqn.main()
