"""That what `pip install .` is told to build is what there is."""

import tomllib
from pathlib import Path

import anabranch

ROOT = Path(__file__).parents[2]
MATURIN = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]
WORKSPACE = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
CRATE = tomllib.loads((ROOT / MATURIN["manifest-path"]).read_text())


def test_the_wheel_is_built_from_the_crate_that_is_tested():
    assert "cdylib" in CRATE["lib"]["crate-type"]
    assert set(MATURIN["features"]) <= set(CRATE["features"])
    assert MATURIN["module-name"] == anabranch._native.__name__
    assert (ROOT / MATURIN["python-source"] / "anabranch" / "__init__.py").samefile(anabranch.__file__)


def test_the_version_is_the_workspaces():
    assert anabranch.__version__ == WORKSPACE["package"]["version"]
    assert CRATE["package"]["version"] == {"workspace": True}
