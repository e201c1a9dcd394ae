"""A policy that acts in Rust does what it would do step by step in Python."""

import signal
import threading

import gymnasium
import numpy as np
import pytest

from anabranch.policy import Memory, Policy

SHORT = {"interval": 1.5}


def network(inputs, outputs, seed=1, hidden=16):
    draw = np.random.default_rng(seed)
    shapes = [(inputs, hidden), (hidden, hidden), (hidden, outputs)]
    return [(draw.normal(0, 0.3, shape).astype(np.float32), draw.normal(0.2, 0.1, shape[1]).astype(np.float32))
            for shape in shapes]


def by_numpy(layers, observation, mean=0.0, deviation=1.0):
    x = np.clip((observation.astype(np.float64) - mean) / deviation, -10, 10)
    for place, (weights, biases) in enumerate(layers):
        x = x @ weights + biases
        x = np.tanh(x) if place + 1 < len(layers) else x
    return x


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_forward_is_numpys(seed):
    env = gymnasium.make("anabranch/C3-Parallel-v0", history=2).unwrapped
    layers = network(24, 2, seed)
    mean, deviation = np.linspace(-1, 1, 24, dtype=np.float32), np.linspace(0.5, 2, 24, dtype=np.float32)
    policy = Policy(layers, mean=mean, deviation=deviation)
    observation = np.random.default_rng(seed).random(24, np.float32)
    expected = by_numpy(layers, observation, mean, deviation)
    assert policy.rates(env, observation) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["C3-Staggered", "C3-Random"])
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_rollout_is_what_stepping_is(name, is_shared):
    envs = gymnasium.make_vec(f"anabranch/{name}-v0", 3, threads=2, **SHORT)
    (all,), hosts = envs.single_observation_space.shape, envs.hosts
    policy = Policy(network(6, 1) if is_shared else network(all, hosts))
    envs.reset(seed=3)
    found = envs.rollout(policy, 20)
    assert found.truncated.any() and found.observations.shape == (3, 20, all)
    single = gymnasium.make(f"anabranch/{name}-v0", **SHORT).unwrapped
    for place in range(3):
        observation, _ = single.reset(seed=3 + place)
        is_over = False
        for step in range(20):
            assert found.observations[place, step].tobytes() == observation.tobytes()
            rates = policy.rates(single, observation)
            assert found.actions[place, step].tobytes() == rates.tobytes()
            if is_over:
                observation, _ = single.reset()
                reward, is_over = 0.0, False
            else:
                observation, reward, terminated, truncated, _ = single.step(rates)
                is_over = terminated or truncated
            assert found.rewards[place, step] == np.float32(reward)
            assert (found.terminated | found.truncated)[place, step] == is_over
        assert found.next[place].tobytes() == observation.tobytes()
    # It goes on where it ended.
    following = envs.rollout(policy, 3)
    assert following.observations[:, 0].tobytes() == found.next.tobytes()


def recurrent(inputs, size, seed=1):
    (cell,), (kept,) = network_of((inputs, 3 * size), seed), network_of((size, 3 * size), seed + 1)
    return Policy(network_of((size, 4, 1), seed + 2), cell=(cell, kept))


def network_of(sizes, seed):
    rng = np.random.default_rng(seed)
    return [(rng.normal(0, 0.7, pair).astype(np.float32), rng.normal(0, 0.3, pair[1]).astype(np.float32)) for pair in zip(sizes, sizes[1:])]


def test_a_policy_with_memory_remembers_an_episode_and_no_more():
    """In a rollout as step by step, and in two rollouts as in one; each host and each environment by itself."""
    policy = recurrent(6, 5)
    envs = gymnasium.make_vec("anabranch/C3-Random-v0", 3, threads=2, **SHORT)
    envs.reset(seed=3)
    found = envs.rollout(policy, 30)
    assert found.truncated.any()
    single, memory = gymnasium.make("anabranch/C3-Random-v0", **SHORT).unwrapped, Memory()
    for place in range(3):
        observation, _ = single.reset(seed=3 + place)
        memory.forget()
        is_over = False
        for step in range(30):
            rates = policy.rates(single, observation, memory)
            assert found.actions[place, step].tobytes() == rates.tobytes(), (place, step)
            if is_over:
                observation, _ = single.reset()
                memory.forget()
                is_over = False
            else:
                observation, _, terminated, truncated, _ = single.step(rates)
                is_over = terminated or truncated
    parts = gymnasium.make_vec("anabranch/C3-Random-v0", 3, threads=1, **SHORT)
    parts.reset(seed=3)
    both = np.concatenate([parts.rollout(policy, steps).actions for steps in (7, 23)], axis=1)
    assert both.tobytes() == found.actions.tobytes()


def test_a_cell_that_does_not_fit_is_refused():
    good = network_of((6, 15), 1)[0]
    with pytest.raises(ValueError, match="the cell's states have 60 weights and 15 biases"):
        Policy(network_of((5, 1), 1), cell=(good, network_of((4, 15), 1)[0]))
    with pytest.raises(ValueError, match=r"cell\[0\] has weights for 15 outputs and 14 biases"):
        Policy(network_of((5, 1), 1), cell=((good[0], good[1][:14].copy()), network_of((5, 15), 1)[0]))


def test_noise_is_of_the_seed_and_not_of_threads_or_numbers():
    policy = Policy(network(6, 1))

    def rollout(count, threads, seed):
        envs = gymnasium.make_vec("anabranch/C3-Single-v0", count, threads=threads, **SHORT)
        envs.reset(seed=seed)
        return envs.rollout(policy, 20, deviation=0.25)

    four = rollout(4, 2, 7)
    assert rollout(4, 1, 7).actions.tobytes() == four.actions.tobytes()
    assert rollout(1, 1, 9).actions[0].tobytes() == four.actions[2].tobytes()
    noise = four.actions.ravel() - by_numpy(network(6, 1), four.observations.reshape(-1, 6)).ravel()
    assert abs(noise.mean()) < 0.15 and 0.18 < noise.std() < 0.32


def test_arrays_that_there_are_are_written_to():
    envs = gymnasium.make_vec("anabranch/C3-Single-v0", 2)
    envs.reset(seed=1)
    out, policy = envs.trajectory(5), Policy(network(6, 1))
    assert envs.rollout(policy, 5, out=out) is out and out.actions.any()
    with pytest.raises(ValueError, match=r"observations has the shape \(2, 5, 6\), must have \(2, 4, 6\)"):
        envs.rollout(policy, 4, out=out)


def test_ctrl_c_ends_a_rollout():
    envs = gymnasium.make_vec("anabranch/C3-Cross-v0", 8)
    envs.reset(seed=1)
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        envs.rollout(Policy(network(10, 1)), 200_000)
    envs.rollout(Policy(network(10, 1)), 2)


def good():
    return network(6, 1)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: Policy([]), ValueError, "a policy has 0 layers"),
        (lambda: Policy(good()[:1] + good()[2:], activation="gelu"), ValueError, "there are: tanh, relu"),
        (lambda: Policy([good()[0], (good()[1][0][:5], good()[1][1])]), ValueError, "layer 1 has 80 weights and 16 biases"),
        (lambda: Policy([(good()[0][0], good()[0][1][:3])]), ValueError, "weights for 16 outputs and 3 biases"),
        (lambda: Policy([(w.astype(float), b) for w, b in good()]), TypeError, "must have float32"),
        (lambda: Policy([(w.tolist(), b) for w, b in good()]), TypeError, "must be a numpy array"),
        (lambda: Policy([(w * np.float32(np.nan), b) for w, b in good()]), ValueError, "must be a number"),
        (lambda: Policy(good(), mean=np.zeros(5, np.float32)), ValueError, "mean has 5 numbers, must have 6"),
        (lambda: Policy(good(), deviation=np.zeros(6, np.float32)), ValueError, "must be above 0"),
    ],
)
def test_what_is_no_policy_is_answered_by_what_is(make, error, said):
    with pytest.raises(error) as raised:
        make()
    assert said in str(raised.value)


def test_a_policy_for_something_else_is_refused():
    envs = gymnasium.make_vec("anabranch/C3-Parallel-v0", 2)
    policy = Policy(good())
    with pytest.raises(RuntimeError, match="call it before"):
        envs.rollout(policy, 1)
    envs.reset(seed=1)
    for options, said in [
        ({"policy": Policy(network(7, 1)), "steps": 1}, "a policy for it makes 1 rate of 6, or 2 of 12"),
        ({"policy": policy, "steps": 0}, "steps is 0"),
        ({"policy": policy, "steps": 1, "deviation": [0.1, 0.1]}, "deviations has 2 numbers, must have 1"),
        ({"policy": policy, "steps": 1, "deviation": float("nan")}, "deviations[0] is NaN"),
    ]:
        with pytest.raises(ValueError) as raised:
            envs.rollout(**options)
        assert said in str(raised.value)
    same = gymnasium.make_vec("anabranch/C3-Parallel-v0", 2, autoreset_mode="SameStep")
    same.reset(seed=1)
    with pytest.raises(ValueError, match="begin the next episode with the next step"):
        same.rollout(policy, 1)
