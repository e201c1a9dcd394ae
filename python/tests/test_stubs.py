"""That the stub of what is in Rust says what is there: mypy's stubtest compares it with the module, name by name and
parameter by parameter. All else of the package is Python, whose types stand beside its code."""

import os
import subprocess
import sys
from pathlib import Path

import anabranch


def stubtest(folder, stub):
    """The module as Rust has built it beside `stub`, in a package of no other module: those would take mypy most of the
    time, with all that they import."""
    package = folder / anabranch.__name__
    package.mkdir()
    for file in ["__init__.py", "py.typed"]:
        (package / file).write_text("")
    native = Path(anabranch._native.__file__)
    (package / native.name).symlink_to(native)
    (package / "_native.pyi").write_text(stub)
    environment = dict(os.environ, MYPYPATH=str(folder), PYTHONPATH=str(folder), MYPY_CACHE_DIR=str(folder / "cache"))
    command = [sys.executable, "-m", "mypy.stubtest", f"{anabranch.__name__}._native"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def stub():
    return (Path(anabranch.__file__).parent / "_native.pyi").read_text()


def test_the_stub_says_what_is_in_rust(tmp_path):
    said = stubtest(tmp_path, stub())
    assert said.returncode == 0, said.stdout + said.stderr
    assert "Success: no issues found in 1 module" in said.stdout


def test_a_stub_that_says_something_else_is_found(tmp_path):
    assert "def now(self, environment: int) -> float" in stub()
    said = stubtest(tmp_path, stub().replace("def now(self, environment: int)", "def now(self, which: int)"))
    assert said.returncode == 1 and "now is inconsistent" in said.stdout, said.stdout + said.stderr
