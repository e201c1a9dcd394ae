"""A policy for other programs: its files as ONNX.

    python -m anabranch.to_onnx policy.safetensors policy.onnx

Needs ``pip install '.[onnx]'``. It reads the two files that ``Policy.save`` writes and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

#: Normalised observations go no further from 0, as in crates/control/src/policy.rs.
CUT = 10.0

#: Of ONNX's standard operators: all that is used here is older.
OPSET = 17

#: Files of this version of the format can be read by runtimes since 2022.
IR_VERSION = 8

_LONGEST_HEADER = 1 << 24


def tensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The tensors in a safetensors file of a policy, all of them float32.

    Raises:
        OSError: It can't be read.
        ValueError: It is none.
    """
    data = Path(path).read_bytes()
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(_LONGEST_HEADER, len(data) - 8):
        raise ValueError(f"{path}: is no safetensors file: its header has no end")
    try:
        header: dict[str, Any] = json.loads(data[8 : 8 + length])
        found = {}
        for name, about in header.items():
            if name == "__metadata__":
                continue
            begin, end = about["data_offsets"]
            if about["dtype"] != "F32" or not 0 <= begin <= end <= len(data) - 8 - length:
                raise ValueError(f'tensor "{name}" is {about["dtype"]} from {begin} to {end}')
            numbers = np.frombuffer(data[8 + length + begin : 8 + length + end], "<f4")
            found[name] = numbers.reshape(about["shape"]).astype(np.float32)
        return found
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is no safetensors file of a policy: {error}") from error


def model(path: str | os.PathLike[str]) -> Any:
    """The policy in ``path`` (``NAME.safetensors``, with ``NAME.json`` beside it) as an ``onnx.ModelProto``.

    One input, ``observation``, float32 ``(n, inputs)``; one output, ``rates``, float32 ``(n, outputs)``: what the network
    says, which whoever runs it cuts at its range. A policy that remembers has ``state`` besides, ``(n, size)``, 0 at first,
    and answers with ``next_state``, which goes in with the next observation. ``metadata_props`` has ``purpose`` and ``trained`` as JSON.

    Raises:
        ImportError: ``onnx`` is not installed.
        OSError, ValueError: There is no policy.
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise ImportError("a policy as ONNX needs the package onnx: pip install '.[onnx]'") from error

    path = Path(path)
    parts = tensors(path)
    described = path.with_suffix(".json")
    try:
        about = json.loads(described.read_text())
        operator = {"tanh": "Tanh", "relu": "Relu"}[about["activation"]]
        purpose, trained = about["purpose"], about.get("trained")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{described}: is no description of a policy: {error!r}") from error
    count = sum(1 for name in parts if name.startswith("layers.") and name.endswith(".weights"))
    missing = [name for name in ("mean", "deviation") if name not in parts]
    remembers = any(name.startswith("cell.") for name in parts)
    missing += [f"cell.{part}.{what}" for part in ("inputs", "state") for what in ("weights", "biases")
                if remembers and f"cell.{part}.{what}" not in parts]
    missing += [f"layers.{at}.{what}" for at in range(max(count, 1)) for what in ("weights", "biases")
                if f"layers.{at}.{what}" not in parts]
    if missing:
        raise ValueError(f"{path}: has no tensor {', '.join(missing)}")

    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def constant(name: str, value: Array | float) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def apply(operator: str, *inputs: str) -> str:
        return split(operator, 1, *inputs)[0]

    def split(operator: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        outputs = [f"x{len(nodes)}" if count == 1 else f"x{len(nodes)}.{place}" for place in range(count)]
        nodes.append(helper.make_node(operator, list(inputs), outputs, **attributes))
        return outputs

    def layer(name: str, x: str) -> str:
        weights, biases = (constant(f"{name}.{what}", parts[f"{name}.{what}"]) for what in ("weights", "biases"))
        return apply("Add", apply("MatMul", x, weights), biases)

    x = "observation"
    if "least" in parts and "most" in parts:
        x = apply("Min", apply("Max", x, constant("least", parts["least"])), constant("most", parts["most"]))
    x = apply("Div", apply("Sub", x, constant("mean", parts["mean"])), constant("deviation", parts["deviation"]))
    x = apply("Clip", x, constant("low", -CUT), constant("high", CUT))
    if remembers:
        # r, z and n, as crates/control/src/policy.rs has them.
        seen, kept = split("Split", 3, layer("cell.inputs", x), axis=-1), split("Split", 3, layer("cell.state", "state"), axis=-1)
        r, z = (apply("Sigmoid", apply("Add", seen[gate], kept[gate])) for gate in (0, 1))
        n = apply("Tanh", apply("Add", seen[2], apply("Mul", r, kept[2])))
        # (1 - z) n + z h
        x = apply("Add", apply("Mul", apply("Sub", constant("one", 1.0), z), n), apply("Mul", z, "state"))
        nodes[-1].output[0] = x = "next_state"
    for at in range(count):
        x = layer(f"layers.{at}", x)
        if at + 1 < count:
            x = apply(operator, x)
    nodes[-1].output[0] = "rates"

    inputs, outputs = len(parts["mean"]), len(parts[f"layers.{count - 1}.biases"])
    shown = [("observation", inputs)]
    said = [("rates", outputs)]
    if remembers:
        size = len(parts["cell.state.weights"])
        shown, said = [*shown, ("state", size)], [*said, ("next_state", size)]
    sources, targets = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width]) for name, width in some]
        for some in (shown, said)
    )
    graph = helper.make_graph(nodes, path.stem, sources, targets, constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="anabranch")
    made.ir_version = IR_VERSION
    helper.set_model_props(made, {"purpose": json.dumps(purpose), "trained": json.dumps(trained)})
    try:
        onnx.checker.check_model(made, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f"{path}: its layers do not fit each other: {error}") from error
    return made


def write(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Writes the policy in ``source`` as ONNX to ``target``, whole or not at all. Errors are those of :func:`model`."""
    target = Path(target)
    data = model(source).SerializeToString(deterministic=True)
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        new.write_bytes(data)
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m anabranch.to_onnx", description="Writes a policy as ONNX.")
    parser.add_argument("policy", help="NAME.safetensors; NAME.json stands beside it")
    parser.add_argument("onnx", help="the file to write")
    said = parser.parse_args(arguments)
    try:
        write(said.policy, said.onnx)
    except (ImportError, OSError, ValueError) as error:
        print(f"to_onnx: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
