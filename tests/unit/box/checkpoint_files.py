"""Writes the layouts of tests/fixtures/checkpoints: names as trainers give them, content in their formats."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tomllib
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

FIXTURES = Path(__file__).parents[2] / "fixtures" / "checkpoints"
TORCH = (".pt", ".pth", ".ckpt", ".pth.tar", ".bin", ".distcp")


class Expected(NamedTuple):
    """One checkpoint of a layout."""

    path: str
    step: int | None
    epoch: int | None
    best: bool


class Layout(NamedTuple):
    """Files of one trainer, and which checkpoints they are."""

    name: str
    files: list[str]
    expect: list[Expected]
    writing: list[str]


def layouts(file: str = "layouts.toml") -> list[Layout]:
    """Return the labelled set."""
    rows = tomllib.loads((FIXTURES / file).read_text())["layout"]
    return [
        Layout(
            row["name"],
            row["files"],
            [_expected(text) for text in row["expect"]],
            row.get("writing", []),
        )
        for row in rows
    ]


def _expected(text: str) -> Expected:
    path, step, epoch, *flags = (part.strip() for part in text.split(" | "))
    return Expected(
        path,
        None if step == "-" else int(step),
        None if epoch == "-" else int(epoch),
        flags == ["best"],
    )


def write(root: Path, files: list[str]) -> None:
    """Write the files of a layout below `root`."""
    for text in files:
        name, _, what = text.partition("@")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kind, _, told = what.partition(":")
        if kind == "link":
            path.symlink_to(told)
        else:
            path.write_bytes(_content(name, kind, told))


def torch_file(value: dict[str, Any]) -> bytes:
    """Return a file in the format of ``torch.save``: a zip file, nothing compressed, the pickle in front."""
    return zip_file(
        {
            "archive/data.pkl": pickle.dumps(value, protocol=2),
            "archive/byteorder": b"little",
            "archive/data/0": bytes(4096),
            "archive/version": b"3\n",
        }
    )


def zip_file(members: dict[str, bytes]) -> bytes:
    """Return a zip file in which nothing is compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def safetensors_file(names: list[str], metadata: dict[str, str]) -> bytes:
    """Return a file of safetensors with tensors of 64 bytes."""
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    for place, name in enumerate(names):
        entries[name] = {
            "dtype": "F32",
            "shape": [16],
            "data_offsets": [64 * place, 64 * place + 64],
        }
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header + bytes(64 * len(names))


def hdf5_file(size: int = 2048) -> bytes:
    """Return the superblock of an HDF5 file (version 2) that says how long the file is, and so many bytes."""
    head = (
        b"\x89HDF\r\n\x1a\n"
        + bytes([2, 8, 8, 0])
        + struct.pack("<QQQQ", 0, 2**64 - 1, size, 48)
        + bytes(4)
    )
    return head + bytes(size - len(head))


def _content(name: str, kind: str, told: str) -> bytes:
    said = dict(pair.split("=") for pair in told.split(",")) if "=" in told else {}
    weights = OrderedDict([("layer.0.weight", [0.5]), ("layer.0.bias", [0.5])])
    model: dict[str, Any] = {
        "model": weights,
        "optimizer": {"state": {0: {"step": 7}}, "param_groups": []},
    }
    if kind == "text":
        return told.encode()
    if kind == "raw":
        return bytes(1000)
    if kind == "zip":
        return zip_file(
            {"data": b"{}", "policy.pth": torch_file(model), "pytorch_variables.pth": b""}
        )
    if kind == "cut":
        return torch_file(model)[:3000]
    if kind == "cutsafe":
        return safetensors_file(["layer.0.weight"], {})[:-10]
    if kind == "safedata":
        return safetensors_file(["prompt_embeds", "pooled"], {})
    if kind == "optimizer":
        return torch_file({"state": {}, "param_groups": []})
    if kind == "data":
        data: dict[str, Any] = {"x": [1, 2], "y": [3]}
        return pickle.dumps(data) if name.endswith((".pkl", ".pickle")) else torch_file(data)
    if kind == "torch":
        return torch_file({**model, **{key: int(value) for key, value in said.items()}})
    if kind == "safetensors" or name.endswith(".safetensors"):
        return safetensors_file(["layer.0.weight"], said)
    if name.endswith(TORCH):
        return torch_file(model)
    if name.endswith((".h5", ".hdf5")):
        return hdf5_file()
    if name.endswith(".pkl"):
        return pickle.dumps({"G_ema": weights})
    if name.endswith(".keras"):
        return zip_file({"config.json": b"{}", "model.weights.h5": hdf5_file()})
    return b"{}" if name.endswith(".json") else b"text\n"
