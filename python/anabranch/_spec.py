"""What environments there are, and what is seen in them."""

from __future__ import annotations

from typing import NamedTuple

from anabranch import _native


class Feature(NamedTuple):
    """One number of a host's row of an observation."""

    name: str
    """Its name in ``features=[...]``."""
    unit: str
    """What it measures, relative to what."""
    low: float
    """The least value: what lies below is cut off."""
    high: float
    """The highest value."""
    deployable: bool
    """Whether a coordinator of real hosts can know it, from its senders' and routers' reports."""


def environments() -> dict[str, str]:
    """Gymnasium's ids of the environments, and a line on each."""
    return {f"anabranch/{name}-v0": about for name, about in _native.environments()}


def features() -> list[Feature]:
    """All that can be observed of a host."""
    return [Feature(*row) for row in _native.features()]
