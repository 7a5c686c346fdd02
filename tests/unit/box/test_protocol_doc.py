"""docs/protocol.md names every frame and field, so that another program could speak the protocol."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from rgt_box import PROTO
from rgt_box.streams import watch

from rgt_tui.model import protocol

DOC = Path(__file__).parents[3] / "docs" / "protocol.md"
SECTIONS = {
    match.group(1): match.group(2)
    for match in re.finditer(
        r"^### `(\w+)`.*?\n(.*?)(?=^##|\Z)", DOC.read_text(), re.MULTILINE | re.DOTALL
    )
}
INNER = {
    "sample": (
        protocol.GpuReading, protocol.MemoryReading, protocol.CpuReading, protocol.DiskReading,
        protocol.InodeHog, protocol.TrainingProcess, protocol.DetachedSessions,
        protocol.RankReading, protocol.GpuProcess, protocol.GpuHolder, protocol.MigSlice, protocol.SlurmJob,
        protocol.WorkerSums,
    ),
    "queue": (protocol.QueueCell,),
    "ckpt": (protocol.Checkpoint,),
}  # fmt: skip


def names(struct: type[msgspec.Struct]) -> set[str]:
    return {field.name for field in msgspec.structs.fields(struct)}


@pytest.mark.parametrize("frame", get_args(protocol.Frame), ids=lambda frame: frame.__name__)
def test_every_field_of_a_frame_is_described(frame: type[msgspec.Struct]) -> None:
    tag = str(frame.__struct_config__.tag)
    described = set(re.findall(r"`(\w+)`", SECTIONS[tag]))
    for struct in (frame, *INNER.get(tag, ())):
        assert names(struct) <= described, struct.__name__


def test_no_frame_is_described_that_does_not_exist() -> None:
    assert set(SECTIONS) == {str(frame.__struct_config__.tag) for frame in get_args(protocol.Frame)}


def test_every_key_of_the_configuration_is_described_and_understood() -> None:
    head = DOC.read_text().split("## From the agent")[0]
    keys = set(re.findall(r"^\| `(\w+)` \|", head, re.MULTILINE))
    assert keys == names(protocol.WatchConfig)
    default = watch.parse_config(b"{}")
    assert set(default) | {"proto"} == keys
    for field in msgspec.structs.fields(protocol.WatchConfig):
        if field.name not in {"proto"} and field.default is not msgspec.NODEFAULT:
            expected = list(field.default) if isinstance(field.default, tuple) else field.default
            assert default[field.name] == expected


def test_what_the_client_writes_is_understood() -> None:
    cursor = protocol.FileCursor(inode=5, offset=7)
    written = protocol.WatchConfig(
        interval=2.5,
        mounts=("/w",),
        jobs=("/j",),
        samples_after=protocol.SampleCursor(boot="b", seq=3),
        log_cursors={"/l": cursor},
        scalar_cursors={"/s": cursor},
    )
    found = watch.parse_config(msgspec.json.encode(written))
    assert (found["interval"], found["mounts"], found["samples_after"]) == (
        2.5,
        ["/w"],
        {"boot": "b", "seq": 3},
    )
    assert (found["log_cursors"], found["scalar_cursors"]) == ({"/l": (5, 7)}, {"/s": (5, 7)})
    control = msgspec.json.encode(protocol.ControlLine(op="ping", id=4))
    assert watch.parse_control(control) == {"op": "ping", "id": 4}


def test_both_sides_speak_the_same_version() -> None:
    assert PROTO == protocol.PROTOCOL_VERSION
