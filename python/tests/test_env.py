"""One environment: Gymnasium's contract, seeds, and what is said of wrong input."""

import copy
import os
import pickle
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import anabranch

FLOWS = {
    "run": {"seconds": 2},
    "dumbbell": {"rate": "5 Mbit/s", "delay_ms": 5},
    "flow": [{"controller": "cubic", "workload": {"once_bytes": 100_000}}],
}


def episode(env, seed=None, steps=30):
    """What is seen and paid in some steps of changing actions."""
    observation, _ = env.reset(seed=seed)
    seen, hosts = [observation], env.unwrapped.hosts
    for step in range(steps):
        action = np.full(hosts, 0.1 * (step % 11), np.float32)
        observation, reward, terminated, truncated, info = env.step(action)
        seen += [observation, np.float32([reward, terminated, truncated, *info["terms"].values()])]
        if terminated or truncated:
            break
    return b"".join(array.tobytes() for array in seen)


def test_gymnasiums_check_passes(id):
    with warnings.catch_warnings():
        # A rate of 1 is the link's: what it means beats the advice to scale it.
        warnings.filterwarnings("ignore", message=".*symmetric and normalized space")
        check_env(gymnasium.make(id).unwrapped)


def test_a_seed_says_everything_and_the_next_episode_is_another(id):
    one, other = gymnasium.make(id), gymnasium.make(id)
    first = episode(one, 7)
    second = episode(one)
    assert episode(other, 7) == first
    assert episode(other) == second
    assert second != first or "Single" in id or "Parallel" in id
    assert episode(one, 7) == first


def test_without_a_seed_one_is_drawn_and_returned():
    env = gymnasium.make("anabranch/C3-Random-v0")
    drawn = episode(env)
    seed = env.unwrapped.np_random_seed
    assert episode(env, seed) == drawn
    assert episode(gymnasium.make("anabranch/C3-Random-v0")) != drawn


def test_an_episode_is_truncated_at_the_scenarios_end(single):
    single.reset(seed=1)
    for step in range(100):
        *_, terminated, truncated, _ = single.step(np.float32([0.9]))
        assert (terminated, truncated) == (False, step == 99)
    assert single.now == 10.0


def test_an_episode_is_over_when_all_is_sent():
    env = gymnasium.make("anabranch/Scenario-v0", scenario=FLOWS)
    env.reset(seed=1)
    ends = [env.step(np.float32([1.0]))[2:4] for _ in range(10)]
    assert (True, False) in ends


def test_a_reward_is_the_weighed_sum_of_its_terms():
    weights = {"throughput": 2.0, "queue": 0.5, "drop": 0.25, "sending": 0.0, "unfairness": 3.0}
    env = gymnasium.make("anabranch/C3-Parallel-v0", weights=weights, actuator="rate")
    env.reset(seed=1)
    for rates in ([0.3, 0.7], [1.25, 1.25], [1.25, 0.1]):
        _, reward, _, _, info = env.step(np.float32(rates))
        terms = info["terms"]
        costs = sum(weights[name] * terms[name] for name in ("queue", "drop", "sending", "unfairness"))
        assert reward == pytest.approx(2.0 * terms["throughput"] - costs, abs=1e-6)
    assert terms["drop"] == 1.0 and terms["unfairness"] > 0


def test_a_transfer_is_paid_by_the_time_that_it_would_take_alone():
    """[C3]'s 50 KiB over 100 Mbit/s and 50 ms: alone two round trips and 4.286 ms."""
    flow = {"controller": "cubic", "workload": {"once_bytes": 51_200}, "handshake": True}
    links = {"rate": "100 Mbit/s", "delay_ms": 15, "queue": {"ms": 50}, "access_rate": "1 Gbit/s", "access_delay_ms": 5}
    scenario = {"run": {"seconds": 5}, "dumbbell": links, "flow": [flow]}
    alone = 0.1 + (51_200 + 36 * 66) * 8 / 100e6

    def paid(log2_packets):
        env = gymnasium.make("anabranch/Scenario-v0", scenario=scenario, actuator="initial", weights={"completion": 3.0,
                             "throughput": 0, "queue": 0, "drop": 0, "sending": 0, "unfairness": 0})  # fmt: skip
        env.reset(seed=1)
        total, over = 0.0, False
        while not over:
            _, reward, over, truncated, info = env.step(np.float32([log2_packets]))
            assert reward == pytest.approx(3.0 * info["terms"]["completion"]) and not truncated
            total += reward
        return total / 3.0

    # 2 ** 6 packets hold all 36: the handshake and one flight. Ten need three flights, the last one of six packets.
    assert paid(6.0) == pytest.approx(alone / (0.1 + 36 * 1514 * 8 / 100e6), rel=0.01)
    assert paid(0.0) == pytest.approx(alone / (0.2 + 6 * 1514 * 8 / 100e6), rel=0.01)


def test_short_flows_complete_sooner_by_the_rule_and_soonest_by_the_oracle():
    envs = gymnasium.make_vec("anabranch/C3-Fct-v0", 16, autoreset_mode="Disabled").unwrapped
    assert envs.single_action_space.high[0] == 10.0

    def paid(decide):
        envs.reset(seed=1)
        total, over = np.zeros(16), np.zeros(16, bool)
        while not over.all():
            _, rewards, terminated, truncated, _ = envs.step(decide())
            total += rewards
            over = terminated | truncated
        assert terminated.mean() > 0.5, "all is sent before the time is over"
        return total.mean() / 16

    usual = paid(lambda: np.full((16, 1), np.log2(10), np.float32))
    rule, oracle = paid(lambda: envs.directed_by("rule")), paid(lambda: envs.directed_by("oracle"))
    assert usual + 0.05 < rule < oracle < 1.0, (usual, rule, oracle)


def test_an_observation_is_laid_out_as_its_features_say():
    env = gymnasium.make("anabranch/C3-Parallel-v0", features=["previous_rate", "active"], history=2).unwrapped
    assert [feature.name for feature in env.features] == ["previous_rate", "active"]
    env.reset(seed=1)
    env.step(np.float32([0.25, 0.5]))
    observation, *_ = env.step(np.float32([0.75, 1.0]))
    # Newest first; host by host; feature by feature.
    assert observation.tolist() == [0.75, 1, 1.0, 1, 0.25, 1, 0.5, 1]
    assert env.observation_space.high.tolist() == [1.25, 1] * 4


def test_the_oracle_knows_more_than_the_last_period_and_that_more_than_the_rule():
    def total(who):
        env = gymnasium.make("anabranch/C3-Cross-v0").unwrapped
        env.reset(seed=1)
        return sum(env.step(env.directed_by(who))[1] for _ in range(500))

    assert total("oracle") > total("period") > total("rule") > 300


def test_what_is_shown_has_a_line_for_each_host():
    env = gymnasium.make("anabranch/C3-Parallel-v0", render_mode="ansi").unwrapped
    env.reset(seed=1)
    env.step(np.float32([0.25, 0.5]))
    text = env.render()
    assert "0.10 s  throughput" in text and text.count("host ") == 2 and "unfairness" in text


@pytest.mark.parametrize(
    ("action", "error", "said"),
    [
        ([0.5], TypeError, "action is of type list, must be a numpy array of float32 with the shape (1,)"),
        (np.float32([0.5, 0.5]), ValueError, "action has the shape (2,), must have (1,)"),
        (np.float64([0.5]), TypeError, "has the dtype float64, must have float32: action.astype(numpy.float32)"),
        (np.float32([np.nan]), ValueError, "action[0] is NaN, must be a number from 0 to 1.25"),
        (np.float32([np.inf]), ValueError, "action[0] is inf"),
        (np.array([0.5], ">f4"), TypeError, "has the dtype >f4, must have float32"),
        (np.frombuffer(b"x" + np.float32(0.5).tobytes(), np.float32, offset=1), ValueError, "in C order"),
    ],
)
def test_an_action_that_is_none_is_answered_by_what_one_is(single, action, error, said):
    single.reset(seed=1)
    with pytest.raises(error) as raised:
        single.step(action)
    assert said in str(raised.value)
    single.step(np.float32([0.5]))


def test_a_picture_shows_the_episode_so_far():
    env = gymnasium.make("anabranch/C3-Parallel-v0", render_mode="rgb_array").unwrapped
    assert env.render() is None, "nothing has begun"

    def shown(seed, rates, steps):
        env.reset(seed=seed)
        for _ in range(steps):
            env.step(np.float32(rates))
        picture = env.render()
        assert (picture.shape, picture.dtype) == ((480, 640, 3), np.uint8)
        return picture.tobytes()

    first = shown(1, [0.5, 0.5], 5)
    assert first == shown(1, [0.5, 0.5], 5), "a reset begins another one"
    assert len({first, shown(1, [0.5, 0.25], 5), shown(1, [0.5, 0.5], 6), shown(1, [0.5, 0.5], 0)}) == 4


def test_a_page_shows_an_episode_and_stands_alone(tmp_path):
    env = gymnasium.make("anabranch/C3-Parallel-v0").unwrapped
    page = tmp_path / "episode.html"
    env.reset(seed=1)
    with pytest.raises(RuntimeError, match="call reset"):
        env.report(page)
    for rates in ([0.5, 0.25], [0.375, 0.125]):
        for _ in range(10):
            env.step(np.float32(rates))
    env.report(page)
    text = page.read_text()
    for shown in ("host 1, told", "host 1, carried", "Round trips", "queue, of the longest", "throughput", "0.3750"):
        assert shown in text, shown
    assert "<svg" in text and "src=" not in text and "<link" not in text
    assert "20" in text.split("steps")[1][:40]
    first = text.count("0.3750")
    env.reset(seed=1)
    env.step(np.float32([0.5, 0.5]))
    env.report(page)
    assert page.read_text().count("0.3750") < first, "a reset begins another episode"


def test_a_page_replaces_files_and_what_links_point_to_alone(single, tmp_path):
    single.reset(seed=1)
    single.step(np.float32([0.5]))
    page, link, pipe = (tmp_path / name for name in ("page.html", "link.html", "pipe"))
    page.write_text("before")
    link.symlink_to(page)
    os.mkfifo(pipe)
    single.report(link)
    assert link.is_symlink() and page.read_text().startswith("<!")
    for place in (pipe, tmp_path):
        with pytest.raises(OSError, match=f"{place}: is no regular file"):
            single.report(place)
    assert pipe.is_fifo()


def test_what_comes_after_an_episodes_end_is_not_reported(single):
    single.reset(seed=1)
    steps, is_over = 0, False
    while not is_over:
        _, _, terminated, truncated, _ = single.step(np.float32([0.5]))
        steps, is_over = steps + 1, terminated or truncated
    single.step(np.float32([0.5]))
    assert len(single._course.steps) == steps
    single.reset()
    single.step(np.float32([0.5]))
    assert len(single._course.steps) == 1


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_environments_say_that_they_are_not_copied(single, copied):
    for env in (single, gymnasium.make_vec("anabranch/C3-Single-v0", 2).unwrapped):
        with pytest.raises(TypeError, match="can't be copied or pickled: make another with the same options"):
            copied(env if copied is not copy.copy else env._worlds)


@pytest.mark.parametrize("make", [gymnasium.make, lambda id, **options: gymnasium.make_vec(id, 2, **options)])
def test_an_id_and_a_name_of_two_environments_are_refused(make):
    for id in ("anabranch/C3-Single-v0", "anabranch/Scenario-v0"):
        with pytest.raises(ValueError, match=f'environment is "C3-Cross", and the id {id} is of another'):
            make(id, environment="C3-Cross")
    assert make("anabranch/C3-Single-v0", environment="anabranch/C3-Single-v0").spec.id == "anabranch/C3-Single-v0"


def test_where_no_environment_is_named_that_is_said():
    for make in (lambda: gymnasium.make("anabranch/Scenario-v0"), anabranch.env.Env, anabranch.vector.VectorEnv):
        with pytest.raises(ValueError, match="neither an environment nor a scenario is given"):
            make()


@pytest.mark.parametrize("interval", [1e9, 1e300, float("inf")])
def test_an_interval_that_no_episode_has_is_refused_by_its_limits(interval):
    with pytest.raises(ValueError, match="must be a number of seconds, from 0.001 to an episode's length") as raised:
        gymnasium.make("anabranch/C3-Single-v0", interval=interval)
    assert len(str(raised.value)) < 120


def test_a_page_shows_what_a_flow_saw(tmp_path):
    env = gymnasium.make("anabranch/Flow-v0", preset="learningcc").unwrapped
    env.reset(seed=1)
    for _ in range(20):
        env.step(2)
    env.report(tmp_path / "flow.html")
    text = (tmp_path / "flow.html").read_text()
    assert "What it may have in flight" in text and "srtt" in text and "decision" in text


WITHOUT_MATPLOTLIB = """
import sys, warnings
sys.modules["matplotlib"] = None
import gymnasium
from gymnasium.utils.env_checker import check_env
import anabranch
env = gymnasium.make("anabranch/C3-Single-v0").unwrapped
assert env.metadata["render_modes"] == ["ansi"], env.metadata
warnings.simplefilter("ignore")
check_env(env)
gymnasium.make("anabranch/C3-Single-v0", render_mode="rgb_array")
"""


def test_where_no_picture_can_be_drawn_none_is_promised():
    ran = subprocess.run([sys.executable, "-c", WITHOUT_MATPLOTLIB], capture_output=True, text=True)
    assert ran.stderr.splitlines()[-1:] == [
        'ModuleNotFoundError: render_mode="rgb_array" needs matplotlib: pip install matplotlib'
    ], ran.stderr


@pytest.mark.filterwarnings("ignore:.*not in the possible render_modes")
@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"actuator": "pace"}, ValueError, "there are: fixed, bounded, rate, share, lent, initial"),
        ({"features": ["goodput"]}, ValueError, "there are: throughput, queue"),
        ({"features": "queue"}, TypeError, "must be a list of names"),
        ({"features": []}, ValueError, "an observation needs a feature"),
        ({"features": ["cross_next"], "observe": "deployable"}, ValueError, "can know"),
        ({"observe": "all"}, ValueError, 'must be "any" or "deployable"'),
        ({"history": 0}, ValueError, "history is 0, must be from 1 to 64"),
        ({"history": -1}, ValueError, "history is -1, must be from 1 to 64"),
        ({"delay": 65}, ValueError, "delay is 65, must be from 0 to 64"),
        ({"interval": 0.0}, ValueError, "must be a number of seconds"),
        ({"interval": 11.0}, ValueError, "interval in seconds is 11, must be from 0.001 to 10"),
        ({"weights": {"goodput": 1}}, ValueError, "there are: throughput, queue, drop"),
        ({"weights": {"queue": -1}}, ValueError, "weight of queue is -1"),
        ({"link": "b"}, ValueError, "there are: bottleneck"),
        ({"scenario": FLOWS}, ValueError, "not both"),
        ({"overrides": {"run.seconds": 1}}, ValueError, "give scenario="),
        ({"render_mode": "svg"}, ValueError, 'must be None, "ansi" or "rgb_array"'),
    ],
)
def test_an_option_that_can_not_be_is_answered_by_what_can(options, error, said):
    with pytest.raises(error) as raised:
        gymnasium.make("anabranch/C3-Single-v0", **options)
    assert said in str(raised.value)


def test_an_unknown_id_is_gymnasiums_error_and_an_unknown_name_has_the_known_ones():
    with pytest.raises(gymnasium.error.NameNotFound):
        gymnasium.make("anabranch/C3-Singel-v0")
    with pytest.raises(ValueError, match="there are: C3-Single, C3-Parallel"):
        gymnasium.make("anabranch/C3-Single-v0", environment="C3-Singel")


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, "1", True])
def test_a_seed_that_is_none_is_refused(single, seed):
    with pytest.raises((TypeError, ValueError), match="from 0 to 18446744073709551615"):
        single.reset(seed=seed)


def test_a_step_before_an_episode_is_refused(single):
    with pytest.raises(RuntimeError, match="call it before"):
        single.step(np.float32([0.5]))


def test_a_scenario_with_an_error_is_named_with_its_line_and_key(tmp_path):
    path = tmp_path / "flows.toml"
    path.write_text('[run]\nsecond = 1\n[dumbbell]\nrate = "5 Mbit/s"\ndelay_ms = 5\n[[flow]]\ncontroller = "cubic"\n')
    with pytest.raises(anabranch.ScenarioError) as raised:
        gymnasium.make("anabranch/Scenario-v0", scenario=path)
    assert "flows.toml" in str(raised.value) and "second" in str(raised.value) and "2" in str(raised.value)
    with pytest.raises(FileNotFoundError, match="none.toml"):
        gymnasium.make("anabranch/Scenario-v0", scenario=tmp_path / "none.toml")
    with pytest.raises(TypeError, match="path of a file or a dict"):
        gymnasium.make("anabranch/Scenario-v0", scenario=5)


@pytest.mark.parametrize(
    ("name", "options", "axis", "most"),
    [
        ("Parallel", {}, "of the link", 1.25),
        ("Parallel", {"actuator": "share"}, "of an even share", 1.25),
        ("Fct", {}, "log2 of packets", 10.0),
    ],
)
def test_pictures_and_pages_say_what_numbers_are_and_have_room(name, options, axis, most, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    from anabranch import _picture

    figures = []
    monkeypatch.setattr(_picture, "drawn", lambda figure: figures.append(figure))
    env = gymnasium.make(f"anabranch/C3-{name}-v0", render_mode="rgb_array", **options).unwrapped
    env.reset(seed=1)
    for _ in range(3):
        env.step(np.full(env.hosts, most, np.float32))
    env.render()
    above = figures[0].axes[0]
    assert above.get_ylabel() == axis and above.get_ylim()[0] == 0.0
    assert above.get_ylim()[1] > max(line.get_ydata().max() for line in above.lines) == most
    for what, unit in (("told", axis), ("carried", "of the link")):
        charts = [of for _, (of, _), lines in env._charts() if any(name.endswith(what) for name, _ in lines)]
        assert charts == [unit], what
    env.report(tmp_path / "page.html")
    assert axis in (tmp_path / "page.html").read_text()


def test_errors_of_one_environment_name_no_other():
    env = gymnasium.make("anabranch/C3-Parallel-v0").unwrapped
    env.reset(seed=1)
    for action, error, said in [
        (np.float32([0.5, np.nan]), ValueError, "action[1] is NaN, must be a number from 0 to 1.25"),
        (np.array([0.5, 0.5]), TypeError, "action has the dtype float64, must have float32: action.astype("),
        (np.zeros(4, np.float32)[::2], ValueError, "action is not one run of numbers in C order: numpy.array("),
    ]:
        with pytest.raises(error) as raised:
            env.step(action)
        assert str(raised.value).startswith(said)


def test_render_modes_are_those_that_there_are():
    one, many = gymnasium.make("anabranch/C3-Single-v0"), gymnasium.make_vec("anabranch/C3-Single-v0", 2)
    assert "ansi" in one.metadata["render_modes"] and many.metadata["render_modes"] == []
    assert gymnasium.make_vec("anabranch/Flow-v0", 2).metadata["render_modes"] == []


def test_modules_are_there_once_they_are_asked_for():
    program = """
import sys
import anabranch
assert "anabranch.env" not in sys.modules and "anabranch.train" not in sys.modules
help(anabranch.env.Env)
assert anabranch.policy.Policy and anabranch.vector.VectorEnv and anabranch.flow.FlowEnv and anabranch.to_onnx.model
assert callable(anabranch.sweep) and not hasattr(anabranch, "colour")
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert "A coordinator sees a link" in done.stdout
