"""The points of a sweep, measured by Ray's workers; this process alone writes.

Points that take long are a task each, short ones go together until a task takes :data:`TASK_S` of a processor, so that
Ray's millisecond a task counts for nothing. A task whose worker dies runs again, elsewhere; what came back before is kept
already.
"""

from __future__ import annotations

import os
import time
from typing import Any

from anabranch import _native
from anabranch._cores import cores

try:
    import ray
    from ray.exceptions import RayError, RayTaskError
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("Ray is not installed: pip install ray", name="ray") from error

TASK_S = 2.0
"""Seconds of a processor that a task is to take at least."""

RETRIES = 3
"""How often a task runs again whose worker has died."""

OBJECT_STORE_BYTES = 100_000_000
"""Memory that Ray sets aside here for what goes between processes; outcomes have a few kB each."""

Points = list[tuple[int, str]]
Outcomes = list[tuple[int, str]]


def measured(points: Points, version: str) -> tuple[Outcomes, float]:
    """In a worker: what was measured of the points, and the seconds that it took.

    Raises:
        RunError: This worker has another version than ``version``.
    """
    if _native.measures() != version:
        raise _native.RunError(
            f"a worker has anabranch {_native.measures()}, and the sweep is one of {version}: install the same everywhere"
        )
    began = time.monotonic()
    outcomes = [(place, _native.measure_point(text)) for place, text in points]
    return outcomes, time.monotonic() - began


def begin(threads: int | None, address: str | None) -> bool:
    """Begins Ray, or joins the cluster at ``address``, unless this program has; whether it was begun here."""
    if ray.is_initialized():
        return False
    if address is not None:
        ray.init(address=address, log_to_driver=False, logging_level="warning")
    else:
        ray.init(
            address="local",
            num_cpus=cores() if threads is None else threads,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level="warning",
        )
    return True


def chunk(left: int, workers: int, seconds_each: float | None) -> int:
    """How many points the next task gets: enough for :data:`TASK_S`, and not more than a worker's share of what is left."""
    if seconds_each is None:
        return 1
    enough = round(TASK_S / max(seconds_each, TASK_S / 1000))
    return max(1, min(enough, left // (2 * workers)))


def drive(driver: _native.Driver, *, threads: int | None, address: str | None) -> Any:
    """Has all points measured that are missing; what ``Driver.tell`` says then."""
    missing = driver.missing()
    if missing:
        was_begun = begin(threads, address)
        try:
            _drive(driver, missing)
        finally:
            if was_begun:
                ray.shutdown()
    return driver.tell()


def _drive(driver: _native.Driver, missing: Points) -> None:
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(measured)
    workers = max(1, int(ray.cluster_resources().get("CPU", 1)))
    version = _native.measures()
    running: set[Any] = set()
    done, seconds = 0, 0.0

    def keep(reference: Any) -> None:
        nonlocal done, seconds
        outcomes, took = ray.get(reference)
        for place, outcome in outcomes:
            driver.keep(place, outcome)
        done, seconds = done + len(outcomes), seconds + took

    left = missing[::-1]
    try:
        while left or running:
            # Twice as many as there are workers: none waits for this process.
            while left and len(running) < 2 * workers:
                size = chunk(len(left), workers, seconds / done if done else None)
                running.add(task.remote([left.pop() for _ in range(size)], version))
            ready, rest = ray.wait(list(running), num_returns=1)
            running = set(rest)
            for reference in ready:
                keep(reference)
    except BaseException as error:
        # What is over already is kept, whatever ended the sweep.
        for reference in ray.wait(list(running), num_returns=len(running), timeout=0)[0] if running else ():
            running.discard(reference)
            try:
                keep(reference)
            except (RayError, _native.RunError, _native.ScenarioError):
                continue
        for reference in running:
            ray.cancel(reference, force=True)
        if isinstance(error, RayTaskError):
            cause = error.cause
            if isinstance(cause, (_native.RunError, _native.ScenarioError)):
                raise type(cause)(str(cause)) from None
            if isinstance(cause, ModuleNotFoundError):
                raise _native.RunError(f"a worker lacks what the sweep needs: {cause}; install the same everywhere") from None
        if isinstance(error, RayError):
            there, all = driver.finished()
            said = str(error).strip().splitlines()[0]
            raise _native.RunError(
                f"Ray could not go on: {said}; {there} of {all} points are kept, and the same call goes on from there"
            ) from error
        raise


# Ray speaks of a change to come on machines without accelerators, of which sweeps need none. Who has chosen stays with it.
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
