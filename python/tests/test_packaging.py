"""That what `pip install .` is told to build is what there is."""

import tomllib
from pathlib import Path

import anabranch

ROOT = Path(__file__).parents[2]
MATURIN = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]
CRATE = tomllib.loads((ROOT / MATURIN["manifest-path"]).read_text())


def test_the_wheel_is_built_from_the_crate_that_is_tested():
    assert "cdylib" in CRATE["lib"]["crate-type"]
    assert set(MATURIN["features"]) <= set(CRATE["features"])
    assert MATURIN["module-name"] == anabranch._native.__name__
    assert (ROOT / MATURIN["python-source"] / "anabranch" / "__init__.py").samefile(anabranch.__file__)
