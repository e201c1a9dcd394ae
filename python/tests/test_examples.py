"""The notebook is run, briefly."""

import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("jax", reason="JAX is not installed: pip install jax optax")
pytest.importorskip("optax", reason="optax is not installed: pip install jax optax")


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
        client = nbclient.NotebookClient(notebook, timeout=900, startup_timeout=300, resources={"metadata": {"path": str(tmp_path)}})
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
