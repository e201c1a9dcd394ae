"""One flow as an agent: Gymnasium's contract, seeds, what is sent, and what is said of wrong input."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from anabranch.flow import FlowEnv, FlowVectorEnv

PRESETS = ["aurora", "learningcc", "xavier"]
SCENARIO = {
    "run": {"seconds": 4},
    "packets": {"data_bytes": 1434, "header_bytes": 66, "ack_every": 1},
    "dumbbell": {"rate": "2400 kbit/s", "delay_ms": 98, "queue": {"packets": 50}},
    "flow": [{"controller": "cubic"}],
}


def some(env, step):
    """Some action, other ones in other steps."""
    space = env.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return np.int64(step * 7 % space.n)
    return np.float32([-20 + 40 * (step * 7 % 11) / 10])


def make(preset, **options):
    return gymnasium.make("anabranch/Flow-v0", preset=preset, **options)


@pytest.mark.parametrize("preset", PRESETS)
def test_gymnasiums_check_passes(preset):
    with warnings.catch_warnings():
        # What an action of 1 means beats the advice to scale it.
        warnings.filterwarnings("ignore", message=".*symmetric and normalized space")
        check_env(make(preset).unwrapped)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("preset", PRESETS)
def test_a_vector_is_what_gymnasium_makes_of_single_ones(preset, mode):
    envs = gymnasium.make_vec("anabranch/Flow-v0", 3, preset=preset, autoreset_mode=mode, threads=2, scenario=SCENARIO)
    assert isinstance(envs, FlowVectorEnv) and envs.threads == 2
    plain = SyncVectorEnv([lambda: make(preset, scenario=SCENARIO) for _ in range(3)], autoreset_mode=mode)
    assert envs.action_space == plain.action_space and envs.observation_space == plain.observation_space
    assert envs.reset(seed=11)[0].tobytes() == plain.reset(seed=11)[0].tobytes()
    ends = 0
    for step in range(60):
        actions = np.array([some(plain.envs[0], step + place) for place in range(3)])
        ours, theirs = envs.step(actions), plain.step(actions)
        for left, right in zip(ours[:4], theirs[:4]):
            assert left.astype(np.float32).tobytes() == right.astype(np.float32).tobytes()
        over = ours[3]
        ends += over.sum()
        if mode is AutoresetMode.DISABLED and over.any():
            options = {"reset_mask": over}
            assert envs.reset(options=options.copy())[0].tobytes() == plain.reset(options=options.copy())[0].tobytes()
    assert ends or preset == "xavier", "four seconds are over"


@pytest.mark.parametrize("preset", PRESETS)
def test_a_seed_says_everything(preset):
    def course(env, seed=None):
        observation, _ = env.reset(seed=seed)
        seen = [observation]
        for step in range(30):
            observation, reward, *_, info = env.step(some(env, step))
            assert observation in env.observation_space
            seen += [observation, np.float32([reward, *info["terms"].values()])]
        return b"".join(array.tobytes() for array in seen)

    one, other = make(preset), make(preset)
    first, second = course(one, 7), course(one)
    assert course(other, 7) == first and course(other) == second
    assert preset != "aurora" or first != second, "links are drawn for each episode"


def test_aurora_is_paid_by_its_formula_and_sends_its_rate():
    env = make("aurora").unwrapped
    env.reset(seed=1)
    assert [feature.name for feature in env.features] == ["latency_gradient", "latency_ratio", "send_ratio"]
    assert env.observation_space.shape == (30,)
    rate = None
    for step in range(400):
        _, reward, terminated, truncated, info = env.step(np.float32([10.0 if step % 2 else -10.0]))
        terms = info["terms"]
        expected = 10 * terms["throughput"] - 1000 * terms["latency"] - 2000 * terms["loss"]
        assert reward == pytest.approx(expected, rel=1e-4, abs=1e-2)
        window, now = env.limits
        if rate is not None and 45 < rate < 790:
            assert now == pytest.approx(rate * 1.25 if step % 2 else rate / 1.25, rel=1e-6)
        rate = now
        assert (terminated, truncated) == (False, step == 399)


def test_a_greedier_arm_meets_congestion_sooner():
    def steps(arm):
        env = make("learningcc")
        env.reset(seed=1)
        count = 0
        while not env.step(arm)[3]:
            count += 1
        return count

    assert steps(4) > 1.2 * steps(0) > 12


def test_xavier_moves_the_window_by_each_ack():
    env = make("xavier").unwrapped
    env.reset(seed=1)
    windows = [env.limits[0]]
    for action in (0, 0, 1, 2, 3):
        env.step(action)
        windows.append(env.limits[0])
    assert windows == pytest.approx([2, 3, 4, 4.25, 4.25 - 1 / 4.25, 4.25 - 1 / 4.25])


def test_others_of_a_scenario_go_on_beside_the_agent():
    def latency(flows):
        env = FlowEnv("aurora", scenario={**SCENARIO, "flow": [{"controller": "cubic"}] * flows})
        env.reset(seed=1)
        truncated = False
        while not truncated:
            *_, truncated, info = env.step(np.float32([-2.0]))
        return info["terms"]["latency"]

    # The agent sends less and less; alone its packets wait for nobody, beside Cubic for its queue.
    assert latency(1) == pytest.approx(0.205, abs=0.005) and latency(2) > 0.25


def test_what_is_shown_is_a_line_of_features():
    env = make("learningcc", render_mode="ansi")
    env.reset(seed=1)
    env.step(2)
    assert "by_loss" in env.render() and "srtt" in env.render()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"preset": "vegas"}, ValueError, 'no preset "vegas"; there are: aurora, learningcc, xavier'),
        ({"overrides": {"run.seconds": 3}}, ValueError, "give scenario="),
        ({"scenario": {**SCENARIO, "flow": [{"controller": "cubic", "start_s": 1}]}}, ValueError, "without end from the start"),
        ({"scenario": {**SCENARIO, "flow": [{"controller": "cubik"}]}}, ValueError, "cubic"),
        ({"scenario": 5}, TypeError, "path of a file or a dict"),
        ({"render_mode": "rgb_array"}, ValueError, 'must be None or "ansi"'),
    ],
)
def test_an_option_that_can_not_be_is_answered_by_what_can(options, error, said):
    with pytest.raises(error) as raised:
        FlowEnv(**options)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("preset", "action", "error", "said"),
    [
        ("xavier", 4, ValueError, "action is 4, must be from 0 to 3"),
        ("xavier", -1, ValueError, "must be from 0 to 3"),
        ("xavier", 1.0, TypeError, "action is of type float, must be an int from 0 to 3"),
        ("xavier", True, TypeError, "must be an int"),
        ("xavier", np.float32([1]), TypeError, "float32, must be an int"),
        ("aurora", 1.0, TypeError, "must be a numpy array of float32 with the shape (1,)"),
        ("aurora", np.float32([np.nan]), ValueError, "action[0] is NaN, must be a number"),
        ("aurora", np.zeros(2, np.float32), ValueError, "must have (1,)"),
    ],
)
def test_an_action_that_is_none_is_answered_by_what_one_is(preset, action, error, said):
    env = FlowEnv(preset)
    env.reset(seed=1)
    with pytest.raises(error) as raised:
        env.step(action)
    assert said in str(raised.value)


def test_a_vector_refuses_what_is_no_choice_and_what_is_not_for_flows():
    envs = FlowVectorEnv("xavier", num_envs=2)
    envs.reset(seed=1)
    for actions, error, said in [
        (np.zeros(2, np.float32), TypeError, "actions is float32, must be a numpy array of integers from 0 to 3"),
        ([0, 1], TypeError, "actions is list"),
        (np.zeros(3, int), ValueError, "must have (2,)"),
        (np.array([0, 4]), ValueError, "actions[1] is 4, must be from 0 to 3"),
    ]:
        with pytest.raises(error) as raised:
            envs.step(actions)
        assert said in str(raised.value)
    for call in (lambda: envs.rollout(None, 1), lambda: envs.directed_by("rule"), lambda: envs.trajectory(1)):
        with pytest.raises(NotImplementedError, match="not for a flow"):
            call()
