"""Many environments: each is the single one, whatever else is chosen; results go where they are to go."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import anabranch
from anabranch.vector import VectorEnv

SHORT = {"interval": 1.5}


def rates(envs, step):
    shape = envs.action_space.shape
    return ((np.arange(np.prod(shape)) * 7 + step * 3) % 11 / 10).astype(np.float32).reshape(shape)


def assert_same(one, other):
    """Whether two infos, or parts of them, say the same."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif one.dtype == object:
        for left, right in zip(one, other, strict=True):
            assert (left is None) == (right is None)
            assert left is None or left.tobytes() == right.tobytes()
    else:
        assert one.astype(np.float32).tobytes() == other.astype(np.float32).tobytes()


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_it_is_what_gymnasium_makes_of_single_ones(id, mode, threads):
    """Observations, rewards, ends and infos over several episodes; seeds s + i."""
    # A minute ends within the steps that are taken, too.
    short = {"interval": 4.0} if "Subdomains" in id else SHORT
    envs = gymnasium.make_vec(id, 5, autoreset_mode=mode, threads=threads, **short)
    assert isinstance(envs, VectorEnv) and envs.threads == threads
    plain = SyncVectorEnv(
        [lambda: gymnasium.make(id, **short) for _ in range(5)], autoreset_mode=mode
    )
    assert envs.single_observation_space == plain.single_observation_space
    assert envs.action_space == plain.action_space and envs.observation_space == plain.observation_space
    assert envs.reset(seed=11)[0].tobytes() == plain.reset(seed=11)[0].tobytes()
    ends = 0
    is_long = "Cross" in id or "Delayed" in id
    for step in range(6 if is_long else 18):
        actions = rates(envs, step)
        ours, theirs = envs.step(actions), plain.step(actions)
        for left, right in zip(ours[:4], theirs[:4]):
            assert left.astype(np.float32).tobytes() == right.astype(np.float32).tobytes()
        over = ours[2] | ours[3]
        ends += over.sum()
        if mode is not AutoresetMode.NEXT_STEP:
            assert_same(ours[4], theirs[4])
        if mode is AutoresetMode.DISABLED and over.any():
            options = {"reset_mask": over}
            left, right = envs.reset(options=options.copy())[0], plain.reset(options=options.copy())[0]
            assert left.tobytes() == right.tobytes()
    assert ends or is_long


def test_results_are_new_arrays_unless_it_is_said_where_they_go():
    envs = gymnasium.make_vec("anabranch/C3-Parallel-v0", 4)
    kept, _ = envs.reset(seed=1)
    before = kept.copy()
    plain = [array.copy() for array in envs.step(rates(envs, 1))[:4]]
    assert (kept == before).all()
    envs.reset(seed=1)
    out = envs.buffers()
    results = envs.step(rates(envs, 1), out=out)
    assert results[0] is out.observations and results[1] is out.rewards and results[3] is out.truncated
    for left, right in zip(plain, results[:4]):
        assert left.tobytes() == right.tobytes()
    envs.step(rates(envs, 2), out=out)
    assert out.observations.tobytes() != plain[0].tobytes()


def test_each_may_have_a_seed_of_its_own():
    envs = gymnasium.make_vec("anabranch/C3-Random-v0", 3)
    envs.reset(seed=[5, None, 9])
    single = gymnasium.make("anabranch/C3-Random-v0")
    single.reset(seed=9)
    actions = rates(envs, 4)
    assert envs.step(actions)[0][2].tobytes() == single.step(actions[2])[0].tobytes()
    with pytest.raises(ValueError, match="seeds has 2 entries, must have 3"):
        envs.reset(seed=[1, 2])


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_drawn_seeds_can_be_learnt_and_begin_the_same_again(mode):
    def course(envs):
        return b"".join(envs.step(rates(envs, step))[0].tobytes() for step in range(8))

    envs = gymnasium.make_vec("anabranch/C3-Random-v0", 3, autoreset_mode=mode)
    assert envs.np_random_seed is None
    for seed in (None, 7, 2**64 - 1, [5, None, 9], (5, 6, 7), np.array([3, 1, 2])):
        fresh = gymnasium.make_vec("anabranch/C3-Random-v0", 3, autoreset_mode=mode)
        fresh.reset(seed=seed)
        drawn = fresh.np_random_seed
        if isinstance(seed, int):
            assert drawn == seed
        again = gymnasium.make_vec("anabranch/C3-Random-v0", 3, autoreset_mode=mode)
        again.reset(seed=drawn)
        assert course(again) == course(fresh) and again.np_random_seed == drawn
        fresh.reset()
        assert fresh.np_random_seed == drawn, "it goes on from there"
    assert fresh.np_random_seed == (3, 1, 2)
    fresh.reset(seed=10, options={"reset_mask": np.array([False, True, False])})
    assert fresh.np_random_seed == (3, 11, 2)
    fresh.reset(seed=[None, 20, None])
    assert fresh.np_random_seed == (3, 20, 2)
    assert fresh.np_random.random() == np.random.Generator(np.random.PCG64(np.random.SeedSequence(3))).random()


@pytest.mark.parametrize("seed", [None, 7])
def test_a_first_reset_with_a_mask_leaves_nobody_without_a_seed(seed):
    mask = {"reset_mask": np.array([True, False, False])}
    courses = []
    for options in (mask, mask, None):
        envs = gymnasium.make_vec("anabranch/C3-Random-v0", 3, autoreset_mode="Disabled")
        envs.reset(seed=seed, options=options)
        # After one step alone, two of them may look alike by chance.
        courses.append(np.concatenate([envs.step(rates(envs, 1))[0].copy() for _ in range(20)], axis=-1))
    same = [(courses[0][place] == other[place]).all() for other in courses[1:] for place in range(3)]
    assert same == [seed is not None] * 6


def wrong_buffers(envs, **changes):
    return envs.buffers()._replace(**changes)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda a, o: (a[:2], o), ValueError, "actions has the shape (2, 2), must have (4, 2)"),
        (lambda a, o: (a.astype(float), o), TypeError, "actions has the dtype float64, must have float32"),
        (lambda a, o: (a.tolist(), o), TypeError, "actions is of type list, must be a numpy array of float32"),
        (lambda a, o: (np.asfortranarray(a), o), ValueError, 'numpy.array(actions, order="C") is'),
        (lambda a, o: (np.repeat(a, 2, axis=0)[::2], o), ValueError, "not one run of numbers in C order"),
        (lambda a, o: (np.where(np.arange(8).reshape(4, 2) == 5, np.nan, a).astype(np.float32), o),
         ValueError, "actions[2, 1] is NaN"),
        (lambda a, o: (a, o._replace(rewards=np.zeros(3, np.float32))), ValueError, "rewards has the shape (3,)"),
        (lambda a, o: (a, o._replace(truncated=np.zeros(4, np.uint8))), TypeError, "must have bool"),
        (lambda a, o: (a, o._replace(terms=np.zeros((6, 4), np.float32).T)), ValueError, "terms is not one run"),
        (lambda a, o: (a, o._replace(terminated=o.truncated)), ValueError, "results need arrays of their own"),
        (lambda a, o: (o.observations[:, :2].copy(), o._replace(observations=read_only(o.observations))),
         ValueError, "can be written"),
    ],
)
def test_an_array_that_does_not_fit_is_answered_by_what_does(change, error, said):
    envs = gymnasium.make_vec("anabranch/C3-Parallel-v0", 4)
    envs.reset(seed=1)
    actions, out = change(rates(envs, 1), envs.buffers())
    with pytest.raises(error) as raised:
        envs.step(actions, out=out)
    assert said in str(raised.value)
    envs.step(rates(envs, 1))


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("mask", "error", "said"),
    [
        ([True] * 4, TypeError, "reset_mask is list, must be a numpy array of bool"),
        (np.ones(4), TypeError, "reset_mask is float64"),
        (np.ones(3, bool), ValueError, "must have (4,)"),
        (np.zeros(4, bool), ValueError, "False everywhere"),
    ],
)
def test_a_mask_that_is_none_is_refused(mask, error, said):
    envs = gymnasium.make_vec("anabranch/C3-Single-v0", 4, autoreset_mode="Disabled")
    envs.reset(seed=1)
    with pytest.raises(error) as raised:
        envs.reset(options={"reset_mask": mask})
    assert said in str(raised.value)


def test_numbers_out_of_range_are_refused():
    for options, said in [
        ({"num_envs": 0}, "num_envs is 0, must be from 1 to 65536"),
        ({"num_envs": 65537}, "must be from 1 to 65536"),
        ({"threads": 0}, "threads is 0, must be from 1 to 1024"),
        ({"autoreset_mode": "Later"}, "Later"),
        ({"render_mode": "ansi"}, "only a single environment"),
    ]:
        with pytest.raises(ValueError) as raised:
            gymnasium.make_vec("anabranch/C3-Single-v0", **options)
        assert said in str(raised.value)
    with pytest.raises(RuntimeError, match="call it before"):
        gymnasium.make_vec("anabranch/C3-Single-v0").step(np.zeros((1, 1), np.float32))


# A thread's stack takes some megabytes of what the process may address: there is no room for a thousand.
TOO_MANY_THREADS = """
import pathlib, resource
import anabranch.vector
pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
most = pages * resource.getpagesize() + (1536 << 20)
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    anabranch.vector.VectorEnv("C3-Single", num_envs=1024, threads=1024)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what a process takes is asked of /proc")
def test_threads_that_the_system_does_not_give_are_said_to_be_missing():
    # Of stacks of a gibibyte there is room for one, and half a gibibyte is left for all else: a process whose threads
    # have taken all that there is would be ended by the C library, which has no memory for a thread's own variables.
    done = subprocess.run([sys.executable, "-c", TOO_MANY_THREADS], env=os.environ | {"RUST_MIN_STACK": str(1 << 30)},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.stdout.startswith("1024 threads can't be started ("), done.stdout + done.stderr
    assert "ask for fewer" in done.stdout


def test_other_threads_run_during_a_step_and_may_not_step():
    envs = gymnasium.make_vec("anabranch/C3-Cross-v0", 16, threads=1, interval=5.0)
    envs.reset(seed=1)
    actions = rates(envs, 9)
    stepping = threading.Thread(target=envs.step, args=(actions,))
    stepping.start()
    refused, turns = [], 0
    while stepping.is_alive():
        turns += 1
        try:
            envs.directed_by("rule")
        except RuntimeError as error:
            refused.append(str(error))
    stepping.join()
    assert turns > 10 and any("another thread is stepping" in text for text in refused)
    envs.step(actions)


def in_child(envs, queue):
    try:
        envs.step(np.zeros(envs.action_space.shape, np.float32))
        queue.put("stepped")
    except RuntimeError as error:
        queue.put(str(error))


# JAX, where other tests have imported it, warns of what is tried here.
FORKS = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")


@FORKS
@pytest.mark.parametrize(("threads", "said"), [(2, "forked after the environments were made"), (1, "stepped")])
def test_after_a_fork_threads_are_missed_and_said_to_be(threads, said):
    envs = gymnasium.make_vec("anabranch/C3-Single-v0", 4, threads=threads)
    envs.reset(seed=1)
    envs.step(np.zeros(envs.action_space.shape, np.float32))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(envs, queue))
    child.start()
    assert said in queue.get(timeout=30)
    child.join(30)
    assert child.exitcode == 0


def interrupt_soon(after_s):
    timer = threading.Timer(after_s, signal.raise_signal, [signal.SIGINT])
    timer.start()
    return timer


def test_ctrl_c_ends_a_loop_of_steps():
    envs = gymnasium.make_vec("anabranch/C3-Single-v0", 64)
    envs.reset(seed=1)
    timer, actions, began = interrupt_soon(0.2), rates(envs, 1), time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        while time.monotonic() < began + 20:
            envs.step(actions)
    timer.join()
    envs.step(actions)


@FORKS
def test_gymnasiums_own_vectors_of_processes_work():
    envs = gymnasium.make_vec("anabranch/C3-Single-v0", 2, vectorization_mode="async")
    ours = gymnasium.make_vec("anabranch/C3-Single-v0", 2)
    try:
        assert envs.reset(seed=3)[0].tobytes() == ours.reset(seed=3)[0].tobytes()
        actions = np.float32([[0.5], [0.75]])
        assert envs.step(actions)[0].tobytes() == ours.step(actions)[0].tobytes()
    finally:
        envs.close()


def test_what_is_imported_is_all_that_is_named():
    for name in anabranch.__all__:
        assert getattr(anabranch, name) is not None
