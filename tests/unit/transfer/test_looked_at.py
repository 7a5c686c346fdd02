"""Formats beside torch.save: what a hostile or damaged file of each says, and which files make a checkpoint."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rgt_wire import checkpoint_names, event_records

from rgt_tui.transfer import (
    directory_contents,
    logged_files,
    safetensors_files,
    torch_files,
    verified_record,
)
from rgt_tui.transfer.directory_contents import plan_examination
from rgt_tui.transfer.file_stretch import FileRefused, MemberFileError, OpenFileSection
from tests.unit.transfer.hostile_files import FILES, harmful, safetensors


def refused(tmp_path: Path, header: object, data: bytes = b"\0" * 8) -> str:
    path = tmp_path / "file.safetensors"
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(safetensors(raw, data))
    with OpenFileSection(path) as whole, pytest.raises(FileRefused) as caught:
        safetensors_files.examine_safetensors(whole)
    return str(caught.value)


def tensor(begin: int, end: int, shape: Any, dtype: object = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"a": tensor(0, 4, [1]), "b": tensor(0, 8, [2])}, "hole or an overlap"),
        ({"a": tensor(0, 4, [1]), "b": tensor(2, 8, [3], "BF16")}, "hole or an overlap"),
        ({"a": tensor(4, 8, [1])}, "hole or an overlap"),
        ({"a": tensor(0, 4, [1])}, "something was added"),
        ({"a": tensor(0, 16, [4])}, "truncated"),
        ({"a": tensor(0, 8, [1])}, "its dtype and shape say 4"),
        ({"a": tensor(0, 8, [10**9] * 60)}, "its dtype and shape say"),
        ({"a": tensor(8, 0, [2])}, "has -8 bytes"),
        ({"a": tensor(0, 10**18, [10**18 // 4])}, "truncated"),
        ({"a": tensor(0, 8, [2], "F99")}, "does not have"),
        ({"a": tensor(0, 8, [2], ["F32"])}, "does not have"),
        ({"a": tensor(0, 8, "2")}, "an invalid shape"),
        ({"a": tensor(0, 8, [-2])}, "an invalid shape"),
        ({"a": {"dtype": "F32", "shape": [2]}}, "damaged at tensor"),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4, 8]}}, "no two offsets"),
        ({"__metadata__": {"a": 1}}, "not a table of strings"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b"[]", "brace"),
        (b'{"a":' + b"[" * 100_000, "damaged"),
        (b'{"a": ' + b"9" * 5000 + b"}", "damaged"),
    ],
)
def test_a_wrong_header_of_safetensors_is_refused(
    tmp_path: Path, header: object, reason: str
) -> None:
    assert reason in refused(tmp_path, header)


@pytest.mark.parametrize("length", [2**63, 10**18, 100_000_001, 9])
def test_a_header_that_is_longer_than_the_file_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "file.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b"{}")
    with OpenFileSection(path) as whole, pytest.raises(FileRefused):
        safetensors_files.examine_safetensors(whole)


# torch.distributed.checkpoint.


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    folder = tmp_path / "sharded"
    shutil.copytree(FILES / "sharded", folder)
    return folder


def trouble(folder: Path) -> tuple[str, str]:
    with pytest.raises(MemberFileError) as caught:
        torch_files.examine_checkpoint(folder)
    return caught.value.name, str(caught.value)


def test_metadata_that_run_code_are_refused_and_not_run(sharded: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for protocol in range(6):
        (sharded / ".metadata").write_bytes(harmful(mark, protocol))
        name, reason = trouble(sharded)
        assert name == ".metadata" and ("io.open" in reason or "opcode" in reason)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["../_0.distcp", "/etc/passwd1", "a/__0.distcp", "a\0b__.distcp"])
def test_a_part_that_lies_elsewhere_is_refused(sharded: Path, name: str) -> None:
    assert len(name) == len("__0_0.distcp")
    data = (sharded / ".metadata").read_bytes()
    (sharded / ".metadata").write_bytes(data.replace(b"__0_0.distcp", name.encode()))
    where, reason = trouble(sharded)
    assert where == ".metadata" and "not a file next to it" in reason


def test_missing_and_surplus_bytes_of_a_part_are_found(sharded: Path) -> None:
    part = sharded / "__0_0.distcp"
    data = part.read_bytes()
    part.write_bytes(data + b"\0")
    assert "belong to no part" in trouble(sharded)[1]
    part.write_bytes(data[:-1])
    assert "truncated" in trouble(sharded)[1]
    part.unlink()
    assert "missing" in trouble(sharded)[1]
    (sharded / ".metadata").unlink()
    assert trouble(sharded)[0] == ".metadata"


def test_settings_pickled_in_its_place_are_no_metadata(sharded: Path) -> None:
    (sharded / ".metadata").write_bytes(pickle.dumps({"a": 1}))
    assert "in place of a Metadata" in trouble(sharded)[1]


# rgt_train.


def manifest(folder: Path, files: Mapping[str, object]) -> None:
    body: dict[str, Any] = {"format": 2, "step": 1, "files": files}
    (folder / "manifest.json").write_bytes(checkpoint_names.encode_manifest(body))


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("../passwd", {"size": 1, "chunk": 1, "crc32": ["00000000"]}),
        ("/etc/passwd", {"size": 1, "chunk": 1, "crc32": ["00000000"]}),
        ("a", {"size": 10**18, "chunk": 1, "crc32": []}),
        ("a", {"size": 4, "chunk": 0, "crc32": ["00000000"]}),
        ("a", {"size": 4, "chunk": -1, "crc32": ["00000000"]}),
        ("a", {"size": 4, "chunk": 1, "crc32": ["00000000"]}),
        ("a", {"size": 4, "chunk": 10**30, "crc32": [7]}),
        ("a", {"size": 4, "chunk": 16, "crc32": ["DEADBEEF"]}),
        ("a", {"size": True, "chunk": 16, "crc32": []}),
        ("a", None),
        ("missing", {"size": 4, "chunk": 16, "crc32": ["00000000"]}),
        ("fifo", {"size": 0, "chunk": 16, "crc32": []}),
    ],
)
def test_a_manifest_that_was_made_by_hand_leads_nowhere(
    tmp_path: Path, name: str, facts: object
) -> None:
    (tmp_path / "a").write_bytes(b"data")
    os.mkfifo(tmp_path / "fifo")
    manifest(tmp_path, {name: facts})
    with pytest.raises((MemberFileError, OSError)):
        directory_contents.examine_trainer_checkpoint(tmp_path)


# Indexes, logs, rosters.


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"weight_map": {}},
        {"weight_map": {"a": "../x"}},
        {"weight_map": {"a": 1}},
        {"weight_map": {"a": "none"}},
    ],
)
def test_an_index_that_names_no_files_beside_it_is_refused(
    tmp_path: Path, document: object
) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps(document))
    with pytest.raises(MemberFileError):
        safetensors_files.examine_index(index)


def test_a_shard_that_is_a_link_is_named_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(b"x")
    (tmp_path / "a.safetensors").symlink_to("blob")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "a.safetensors"}}))
    with pytest.raises(MemberFileError, match="it is a link, and links are not followed") as caught:
        safetensors_files.examine_index(index)
    assert caught.value.name == "a.safetensors"


def test_a_shard_with_other_tensors_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "hf"
    shutil.copytree(FILES / "hf/checkpoint-5", folder)
    shutil.copy(
        folder / "model-00001-of-00002.safetensors", folder / "model-00002-of-00002.safetensors"
    )
    with pytest.raises(MemberFileError, match="not those"):
        safetensors_files.examine_index(folder / "model.safetensors.index.json")


@pytest.mark.parametrize("length", [0, 1, 16 * 1024 - 1, 16 * 1024, 100_000])
def test_the_checksum_of_events_is_the_agents_for_long_records_too(length: int) -> None:
    data = (bytes(range(251)) * (length // 251 + 1))[:length]
    assert logged_files.compute_crc32c(data) == event_records.crc32c(data)


@pytest.mark.parametrize("line", [b'{"a": 1', b"1", b"\xff", b"[" * 100_000])
def test_a_line_that_is_no_object_is_refused(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"a": 1}\n\n' + line)
    with OpenFileSection(path) as whole, pytest.raises(FileRefused, match="line 3"):
        logged_files.examine_lines(whole)


@pytest.mark.parametrize("path", ["../a", "/a", ""])
def test_a_manifest_beside_the_files_names_only_what_is_below_it(tmp_path: Path, path: str) -> None:
    file = tmp_path / ".rgt-manifest.jsonl"
    file.write_text(json.dumps({"path": path, "sha256": "0"}) + '\n{"end": true}\n')
    with pytest.raises(ValueError, match="not in its directory"):
        verified_record.expected_by_manifest(file, "")


@pytest.mark.parametrize(
    ("files", "groups"),
    [
        (["ckpt.pt"], {"ckpt.pt"}),
        (["epoch_1.pt", "epoch_2.pt"], {"epoch_1.pt", "epoch_2.pt"}),
        (["a/model.safetensors", "a/optimizer.pt", "a/config.json"], {"a"}),
        (["a/pytorch_model.bin", "a/training_args.bin"], {"a"}),
        (["a/x.safetensors", "b/x.safetensors"], {"a/x.safetensors", "b/x.safetensors"}),
        (["s/state.json", "s/model.safetensors"], {"s"}),
        (["s/.metadata", "s/__0_0.distcp"], {"s"}),
        (["s/__0_0.distcp"], {"s"}),
        (["checkpoints/.tmp-step-1/model.safetensors"], set()),
        (["train.bin", "config.json", "a.txt", "m.jsonl"], set()),
        (["vae.pth.tar"], {"vae.pth.tar"}),
        (
            ["c/model_5.pt", "c/optim_5_rank0.pt", "c/model_6.pt", "c/optim_6_rank0.pt"],
            {"c/model_5.pt", "c/model_6.pt"},
        ),
        (
            ["global_step_5/actor/model_rank_0.pt", "global_step_5/actor/optim_rank_0.pt"],
            {"global_step_5"},
        ),
        (
            [
                "iter_0000500/mp_rank_00/model_optim_rng.pt",
                "iter_0000500/mp_rank_01/model_optim_rng.pt",
            ],
            {"iter_0000500"},
        ),
        (["checkpoint-7/unet/model.safetensors", "checkpoint-7/optimizer.bin"], {"checkpoint-7"}),
    ],
)
def test_which_files_make_a_checkpoint(files: list[str], groups: set[str]) -> None:
    assert {group.path for group in plan_examination(dict.fromkeys(files, "")).groups} == groups


def test_a_file_of_weights_whose_name_says_little_is_known_by_its_bytes() -> None:
    assert [
        group.path for group in plan_examination({"random.pkl": "zip", "data.bin": ""}).groups
    ] == ["random.pkl"]
