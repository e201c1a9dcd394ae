"""What README and the notebook show is run, briefly."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import anabranch

ROOT = Path(__file__).parents[2]
pytest.importorskip("jax", reason="JAX is not installed: pip install jax optax")
pytest.importorskip("optax", reason="optax is not installed: pip install jax optax")


def commands():
    """README's lines that train and deploy, but the one that installs."""
    section = (ROOT / "README.md").read_text().split("## Train a coordinator")[1]
    lines = re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1].splitlines()
    return [shlex.split(line.split(" #")[0]) for line in lines]


def test_the_lines_of_the_readme_train_and_deploy(tmp_path):
    lines = commands()
    assert lines[0] == ["pip", "install", ".[train]"]
    (train,) = [line for line in lines if line[:2] == ["python", "-m"]]
    runs = [line for line in lines if line[:2] == ["anabranch", "run"]]
    assert len(runs) == 2 and len(lines) == 4
    # Short, and not into the repository.
    train[train.index("--steps") + 1] = "256"
    out = train.index("--out") + 1
    where, train[out] = train[out], str(tmp_path / "trained")
    train += ["--num-envs", "2"]
    subprocess.run([sys.executable, *train[1:]], cwd=tmp_path, check=True, capture_output=True, timeout=200)
    goodputs = []
    for _, _, scenario, *rest in runs:
        assert rest[::2] == ["--set"] * (len(rest) // 2)
        overrides = {"run.seconds": 5}
        for told in rest[1::2]:
            key, value = told.split("=")
            assert value.startswith(where), "what was trained is what steers"
            overrides[key] = value.replace(where, train[out])
        # The command's own code.
        result = anabranch.run(ROOT / scenario, overrides=overrides)
        goodputs.append(result["metrics"]["goodput_mbit_s"])
    # One that has learned nothing, and the one that was trained before.
    assert goodputs[0] != goodputs[1] and goodputs[1] > 60


def test_the_notebook_runs_from_its_beginning_to_its_end(tmp_path):
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install nbclient ipykernel")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install nbclient ipykernel")
    pytest.importorskip("pyarrow")
    # The kernel is a process of its own, with these settings.
    environment = {"ANABRANCH_STEPS": "4096", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    kept = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        notebook = nbformat.read(ROOT / "examples" / "train-and-deploy.ipynb", as_version=4)
        assert all(not cell.get("outputs") for cell in notebook.cells), "it is kept without results"
        # Which Python runs it is this one, whatever kernels are installed.
        client = nbclient.NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}})
        client.km = client.create_kernel_manager()
        client.km.kernel_spec.argv[0] = sys.executable
        client.execute()
    finally:
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 3, "the curve, the episode, and learned beside rule"
    said = "".join(output.get("text", "") for output in outputs)
    assert "seed 1:" in said and re.search(r"learned +\d", said) and re.search(r"rule +\d", said)
