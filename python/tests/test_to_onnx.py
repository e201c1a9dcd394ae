"""Policies as ONNX, run by onnxruntime. Skipped where that is not installed."""

from __future__ import annotations

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from anabranch import to_onnx
from anabranch.policy import Memory, Policy

POLICY = Path(__file__).parents[2] / "policies" / "cross.safetensors"


def test_onnxruntime_says_what_rust_says(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    to_onnx.write(POLICY, tmp_path / "cross.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["cross.onnx"]
    session = runtime.InferenceSession(tmp_path / "cross.onnx", providers=["CPUExecutionProvider"])
    parts, policy = to_onnx.tensors(POLICY), Policy.load(POLICY)
    rng = np.random.default_rng(1)
    # Within what it saw, and far beyond, where it is cut.
    spread = parts["most"] - parts["least"]
    observations = (parts["least"] + spread * rng.uniform(-0.5, 1.5, (200, policy.inputs))).astype(np.float32)
    (said,) = session.run(["rates"], {"observation": observations})
    for observation, rates in zip(observations, said, strict=True):
        own = np.zeros(1, np.float32)
        policy.native.rates(observation, 1, policy.inputs, 1, own, Memory())
        np.testing.assert_allclose(rates, own, atol=1e-5)
    props = session.get_modelmeta().custom_metadata_map
    assert json.loads(props["purpose"])["features"][0] == "throughput"


def test_onnxruntime_remembers_as_rust_does(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    env = gymnasium.make("anabranch/C3-Single-v0")
    rng = np.random.default_rng(2)

    def layer(inputs: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
        return rng.normal(0, 0.5, (inputs, outputs)).astype(np.float32), rng.normal(0, 0.5, outputs).astype(np.float32)

    policy = Policy([layer(8, 4), layer(4, 1)], cell=(layer(6, 24), layer(8, 24)))
    policy.save(tmp_path / "gru.safetensors", env)
    to_onnx.write(tmp_path / "gru.safetensors", tmp_path / "gru.onnx")
    session = runtime.InferenceSession(tmp_path / "gru.onnx", providers=["CPUExecutionProvider"])
    state, memory = np.zeros((1, 8), np.float32), Memory()
    for _ in range(20):
        observation = rng.uniform(-1, 1, 6).astype(np.float32)
        said, state = session.run(["rates", "next_state"], {"observation": observation[None], "state": state})
        np.testing.assert_allclose(said[0], policy.rates(env, observation, memory), atol=1e-5)
    assert np.abs(state).max() > 0.1


def test_what_is_no_policy_is_said_with_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx")
    path = tmp_path / "p.safetensors"
    for data, said in [(b"", "no end"), (b"\xff" * 16, "no end"), ((2).to_bytes(8, "little") + b"{}", "p.json")]:
        path.write_bytes(data)
        assert to_onnx.main([str(path), str(tmp_path / "p.onnx")]) == 2
        assert said in capsys.readouterr().err
    deep = b"[" * 100_000
    path.write_bytes(len(deep).to_bytes(8, "little") + deep)
    assert to_onnx.main([str(path), str(tmp_path / "p.onnx")]) == 2
    assert "p.safetensors: is no safetensors file of a policy" in capsys.readouterr().err
    path.write_bytes((2).to_bytes(8, "little") + b"{}")
    path.with_suffix(".json").write_text('{"activation": "gelu"}')
    assert to_onnx.main([str(path), str(tmp_path / "p.onnx")]) == 2
    assert "p.json: is no description of a policy" in capsys.readouterr().err
    assert not (tmp_path / "p.onnx").exists()
