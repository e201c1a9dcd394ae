"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347), in plain JAX on processors.

A normal distribution around a network's rates acts for a while; then the network moves towards actions that were worth
more than a second network had valued them, as long as it stays close to what has acted::

    delta_t = r_t + gamma V(s_t+1) - V(s_t)                              V = 0 after an end, not after a time limit
    A_t = delta_t + gamma lambda A_t+1                                   not past an episode's end
    loss = -mean min(ratio A, clip(ratio, 1 - e, 1 + e) A) + c_v mean (V - (A + V_old))^2 - c_e entropy

Acting is Rust's (``VectorEnv.rollout``). Each host's rate is said by the same network from that host's rows, so that a
policy serves any number of hosts; the value is of all that is seen. Features are scaled by their ranges.

Every ``anew`` iterations all environments begin anew, with seeds that follow from the training's and the iteration: only
there are checkpoints written. A training that goes on from one gives the same bytes as one that was never stopped.

::

    python -m anabranch.train.ppo --env anabranch/C3-Single-v0 --steps 500000 --seeds 3 --out out/ppo
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from anabranch.policy import Policy
from anabranch.train._checkpoint import Checkpoint
from anabranch.train._networks import HIDDEN, Known, Shape, arrays, forward, layers, scaled_rows, scaled_whole, unit_of
from anabranch.train._origin import origin
from anabranch.train._steps import (
    EVALUATION_EPISODES, SEEDS_APART, acting, against_baselines, evaluated, made_for_hosts,
)  # fmt: skip
from anabranch.train._training import Course, add_environment, parsed, parser, train_as_told
from anabranch.vector import VectorEnv

# What is told at first; of the actions' noise at the beginning, and the least and the most that it may become. All are of
# the range of rates, and go with that of other actions, as everything that the networks say.
FIRST_ANSWER = 0.5
FIRST_DEVIATION, LEAST_DEVIATION, MOST_DEVIATION = 0.3, 0.01, 1.0
# JAX counts them in 32 bits.
MOST_UPDATES = 2**31 - 1


@dataclass(frozen=True)
class Settings:
    """All that a training depends on, besides its seed."""

    env: str
    options: dict[str, Any] = field(default_factory=dict)
    steps: int = 500_000
    num_envs: int = 32
    rollout: int = 128
    """Steps of each environment between two updates."""
    anew: int = 8
    """Iterations between two checkpoints."""
    epochs: int = 4
    minibatches: int = 8
    rate: float = 1e-3
    """Of learning, at the beginning; it falls to 0 in a straight line."""
    gamma: float = 0.95
    """A host answers within a few steps: what lies further ahead than twenty is not its action's."""
    trace: float = 0.95
    clip: float = 0.2
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    most_gradient: float = 0.5
    keep: tuple[int, ...] = ()
    """Steps after which the policy is kept as ``steps-N.safetensors``: after the first update that has seen as many."""

    def __post_init__(self) -> None:
        each = self.num_envs * self.rollout
        if each < self.minibatches:
            raise ValueError(
                f"num_envs times rollout is {each}, must be {self.minibatches} or more: an update goes through that "
                "many parts"
            )

        self.check_updates()

    def check_updates(self) -> None:
        """Whether they can be counted, as the learner's rate that falls with them is."""
        if self.updates > MOST_UPDATES:
            raise ValueError(
                f"steps is {self.steps}, which take {self.updates} updates, and {MOST_UPDATES} can be counted: give fewer "
                "steps, or longer rollouts"
            )

    @property
    def updates(self) -> int:
        """Of the networks."""
        return self.iterations * self.epochs * self.minibatches

    @property
    def iterations(self) -> int:
        """Rollouts, the last of which may go beyond ``steps``."""
        return -(-self.steps // (self.num_envs * self.rollout))


class Batch(NamedTuple):
    """What the learner sees of a rollout; each array begins with ``(num_envs, steps)`` until it is flattened."""

    observations: jax.Array
    actions: jax.Array
    log_probability: jax.Array
    advantages: jax.Array
    returns: jax.Array
    counts: jax.Array
    """1, or 0 where nothing was done: the step after an end only begins the next episode."""


def rates(parameters: Any, observations: jax.Array, normal: Any, shape: Shape) -> jax.Array:
    """``(..., hosts)``: what the policy says before noise, in the learner's unit."""
    return forward(parameters["policy"], scaled_rows(observations, normal, shape))[..., 0]


def value(parameters: Any, observations: jax.Array, normal: Any, shape: Shape) -> jax.Array:
    """``(...)``: what is to be expected from here on."""
    return forward(parameters["value"], scaled_whole(observations, normal, shape))[..., 0]


def log_probability(parameters: Any, means: jax.Array, actions: jax.Array) -> jax.Array:
    """Of all hosts' actions together."""
    log_deviation = parameters["log_deviation"]
    each = -0.5 * ((actions - means) / jnp.exp(log_deviation)) ** 2 - log_deviation - 0.5 * jnp.log(2 * jnp.pi)
    return each.sum(-1)


def advantages(settings: Any, values: jax.Array, rewards: jax.Array, terminated: jax.Array, over: jax.Array,
               begins: jax.Array) -> jax.Array:  # fmt: skip
    """``(num_envs, steps)``: how much better each action was than what is to be expected, which has a step more.

    ``over`` is where an episode ends, either way; where one ``begins`` nothing is done.
    """
    # After a time limit the next observation is the episode's last: what was cut off is worth its value.
    delta = rewards + settings.gamma * jnp.where(terminated, 0.0, values[:, 1:]) - values[:, :-1]

    def back(following: jax.Array, now: Any) -> Any:
        delta, over, begins = now
        advantage = delta + settings.gamma * settings.trace * jnp.where(over, 0.0, following)
        return (advantage := jnp.where(begins, 0.0, advantage)), advantage

    _, all = jax.lax.scan(back, jnp.zeros(len(rewards)), (delta.T, over.T, begins.T), reverse=True)
    return all.T


def objective(settings: Any, shape: Shape, log_deviation: jax.Array, probability: jax.Array, values: jax.Array,
              batch: Any) -> jax.Array:  # fmt: skip
    """What is made small: of actions that are this probable now, in states that are valued so now."""

    def mean(values: jax.Array) -> jax.Array:
        return (values * batch.counts).sum() / jnp.maximum(batch.counts.sum(), 1.0)

    better = batch.advantages - mean(batch.advantages)
    better /= jnp.sqrt(mean(better**2)) + 1e-8
    ratio = jnp.exp(probability - batch.log_probability)
    cut = jnp.clip(ratio, 1 - settings.clip, 1 + settings.clip)
    gain = mean(jnp.minimum(ratio * better, cut * better))
    error = mean((values - batch.returns) ** 2)
    entropy = shape.hosts * (log_deviation + 0.5 * jnp.log(2 * jnp.pi * jnp.e))
    return -gain + settings.value_weight * error - settings.entropy_weight * entropy


class Learner:
    """The networks of one training, and what an update does to them."""

    def __init__(self, settings: Settings, envs: VectorEnv, seed: int) -> None:
        self.settings = settings
        self.shape = shape = Shape.of(envs)
        self.normal = shape.normal(envs)
        self.unit = unit_of(envs)
        self.key = jax.random.key(seed)
        self.parameters = {
            "policy": layers(jax.random.fold_in(self.key, 1), (shape.row, *HIDDEN, 1), 0.01, FIRST_ANSWER),
            "value": layers(jax.random.fold_in(self.key, 2), (shape.row * shape.hosts, *HIDDEN, 1), 1.0, 0.0),
            "log_deviation": jnp.full((), np.log(FIRST_DEVIATION), jnp.float32),
        }
        self.optimiser = optax.chain(
            optax.clip_by_global_norm(settings.most_gradient),
            optax.adam(optax.linear_schedule(settings.rate, 0.0, settings.updates), eps=1e-5),
        )
        self.state = self.optimiser.init(self.parameters)
        self.known = Known.nothing(shape)
        self._batch, self._update = jax.jit(self._make_batch), jax.jit(self._make_update)

    @property
    def numbers(self) -> Any:
        """All that learning changes."""
        return self.parameters, self.state, self.known

    @numbers.setter
    def numbers(self, numbers: Any) -> None:
        self.parameters, self.state, self.known = numbers

    @property
    def deviation(self) -> float:
        """Of the noise on actions."""
        return float(np.exp(np.float32(self.parameters["log_deviation"])) * self.unit)

    def policy(self, is_trained: bool = False) -> Policy:
        """What acts: the same numbers, in Rust; a trained one knows what it has seen."""
        known = self.known.arrays if is_trained else None
        layers = arrays(self.parameters["policy"], self.unit)
        return Policy(layers, mean=self.normal[0], deviation=self.normal[1], known=known)

    def _make_batch(self, parameters: Any, observations: Any, actions: Any, rewards: Any, terminated: Any,
                    truncated: Any, next: Any, was_over: Any) -> Batch:  # fmt: skip
        settings = self.settings
        over = terminated | truncated
        begins = jnp.concatenate([was_over[:, None], over[:, :-1]], 1)
        values = value(parameters, jnp.concatenate([observations, next[:, None]], 1), self.normal, self.shape)
        better = advantages(settings, values, rewards, terminated, over, begins)
        means = rates(parameters, observations, self.normal, self.shape)
        probability = log_probability(parameters, means, actions)
        returns = better + values[:, :-1]
        batch = Batch(observations, actions, probability, better, returns, (~begins).astype(jnp.float32))
        return Batch(*(part.reshape(-1, *part.shape[2:]) for part in batch))

    def _loss(self, parameters: Any, batch: Batch) -> jax.Array:
        means = rates(parameters, batch.observations, self.normal, self.shape)
        probability = log_probability(parameters, means, batch.actions)
        values = value(parameters, batch.observations, self.normal, self.shape)
        return objective(self.settings, self.shape, parameters["log_deviation"], probability, values, batch)

    def _make_update(self, parameters: Any, state: Any, batch: Batch, key: jax.Array) -> tuple[Any, Any]:
        count = len(batch.counts)
        size = count // self.settings.minibatches

        def epoch(carry: Any, key: jax.Array) -> Any:
            order = jax.random.permutation(key, count)[: size * self.settings.minibatches]
            return jax.lax.scan(one, carry, order.reshape(self.settings.minibatches, size))

        def one(carry: Any, places: jax.Array) -> Any:
            parameters, state = carry
            gradient = jax.grad(self._loss)(parameters, Batch(*(part[places] for part in batch)))
            changes, state = self.optimiser.update(gradient, state, parameters)
            parameters = optax.apply_updates(parameters, changes)
            low, high = np.log(np.float32([LEAST_DEVIATION, MOST_DEVIATION]))
            parameters["log_deviation"] = jnp.clip(parameters["log_deviation"], low, high)
            return (parameters, state), None

        (parameters, state), _ = jax.lax.scan(epoch, (parameters, state), jax.random.split(key, self.settings.epochs))
        return parameters, state

    def forget(self) -> None:
        """All environments begin anew."""
        self.was_over = np.zeros(self.settings.num_envs, bool)

    def learn(self, iteration: int, seen: Any) -> float:
        """From a rollout; the mean reward of its steps."""
        self.known = self.known.noted(seen.observations, self.shape)
        seen = seen._replace(actions=seen.actions / self.unit)
        batch = self._batch(self.parameters, *seen, self.was_over)
        self.was_over = (seen.terminated | seen.truncated)[:, -1]
        key = jax.random.fold_in(jax.random.fold_in(self.key, 3), iteration)
        self.parameters, self.state = self._update(self.parameters, self.state, batch, key)
        counts = np.asarray(batch.counts).reshape(seen.rewards.shape)
        return float((seen.rewards * counts).sum(dtype=np.float64) / counts.sum(dtype=np.float64))


def course(make: Callable[..., Any], by: str, settings: Settings, seed: int, folder: Path) -> Course:
    """That of :func:`train`, for what ``make`` makes."""
    envs = made_for_hosts(settings, settings.num_envs)
    learner = make(settings, envs, seed)
    out, each = envs.trajectory(settings.rollout), settings.num_envs * settings.rollout

    # Before what may take hours, in which the repository may go on.
    trained = origin(by, seed, settings)

    def keep(path: Path) -> Policy:
        policy = learner.policy(is_trained=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        policy.save(path, envs, trained=trained)
        return policy

    def iterate(iteration: int) -> dict[str, float]:
        if iteration % settings.anew == 0:
            envs.reset(seed=seed * SEEDS_APART + iteration // settings.anew * settings.num_envs)
            learner.forget()
        deviation = learner.deviation
        seen = envs.rollout(learner.policy(), settings.rollout, deviation=deviation, out=out)
        reward = learner.learn(iteration, seen)
        for steps in settings.keep:
            if iteration * each < steps <= (iteration + 1) * each:
                keep(folder / f"steps-{steps}.safetensors")
        return {"steps": (iteration + 1) * each, "reward_per_step": reward, "deviation": deviation}

    yield from Checkpoint(folder, settings, seed).go_on(learner, iterate)
    return keep(folder / "policy.safetensors")


def train(settings: Settings, seed: int, folder: Path) -> Course:
    """Trains, or goes on from the folder's checkpoint; at the end ``policy.safetensors`` is there and given back."""
    return course(Learner, __name__, settings, seed, folder)


def score(settings: Settings, policy: Policy) -> float:
    """Mean reward of a step, without noise, in episodes that no training has seen."""
    return evaluated(made_for_hosts(settings, EVALUATION_EPISODES, autoreset_mode="Disabled"), acting(policy))


def baselines(settings: Settings) -> dict[str, float]:
    """What the rule and the oracle get there."""
    return against_baselines(settings)


def about(settings: Settings) -> dict[str, str]:
    """What was trained in."""
    options = {"options": json.dumps(settings.options)} if settings.options else {}
    return {"environment": settings.env, **options}


def command(algorithm: Any, arguments: list[str] | None) -> None:
    """The command of this learner, or of one like it."""
    settings = algorithm.Settings
    command = parser(algorithm, steps=settings.steps, num_envs=settings.num_envs)
    add_environment(command)
    command.add_argument("--rollout", type=int, default=settings.rollout, help="steps of each between two updates")
    command.add_argument("--keep", type=int, nargs="*", default=[], metavar="STEPS",
                         help="keep the policy after this many steps, too, as steps-N.safetensors")  # fmt: skip
    args = parsed(command, arguments, ("rollout",))
    for steps in args.keep:
        if not 1 <= steps <= args.steps:
            command.error(f"--keep is {steps}, must be from 1 to the training's {args.steps} steps")
    try:
        of_all = settings(args.env, args.options, args.steps, args.num_envs, args.rollout, keep=tuple(args.keep))
    except ValueError as error:
        command.error(str(error))
    train_as_told(algorithm, of_all, args)


def main(arguments: list[str] | None = None) -> None:
    command(sys.modules[__name__], arguments)


if __name__ == "__main__":
    # By its name, so that what is written is the same whoever calls it.
    from anabranch.train import ppo

    ppo.main()
