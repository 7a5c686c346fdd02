"""A dump of torch's flight recorder that somebody else has made: nothing runs, and what it costs has an end.

The dumps lie where anybody who trains on the box may put them, `/tmp` among others.
"""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rgt_box import confined_child
from rgt_box.sampling import flight_dumps
from rgt_box.sampling.flight_dumps import FlightDumps, load_dump, reduce_dump

from rgt_tui.handbook.collectives import compare_dumps, dump_of

FLIGHT = Path(__file__).parents[1] / "fixtures" / "flight"
ENTRY = {
    "collective_seq_id": 1,
    "profiling_name": "gloo:all_reduce",
    "process_group": ("0", "x"),
    "state": "scheduled",
}
GOOD = {"version": "2.10", "entries": [ENTRY]}


@pytest.fixture
def dumps() -> Iterator[FlightDumps]:
    made = FlightDumps()
    made._child.patience = 60.0
    yield made
    made._child.close()


def written(folder: Path, data: bytes) -> str:
    path = folder / "fr_0"
    path.write_bytes(data)
    return str(path)


def test_a_good_one_is_read_once_and_again_when_it_has_changed(
    tmp_path: Path, dumps: FlightDumps
) -> None:
    path = written(tmp_path, pickle.dumps(GOOD, 2))
    first = dumps.read_dump(path)
    assert first is not None
    assert [entry["profiling_name"] for entry in first["entries"]] == ["gloo:all_reduce"]
    dumps._child.close()
    again = dumps.read_dump(path)
    assert again is not None
    assert again["entries"] == first["entries"]
    assert dumps._child._process is None  # nobody was asked
    written(tmp_path, pickle.dumps(GOOD | {"entries": []}, 2))
    changed = dumps.read_dump(path)
    assert changed is not None
    assert changed["entries"] == []
    dumps.keep_only([])
    assert dumps._told == {}


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def hostile(folder: Path) -> dict[str, bytes]:
    run = f"cos\nsystem\n(S'touch {folder}/ran'\ntR.".encode()
    old = pickle.dumps({**GOOD, "x": Evil(folder / "ran")}, 2)
    deep = b"\x80\x04" + b"]" * 3_000_000 + b"a" * 2_999_999 + b"."
    # Tuples of twice the tuple before, as the key of a dictionary: to hash it takes 2**60 steps.
    long = b"\x80\x04})" + b"2\x86" * 60 + b"K\x01s."
    return {
        "names-a-function": old,
        "protocol-0": run,
        "instance": b"\x80\x02(cos\nsystem\nX\x04\x00\x00\x00truetR.",
        "by-number": b"\x80\x02\x82\x01.",
        "no-function-on-the-stack": b"\x80\x02X\x02\x00\x00\x00os)R.",
        "persistent": b"\x80\x02X\x01\x00\x00\x00xQ.",
        "memory-by-memo": b"\x80\x02]r" + struct.pack("<I", 0xFFFFFFF0) + b".",
        "memory-by-length": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.",
        "memory-by-doubling": b"\x80\x04]" + b"(hhh".replace(b"h", b"]") * 6_000_000,
        "deep": deep,
        "time": long,
        "json-deep": b'{"entries":' + b"[" * 200_000,
        "cut-short": pickle.dumps(GOOD, 2)[:-20],
        "no-dump": pickle.dumps({"entries": 3, "version": "2"}, 2),
        "empty": b"",
    }


@pytest.mark.parametrize("name", list(hostile(Path())))
def test_a_hostile_one_runs_nothing_and_ends(
    name: str, tmp_path: Path, dumps: FlightDumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_child, "SECONDS", 1)
    path = written(tmp_path, hostile(tmp_path)[name])
    assert dumps.read_dump(path) is None
    assert not (tmp_path / "ran").exists()
    asked: list[Any] = []
    monkeypatch.setattr(dumps._child, "request_answer", lambda request: asked.append(request))
    assert dumps.read_dump(path) is None
    assert asked == []  # what was refused, or ended the child, is not tried again


def test_after_one_that_ended_the_child_the_next_is_read(
    tmp_path: Path, dumps: FlightDumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_child, "SECONDS", 1)
    assert dumps.read_dump(written(tmp_path, hostile(tmp_path)["time"])) is None
    monkeypatch.setattr(confined_child, "SECONDS", 60)  # a good one on a busy machine
    assert dumps.read_dump(written(tmp_path, pickle.dumps(GOOD, 2))) is not None


def test_only_regular_files_of_this_user_of_a_sound_size_are_opened(
    tmp_path: Path, dumps: FlightDumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = written(tmp_path, pickle.dumps(GOOD, 2))
    fifo, folder, large = tmp_path / "fifo", tmp_path / "dir", tmp_path / "large"
    os.mkfifo(fifo)
    folder.mkdir()
    with large.open("wb") as file:
        file.write(b"\x80\x02")
        file.truncate(flight_dumps.LARGEST + 1)
    for path in (fifo, folder, large, tmp_path / "missing", "/dev/zero", "x\0y"):
        assert dumps.read_dump(str(path)) is None
    assert dumps.read_dump(good) is not None
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)
    assert dumps.read_dump(good) is None


def test_what_is_told_of_a_large_one_is_little(tmp_path: Path) -> None:
    entries = [
        ENTRY
        | {"collective_seq_id": at, "process_group": (f"g{at % 300}", "x" * 9000), "input_sizes": [[at] * 500] * 50,
           "profiling_name": "n" * 9000, "frames": [{"filename": "f" * 9000, "line": 1}] * 40, "other": "x" * 999}
        for at in range(4000)
    ]  # fmt: skip
    config = {str(at): {"ranks": "[" + "1, " * 9000 + "]"} for at in range(300)}
    told = reduce_dump({"version": "v" * 9999, "entries": entries, "pg_config": config})
    assert len(json.dumps(told)) < 40_000


@pytest.mark.parametrize("kind", ["healthy", "lacks", "mismatch", "sizes"])
def test_what_is_cut_names_the_same_as_the_whole(kind: str) -> None:
    paths = sorted(path for path in FLIGHT.glob(f"{kind}_rank_*") if not path.suffix)
    whole, short = [], []
    for path in paths:
        value = load_dump(path.read_bytes())
        sent = json.loads(json.dumps(reduce_dump(value)))
        assert len(json.dumps(sent)) < 2000
        whole.append(dump_of(value, int(path.name[-1])))
        short.append(dump_of(sent, int(path.name[-1])))
    assert compare_dumps(short) == compare_dumps(whole)
    assert (compare_dumps(whole) == []) is (kind == "healthy")


def message(number: int, **over: Any) -> dict[str, Any]:
    return {
        "collective_seq_id": 0, "p2p_seq_id": number, "profiling_name": "nccl:send 0->1", "is_p2p": True,
        "process_group": ("0", "pp"), "input_sizes": [[4]], "input_dtypes": ["Float"], "state": "scheduled",
    } | over  # fmt: skip


def test_of_messages_the_last_are_told_where_one_is_open_and_of_many_groups_those_that_wait() -> (
    None
):
    done = {"state": "completed"}
    several = [message(at, **done) for at in range(40)]
    assert (reduce_dump(GOOD | {"entries": several}) or {})["entries"] == []
    told = (reduce_dump(GOOD | {"entries": [*several, message(40)]}) or {})["entries"]
    assert [entry["p2p_seq_id"] for entry in told] == list(range(25, 41))
    groups = [ENTRY | {"process_group": (str(at), "x"), **done} for at in range(40)]
    groups[3] = ENTRY | {"process_group": ("3", "x")}
    found = (reduce_dump(GOOD | {"entries": groups}) or {})["entries"]
    assert [entry["process_group"][0] for entry in found] == [
        "3",
        "39",
        "38",
        "37",
        "36",
        "35",
        "34",
        "33",
    ]


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"TORCH_FR_DUMP_TEMP_FILE": "/a/x_", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/b/y_"}, ["/a/x_3", "/b/y_3"]),
        ({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/b/y_", "HOME": "/h"}, ["/b/y_3"]),
        ({"HOME": "/h"}, ["/h/.cache/torch/comm_lib_trace_rank_3", "/tmp/nccl_trace_rank_3"]),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/c"}, ["/c/torch/comm_lib_trace_rank_3", "/tmp/nccl_trace_rank_3"]),
        ({}, ["/tmp/.cache/torch/comm_lib_trace_rank_3", "/tmp/nccl_trace_rank_3"]),
    ],
)  # fmt: skip
def test_where_dumps_are(env: dict[str, str], expected: list[str]) -> None:
    assert flight_dumps.dump_paths(env, 3) == expected
