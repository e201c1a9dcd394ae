"""That what `pip install .` is told to build is what there is."""

import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest

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


def test_a_wheel_of_the_module_that_is_tested_has_no_more_than_15_mb(tmp_path):
    """Not one that maturin has built, which takes minutes: what it puts into one, packed as one is."""
    assert MATURIN["strip"], "else the wheel has its symbols"
    if shutil.which("strip") is None:
        pytest.skip("binutils are not here")
    native = Path(anabranch._native.__file__)
    stripped = tmp_path / native.name
    subprocess.run(["strip", "-o", stripped, native], check=True)
    wheel = tmp_path / "anabranch.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(stripped, f"anabranch/{stripped.name}")
        sources = [*native.parent.rglob("*.py"), *native.parent.rglob("*.pyi"), native.parent / "py.typed"]
        assert len(sources) > 20
        for file in sources:
            archive.write(file, file.relative_to(native.parent.parent))
    megabytes = wheel.stat().st_size / 1e6
    assert 1 < megabytes <= 15, f"{megabytes:.1f} MB"
