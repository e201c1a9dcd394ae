"""A policy that is written is read again to the bit, and acts only where its numbers mean what they meant."""

import copy
import json
import pickle

import gymnasium
import numpy as np
import pytest

import anabranch
from anabranch.policy import Policy


def network(inputs, outputs, seed=5):
    draw = np.random.default_rng(seed)
    shapes = [(inputs, 16), (16, outputs)]
    return [(draw.normal(0, 0.3, shape).astype(np.float32), draw.normal(0.2, 0.1, shape[1]).astype(np.float32))
            for shape in shapes]


def policy(inputs=6, outputs=1, seed=5):
    return Policy(network(inputs, outputs, seed), activation="relu", mean=np.linspace(0, 1, inputs, dtype=np.float32),
                  deviation=np.linspace(1, 2, inputs, dtype=np.float32))


def rollout(policy):
    envs = gymnasium.make_vec("anabranch/C3-Parallel-v0", 2)
    envs.reset(seed=4)
    return [array.tobytes() for array in envs.unwrapped.rollout(policy, 30, deviation=0.1)]


def test_what_is_read_acts_as_what_was_written(tmp_path):
    path = tmp_path / "both.v1.safetensors"
    env = gymnasium.make("anabranch/C3-Parallel-v0")
    policy().save(path, env, trained={"seed": 7, "rewards": [0.5, 0.75]})
    read = Policy.load(str(path), gymnasium.make_vec("anabranch/C3-Parallel-v0", 2))
    assert (read.inputs, read.outputs) == (6, 1)
    assert rollout(read) == rollout(policy())
    assert read.trained == {"seed": 7, "rewards": [0.5, 0.75]}
    assert read.purpose == {
        "features": [feature.name for feature in env.unwrapped.features],
        "history": 1,
        "actuator": "rate",
        "interval_s": 0.1,
        "delay": 0,
    }
    bytes = path.read_bytes()
    read.save(path, env, trained=read.trained)
    assert path.read_bytes() == bytes


def test_a_policy_is_refused_where_its_numbers_mean_something_else(tmp_path):
    path = tmp_path / "p.safetensors"
    policy().save(path, gymnasium.make("anabranch/C3-Single-v0"))
    assert Policy.load(path).trained is None
    for options, said in [
        ({"actuator": "fixed"}, 'actuator "rate", and here is "fixed"'),
        ({"interval": 0.05}, 'interval_s "0.1", and here is "0.05"'),
        ({"delay": 1}, 'delay "0", and here is "1"'),
        ({"history": 2}, 'history "1", and here is "2"'),
        ({"features": ["queue"]}, 'here is "queue"'),
    ]:
        with pytest.raises(ValueError) as raised:
            Policy.load(path, gymnasium.make("anabranch/C3-Single-v0", **options))
        assert said in str(raised.value)
    # One that sees all hosts is for this many hosts.
    two = gymnasium.make("anabranch/C3-Parallel-v0")
    policy(12, 2).save(path, two)
    assert Policy.load(path, two).outputs == 2
    with pytest.raises(ValueError, match="a policy for it makes 1 rate of 6"):
        Policy.load(path, gymnasium.make("anabranch/C3-Single-v0"))
    with pytest.raises(ValueError, match="a policy for it makes 1 rate of 6"):
        policy(12, 2).save(path, gymnasium.make("anabranch/C3-Single-v0"))


OTHERWISE = [
    ({"actuator": "fixed"}, 'actuator "rate", and here is "fixed"'),
    ({"interval": 0.05}, 'interval_s "0.1", and here is "0.05"'),
    ({"delay": 1}, 'delay "0", and here is "1"'),
    ({"features": ["queue", "throughput", "dropped", "active", "flows", "told"]}, 'features "throughput, queue, '),
    ({"agents": "domains"}, 'agents "hosts", and here is "domains"'),
]


@pytest.mark.parametrize(("options", "said"), OTHERWISE, ids=[next(iter(options)) for options, _ in OTHERWISE])
def test_a_policy_from_a_file_acts_only_in_what_it_is_for(tmp_path, options, said):
    path = tmp_path / "p.safetensors"
    made = policy()
    made.save(path, gymnasium.make("anabranch/C3-Single-v0"))
    read = Policy.load(path)
    name = "Subdomains" if "agents" in options else "Parallel"
    if "agents" in options:
        features = [feature.name for feature in gymnasium.make("anabranch/C3-Single-v0").unwrapped.features]
        options = {"features": features, "actuator": "rate", "interval": 0.1, **options}
    envs = gymnasium.make_vec(f"anabranch/C3-{name}-v0", 2, **options).unwrapped
    seen = envs.reset(seed=1)[0][0]
    for act in (lambda policy: envs.rollout(policy, 1), lambda policy: policy.rates(envs, seen)):
        with pytest.raises(ValueError) as raised:
            act(read)
        assert said in str(raised.value) and "safetensors" not in str(raised.value)
        # One that was made here says nothing of what it is for.
        act(made)
    # More hosts, another link and another scenario are what it may meet.
    for name in ("Parallel", "Staggered", "Random"):
        others = gymnasium.make_vec(f"anabranch/C3-{name}-v0", 2, actuator="rate").unwrapped
        others.reset(seed=1)
        assert others.rollout(read, 2).rewards.shape == (2, 2)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
@pytest.mark.parametrize("is_read", [False, True])
def test_a_copy_of_a_policy_is_one(copied, is_read, tmp_path):
    path, env = tmp_path / "p.safetensors", gymnasium.make("anabranch/C3-Parallel-v0")
    layers = network(6, 1)
    one = Policy(layers, known=(np.zeros(6, np.float32), np.full(6, 0.5, np.float32)))
    if is_read:
        one.save(path, env, trained={"seed": 3})
        one = Policy.load(path, env)
    before = rollout(one)
    # Neither needs its file or its arrays.
    path.unlink(missing_ok=True)
    layers[0][0].fill(0)
    other = copied(one)
    assert rollout(other) == before and (other.purpose, other.trained) == (one.purpose, one.trained)
    slower = gymnasium.make("anabranch/C3-Parallel-v0", interval=0.5)
    seen = slower.reset(seed=1)[0]
    if is_read:
        with pytest.raises(ValueError, match="interval_s"):
            other.rates(slower, seen)
    else:
        other.rates(slower, seen)


def test_a_policy_for_hosts_does_not_control_a_flow(tmp_path):
    path = tmp_path / "p.safetensors"
    policy().save(path, gymnasium.make("anabranch/C3-Single-v0"))
    flow = gymnasium.make("anabranch/Flow-v0")
    with pytest.raises(ValueError, match="^this policy tells hosts their rates, and here one flow is controlled"):
        Policy.load(path).rates(flow, flow.reset(seed=1)[0])


def test_hosts_as_agents_take_a_policy():
    pytest.importorskip("pettingzoo")
    hosts, env = anabranch.parallel_env("C3-Parallel"), gymnasium.make("anabranch/C3-Parallel-v0")
    seen, _ = hosts.reset(seed=3)
    of_all = policy().rates(env, env.reset(seed=3)[0])
    assert [policy().rates(hosts, seen[agent]).tolist() for agent in hosts.agents] == [[rate] for rate in of_all]
    assert policy().rates(hosts, hosts.state()).tolist() == of_all.tolist()


def test_what_is_no_environment_or_observation_is_answered_by_what_is(tmp_path):
    env = gymnasium.make("anabranch/C3-Parallel-v0")
    foreign = gymnasium.make("CartPole-v1")
    for call in (
        lambda: policy().rates(foreign, np.zeros(6, np.float32)),
        lambda: policy().save(tmp_path / "p.safetensors", foreign),
        lambda: policy().save(tmp_path / "p.safetensors", None),
    ):
        with pytest.raises(TypeError, match="env is of type .*, must be an environment of this package"):
            call()
    for observation, error, said in [
        ([0.0] * 12, TypeError, r"observation is of type list, must be a numpy array of float32 .* \(12,\)"),
        (np.zeros((2, 12), np.float32), ValueError, r"observation has the shape \(2, 12\), must have \(12,\)"),
        (np.zeros(6, np.float32), ValueError, r"observation has the shape \(6,\), must have \(12,\)"),
        (np.zeros(12), TypeError, "observation has the dtype float64, must have float32"),
    ]:
        with pytest.raises(error, match=said):
            policy().rates(env, observation)
    envs = gymnasium.make_vec("anabranch/C3-Parallel-v0", 2).unwrapped
    envs.reset(seed=1)
    with pytest.raises(TypeError, match="policy is of type NoneType, must be an anabranch.policy.Policy"):
        envs.rollout(None, 1)


def test_what_lies_beyond_training_is_cut_and_that_is_kept(tmp_path):
    path, env = tmp_path / "p.safetensors", gymnasium.make("anabranch/C3-Single-v0")
    least, most = np.zeros(6, np.float32), np.full(6, 0.5, np.float32)
    policy = Policy(network(6, 1), known=(least, most))
    policy.save(path, env)
    for one in (policy, Policy.load(path)):
        rates = lambda value: one.rates(env, np.full(6, value, np.float32))
        assert rates(0.9) == rates(0.5) != rates(0.4)
    with pytest.raises(ValueError, match="a number of least is 0.5, must be at the most that of most"):
        Policy(network(6, 1), known=(most, least))


def test_files_that_hold_no_policy_are_refused_with_their_names(tmp_path):
    path, env = tmp_path / "p.safetensors", gymnasium.make("anabranch/C3-Single-v0")
    with pytest.raises(FileNotFoundError, match="p.json: "):
        Policy.load(path)
    with pytest.raises(FileNotFoundError, match="none/p.safetensors: "):
        policy().save(tmp_path / "none" / "p.safetensors", env)
    with pytest.raises(ValueError, match="is named NAME.safetensors"):
        policy().save(tmp_path / "p.npz", env)
    with pytest.raises(ValueError, match="not JSON compliant"):
        policy().save(path, env, trained=float("nan"))
    assert not path.exists()
    policy().save(path, env)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="p.safetensors: "):
        Policy.load(path)
    described = path.with_suffix(".json")
    described.write_text(json.dumps(json.loads(described.read_text()) | {"version": 2}))
    with pytest.raises(ValueError, match="p.json: version is 2, must be 1"):
        Policy.load(path)


def test_a_policy_in_a_run_sends_what_it_sends_in_an_environment(tmp_path):
    """The same scenario, the same seed: what was acknowledged in each step adds up to what the run says."""
    path = tmp_path / "p.safetensors"
    text = {
        "run": {"seconds": 5, "goodput_from_s": 0},
        "dumbbell": {"pairs": 2, "rate": "5 Mbit/s", "delay_ms": 10, "access_rate": "50 Mbit/s", "access_delay_ms": 5},
        "flow": [{"name": "f{i}", "count": 2, "controller": "cubic", "steered": True, "handshake": True}],
        "steering": {"link": "bottleneck", "every_ms": 100},
    }
    env = gymnasium.make("anabranch/Scenario-v0", scenario=text, actuator="rate").unwrapped
    # Of ten seeds the one that tells the widest range of rates that fit the link: others tell less than none.
    steers = policy(seed=8)
    steers.save(path, env)
    observation, _ = env.reset(seed=11)
    rates, acknowledged = [], 0.0
    for _ in range(50):
        rates.append(steers.rates(env, observation))
        observation, _, _, truncated, _ = env.step(rates[-1])
        # Of 0.1 s over 5 Mbit/s, 1448 of 1514 bytes.
        acknowledged += observation.reshape(2, -1)[:, 0].sum() * 0.5 * 1448 / 1514
    assert truncated and np.std(rates) > 0.01, "what is directed depends on what is seen"
    assert 0 < np.min(rates) and np.max(rates) < 0.5, "two of them fit the link"
    learned = text | {"steering": {"link": "bottleneck", "policy": str(path)}}
    run = anabranch.run(learned, seed=11)
    again = anabranch.run(learned, seed=11)
    assert run["metrics"] == again["metrics"] and run["notes"] == []
    # What has arrived and is not acknowledged yet is less than a round trip's worth.
    under_way = run["metrics"]["goodput_mbit_s"] * 5 - acknowledged
    assert 0 <= under_way < 5 * 0.1, (run["metrics"], acknowledged)
    other = anabranch.run(text, seed=11)["metrics"]["goodput_mbit_s"] * 5
    assert abs(other - acknowledged) > 0.5, "the rule sends something else"


AURORA = {"features": ["latency_gradient", "latency_ratio", "send_ratio"], "history": 10, "interval_rtts": 0.5}


def a_link(controller, **parameters):
    return {
        "run": {"seconds": 20, "goodput_from_s": 10},
        "dumbbell": {"rate": "4 Mbit/s", "delay_ms": 25, "queue": {"packets": 100}},
        "flow": [{"controller": controller, "parameters": parameters}],
    }


def test_a_flows_policy_is_saved_as_the_controller_takes_it(tmp_path):
    """By hand: 10 (1.1 - the newest latency ratio), which sends more until round trips rise by a tenth."""
    weights = np.zeros((30, 1), np.float32)
    weights[1] = -10
    policy = Policy([(weights, np.float32([11]))], known=(np.full(30, -10, np.float32), np.full(30, 10, np.float32)))
    path, env = tmp_path / "p.safetensors", gymnasium.make("anabranch/Flow-v0", preset="aurora")
    policy.save(path, env, trained={"seed": 7})
    read = Policy.load(path, env)
    assert (read.purpose, read.trained) == (AURORA, {"seed": 7})
    observation, _ = env.reset(seed=1)
    assert read.rates(env, observation) == policy.rates(env, observation) == np.float32([1])
    other = tmp_path / "other.safetensors"
    policy.save_for_flow(other, **AURORA, trained={"seed": 7})
    assert other.read_bytes() == path.read_bytes()
    assert other.with_suffix(".json").read_text() == path.with_suffix(".json").read_text()
    run = anabranch.run(a_link("policy", file=str(path)), seed=1)
    assert run["notes"] == []
    # 4 Mbit/s less headers are 3.83; a queue of a tenth of the round trip.
    assert 3.3 < run["metrics"]["goodput_mbit_s"] < 3.83, run["metrics"]
    assert run["metrics"]["loss_percent"] == 0


def test_what_is_no_policy_of_a_flow_is_refused_with_what_would_be_right(tmp_path):
    path, env = tmp_path / "p.safetensors", gymnasium.make("anabranch/Flow-v0", preset="aurora")
    for options, said in [
        ({"history": 9}, "30 numbers for 1 outputs; 9 intervals of 3 features need 27 for 1"),
        ({"features": ["queue"]}, 'no feature "queue" that a sender knows; there are: send_ratio, latency_ratio'),
        ({"features": ["loss", "loss"], "history": 15}, "none twice"),
        ({"interval_rtts": float("nan")}, "interval_rtts = NaN is not between 0.1 and 100"),
        ({"trained": float("nan")}, "not JSON compliant"),
    ]:
        with pytest.raises(ValueError) as raised:
            policy(30).save_for_flow(path, **(AURORA | options))
        assert said in str(raised.value)
    with pytest.raises(ValueError, match="takes 6 numbers for 1 outputs; 10 intervals of 3 features need 30"):
        policy().save(path, env)
    for preset in ("learningcc", "xavier"):
        with pytest.raises(ValueError, match=f'"{preset}" is a choice.*expected the preset "aurora"'):
            policy(30).save(path, gymnasium.make("anabranch/Flow-v0", preset=preset))
    with pytest.raises(ValueError, match="a weight of layer 0 is NaN"):
        Policy([(np.full((30, 1), np.nan, np.float32), np.zeros(1, np.float32))]).save(path, env)
    assert not path.exists() and not path.with_suffix(".json").exists()
    policy(30).save_for_flow(path, **(AURORA | {"interval_rtts": 1}))
    with pytest.raises(ValueError, match='interval_rtts "1", and here is "0.5"'):
        Policy.load(path, env)
    coordinator = gymnasium.make("anabranch/C3-Single-v0")
    with pytest.raises(ValueError, match="p.safetensors: this policy controls one flow, and here rates of hosts are told"):
        Policy.load(path, coordinator)
    policy().save(path, coordinator)
    with pytest.raises(ValueError, match="p.safetensors: this policy tells hosts their rates, and here one flow is controlled"):
        Policy.load(path, env)


@pytest.mark.parametrize(("layers", "cell", "said"), [
    (None, None, "layers is of type NoneType, must be a list of"),
    ([None], None, r"layers\[0\] is of type NoneType, must be \(weights, biases\)"),
    ([(np.float32(1), np.zeros(1, np.float32))], None, r"the weights of layers\[0\] are of type float32, must be a numpy"),
    ([(np.zeros((), np.float32), np.zeros(1, np.float32))], None, r"the weights of layers\[0\] are \(\), must be a numpy array of 2"),
    ([], (None, None), r"cell\[0\] is of type NoneType, must be \(weights, biases\)"),
])  # fmt: skip
def test_what_are_no_layers_is_said_by_its_place(layers, cell, said):
    with pytest.raises(TypeError, match=said):
        Policy(layers, cell=cell)
