import gymnasium
import pytest

import anabranch

IDS = list(anabranch.environments())


@pytest.fixture(params=IDS, ids=[id.removeprefix("anabranch/") for id in IDS])
def id(request):
    return request.param


@pytest.fixture
def single():
    """The environment of one flow, without Gymnasium's wrappers."""
    return gymnasium.make("anabranch/C3-Single-v0").unwrapped
