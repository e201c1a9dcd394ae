"""That the stub of what is in Rust says what is there: mypy's stubtest compares it with the module, name by name and
parameter by parameter. All else of the package is Python, whose types stand beside its code."""

import os
import subprocess
import sys
from pathlib import Path

import anabranch


def stubtest(folder, package):
    environment = dict(os.environ, MYPYPATH=str(package), PYTHONPATH=str(package), MYPY_CACHE_DIR=str(folder / "cache"))
    command = [sys.executable, "-m", "mypy.stubtest", f"{anabranch.__name__}._native"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def test_the_stub_says_what_is_in_rust(tmp_path):
    said = stubtest(tmp_path, Path(anabranch.__file__).parents[1])
    assert said.returncode == 0, said.stdout + said.stderr


def test_a_stub_that_says_something_else_is_found(tmp_path):
    source, copy = Path(anabranch.__file__).parent, tmp_path / "anabranch"
    copy.mkdir()
    for file in ["__init__.py", "py.typed"]:
        (copy / file).write_text("")
    native = Path(anabranch._native.__file__)
    (copy / native.name).symlink_to(native)
    stub = (source / "_native.pyi").read_text()
    assert "def now(self, environment: int) -> float" in stub
    (copy / "_native.pyi").write_text(stub.replace("def now(self, environment: int)", "def now(self, which: int)"))
    said = stubtest(tmp_path, tmp_path)
    assert said.returncode == 1 and "now is inconsistent" in said.stdout, said.stdout + said.stderr
