import os
import signal
import tempfile
import warnings

import gymnasium
import pytest

import anabranch

# A shell has programs in the background ignore SIGINT, and Python raises no KeyboardInterrupt then.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Trainings of one shape are compiled once, not once a test: JAX reads this where it is loaded, also in programs that
# tests begin, and in those that pytest-xdist spreads tests over: the one that begins them makes the folder.
COMPILED = None if "PYTEST_XDIST_WORKER" in os.environ else tempfile.TemporaryDirectory(prefix="anabranch-jax-")
if COMPILED:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = COMPILED.name
os.environ |= {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    # Tests train for moments: what the compiler optimises takes it longer than that makes up for.
    "XLA_FLAGS": "--xla_backend_optimization_level=0 " + os.environ.get("XLA_FLAGS", ""),
}

IDS = list(anabranch.environments())


@pytest.fixture(params=IDS, ids=[id.removeprefix("anabranch/") for id in IDS])
def id(request):
    return request.param


@pytest.fixture
def single():
    """The environment of one flow, without Gymnasium's wrappers."""
    return gymnasium.make("anabranch/C3-Single-v0").unwrapped


@pytest.fixture(scope="module")
def cluster():
    """Ray's, one for all tests of a file, of two workers; without what Ray would leave in the home directory."""
    import ray

    from anabranch import _ray

    os.environ["RAY_AUTH_MODE"] = "disabled"
    with warnings.catch_warnings():
        # Whoever has loaded JAX is warned of forks; Ray's begin another program at once.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=_ray.OBJECT_STORE_BYTES,
                 log_to_driver=False, logging_level="error")  # fmt: skip
    yield
    ray.shutdown()


def pytest_unconfigure():
    if COMPILED:
        COMPILED.cleanup()
