"""``rgt triage`` and ``rgt handbook`` as a person calls them: files, pipes, readings, drafts, exit statuses."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.cli import main
from rgt_tui.handbook import file_triage

FULL = "step 1\nOSError: [Errno 28] No space left on device: 'x'\n"
KILLED = "step 1 loss 2.0\n./run.sh: line 9:  4242 Killed                  python train.py\n"


def rgt(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    try:
        status = main([str(word) for word in words])
    except SystemExit as end:
        status = int(end.code or 0)
    told = capsys.readouterr()
    return status, told.out, told.err


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config"


def samples(path: Path, *kills: int, used: int = 10, **more: Any) -> Path:
    lines = [
        {"t": "sample", "mem": {"oom_kills": count, "used": used, "limit": 100}, **more}
        for count in kills
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in ({"t": "hello"}, *lines)))
    return path


def test_a_file_each_is_a_line_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.log").write_text(FULL)
    (tmp_path / "b.log").write_text("epoch 1 done\nQUEUE DONE\n")
    (tmp_path / "c.log.gz").write_bytes(gzip.compress(FULL.encode()))
    names = [tmp_path / name for name in ("a.log", "b.log", "c.log.gz")]
    status, out, _ = rgt(capsys, "triage", *names, "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert (status, [one["file"] for one in found]) == (1, [str(name) for name in names])
    assert [[hit["gotcha"] for hit in one["findings"]] for one in found] == [["U7"], [], ["U7"]]
    first = found[0]["findings"][0]
    assert (first["line_no"], first["action"], first["severity"]) == (2, "free-space", "fatal")
    assert first["line"].startswith("OSError") and 0 < first["confidence"] < 1 and first["fix"]


def test_the_exit_status_says_what_was_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "well.log").write_text("epoch 1 done\n")
    (tmp_path / "ill.log").write_text(FULL)
    os.mkfifo(tmp_path / "pipe.log")
    assert rgt(capsys, "triage", tmp_path / "well.log")[:2] == (
        0,
        f"{tmp_path}/well.log: no known failure in it\n",
    )
    status, out, err = rgt(
        capsys, "triage", tmp_path / "gone.log", tmp_path / "pipe.log", tmp_path / "ill.log"
    )
    assert (
        status == 2
        and "gone.log: cannot be read" in err
        and "pipe.log: cannot be read: it is a pipe, a socket" in err
    )
    assert "ill.log:2: U7 " in out and "\n  never  " in out and "\n         $ df" in out


def test_a_log_that_only_its_figures_accuse_is_no_healthy_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flat.log").write_text("".join(f"step {n} loss 2.3026\n" for n in range(12)))
    status, out, _ = rgt(capsys, "triage", tmp_path / "flat.log")
    assert (status, out.splitlines()[0].partition(" ")[2]) == (
        1,
        "O2 The weights never change (silent-wrong, 50% sure)",
    )


def test_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").write_text(FULL)
    with (tmp_path / "in").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert json.loads(rgt(capsys, "triage", "-", "--json")[1])["findings"][0]["line_no"] == 2


@pytest.mark.parametrize(
    ("written", "names"),
    [
        (gzip.compress(FULL.encode()), ["U7"]),
        (bz2.compress(FULL.encode()), ["U7"]),
        (lzma.compress(("step 1 seen\n" * 99 + FULL).encode()), ["U7"]),
        (FULL.encode("utf-16"), ["U7"]),
        (b"\xfe\xff" + FULL.encode("utf-16-be")[:-1], ["U7"]),
        (codecs.BOM_UTF8 + FULL.partition("\n")[2].encode(), ["U7"]),
        (b"", []),
    ],
    ids=["gzip", "bzip2", "xz", "powershell", "cut-in-a-letter", "marked", "empty"],
)
def test_a_log_is_read_however_it_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: bytes, names: list[str]
) -> None:
    (tmp_path / "train.log.1").write_bytes(written)
    status, out, _ = rgt(capsys, "triage", tmp_path / "train.log.1", "--json")
    found = json.loads(out)["findings"]
    assert (status, [one["gotcha"] for one in found]) == (int(bool(names)), names)
    assert all(one["line"].startswith("OSError: ") for one in found)


@pytest.mark.parametrize(
    ("head", "packer"), [(b"\x28\xb5\x2f\xfd", "zstd"), (b"PK\x03\x04", "zip")], ids=["zstd", "zip"]
)
def test_what_cannot_be_unpacked_is_not_called_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], head: bytes, packer: str
) -> None:
    (tmp_path / "train.log").write_bytes(head + b"\0" * 90)
    status, out, err = rgt(capsys, "triage", tmp_path / "train.log")
    assert (status, out) == (2, "") and f"packed with {packer}" in err


@pytest.mark.parametrize(
    "pack", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"]
)
@pytest.mark.parametrize("harm", ["changed", "cut"])
def test_a_packed_log_that_is_damaged_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pack: Callable[[bytes], bytes], harm: str
) -> None:
    whole = pack("".join(f"step {n} loss {n * n % 9973}\n" for n in range(4000)).encode())
    path = tmp_path / "train.log"
    middle = len(whole) // 2
    path.write_bytes(
        whole[:middle] + (b"\xff" * 90 + whole[middle + 90 :] if harm == "changed" else b"")
    )
    for words in (("triage", path), ("triage", path, "--samples", path)):
        status, out, err = rgt(capsys, *words)
        assert (status, out) == (2, "") and err.startswith(f"rgt: {path}: cannot be read: "), err


def test_a_python_that_cannot_unpack_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it was built without the headers of a packer, as pyenv does with a warning."""
    path = tmp_path / "train.log.xz"
    path.write_bytes(lzma.compress(FULL.encode()))
    monkeypatch.setitem(sys.modules, "lzma", None)
    status, out, err = rgt(capsys, "triage", path)
    assert (status, out) == (2, "") and "this Python has no lzma to unpack it" in err


def test_what_a_shell_puts_there_for_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.write(writer, FULL.encode())
    os.close(writer)
    status, out, _ = rgt(capsys, "triage", f"/dev/fd/{reader}", "--json")
    os.close(reader)
    assert (status, json.loads(out)["findings"][0]["gotcha"]) == (1, "U7")


class Slowly(io.RawIOBase):
    """A pipe into which somebody writes a byte at a time."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def readable(self) -> bool:
        return True

    def readinto(self, room: memoryview) -> int:  # type: ignore[override]
        byte, self.data = self.data[:1], self.data[1:]
        room[: len(byte)] = byte
        return len(byte)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (gzip.compress(FULL.encode()), 1),
        (lzma.compress(FULL.encode()), 1),
        (FULL.encode(), 1),
        (FULL.encode("utf-16"), 1),
        (b"\x28\xb5\x2f\xfd" + b"\0" * 90, 2),
        (b"ok", 0),
    ],
    ids=["gzip", "xz", "plain", "powershell", "zstd", "short"],
)
def test_a_pipe_that_tells_its_first_bytes_one_by_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, data: bytes, status: int
) -> None:
    monkeypatch.setattr(file_triage, "open_named", lambda path: io.BufferedReader(Slowly(data)))
    assert rgt(capsys, "triage", "train.log")[0] == status


def test_what_a_shell_of_macos_puts_there_for_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There `/dev/fd/63` is the pipe itself, and no link to something without a name."""
    reader, writer = os.pipe()
    os.write(writer, FULL.encode())
    os.close(writer)
    monkeypatch.setattr(Path, "resolve", lambda path, strict=False: path)
    status, out, _ = rgt(capsys, "triage", f"/dev/fd/{reader}", "--json")
    os.close(reader)
    assert (status, json.loads(out)["findings"][0]["gotcha"]) == (1, "U7")


def test_a_kill_is_the_kernel_s_only_if_its_counter_moved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "killed.log").write_text(KILLED)

    def named(*readings: Any, **more: Any) -> list[str]:
        extra: list[str | Path] = (
            ["--samples", samples(tmp_path / "s.jsonl", *readings, **more)] if readings else []
        )
        out = rgt(capsys, "triage", tmp_path / "killed.log", "--json", *extra)[1]
        return [f"{one['gotcha']} {one['line']}" for one in json.loads(out)["findings"]]

    assert named()[0].startswith("U9 ")
    assert named(3, 3)[0].startswith("U3 "), (
        "no kill was counted, and memory was far from its limit"
    )
    assert named(3, 3, used=95)[0].startswith("U9 ")
    assert "counter rose by 2" in named(3, 5)[0] and named(3, 5)[0].startswith("U9 ")


REFUSED = "curl: (7) Failed to connect to 10.0.0.7 port 80 after 3 ms: Couldn't connect to server\n"
NO_SMI = "setup.sh: line 4: nvidia-smi: command not found\n"
RAISED = """Traceback (most recent call last):
  File "/exp/train.py", line 3, in <module>
    main()
ConnectionRefusedError: [Errno 111] Connection refused
"""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (REFUSED, ["NET1"]),
        (f"{REFUSED}download ended, rc=0\n", []),
        (f"{REFUSED}step 1 loss 2.0\n", []),
        (f"{REFUSED}step 1 lossless\nrc=01\nrc=7\n", ["NET1"]),
        (f"step 1 loss 2.0\nrc=0\n{REFUSED}", ["NET1"]),
        (f"{REFUSED}rc=0\n{'x' * 80}\n{REFUSED.replace('(7)', '(28)')}", ["NET1"]),
        (f"{NO_SMI}epoch 1: train_loss=2.0\n", []),
        (f"{NO_SMI}[1/3][2/8] Loss_D: 1.38 Loss_G: 0.71\n", []),
        (f"step 1 loss 2.0\n{NO_SMI}", ["CMD1"]),
        (f"{RAISED}step 9 loss 2.0\n", ["NET1"]),
        (f"[rank1]: {RAISED}step 9 loss 2.0\n".replace("\nConn", "\n[rank1]: Conn"), ["NET1"]),
        (f"{FULL}step 9 loss 2.0\nrc=0\n", ["U7"]),
        (REFUSED + "step 1 seen\n" * 60_000 + "step 2 loss 1.0\n" + "step 2 seen\n" * 9, []),
    ],
    ids=[
        "ended", "went-well", "stepped-on", "no-step", "before-it", "again", "no-program",
        "two-losses", "no-program-after", "raised", "raised-by-a-rank", "no-try", "much-later",
    ],
)  # fmt: skip
def test_what_was_tried_again_with_success_is_no_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, named: list[str]
) -> None:
    (tmp_path / "x.log").write_text(text)
    out = rgt(capsys, "triage", tmp_path / "x.log", "--json")[1]
    assert [one["gotcha"] for one in json.loads(out)["findings"]] == named


def test_readings_say_what_no_line_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.log").write_text("step 1 loss 2.0\n")
    (tmp_path / "full.log").write_text(FULL)
    disk = {
        "mount": "/data",
        "inodes_used": 99,
        "inodes_total": 100,
        "bytes_used": 1,
        "bytes_total": 100,
    }
    readings = samples(tmp_path / "s.jsonl", 0, 1, disks=[disk])
    out = rgt(
        capsys,
        "triage",
        tmp_path / "cut.log",
        tmp_path / "full.log",
        "--json",
        "--samples",
        readings,
    )[1]
    cut, full = (json.loads(line)["findings"] for line in out.splitlines())
    assert [one["gotcha"] for one in cut] == ["U9"] and cut[0]["line_no"] == 0
    assert "[inodes of /data 99% used]" in next(
        one["line"] for one in full if one["gotcha"] == "U7"
    )
    status, _, err = rgt(capsys, "triage", tmp_path / "cut.log", "--samples", tmp_path / "cut.log")
    assert status == 2 and "cut.log: holds no sample" in err


def recording(path: Path, kills: dict[str, int]) -> Path:
    """Write what `rgt record` writes: each box's counter stands at 3, and then at what is said."""
    lines: list[Any] = [
        {
            "recording": 1,
            "rgt": "0.1.0",
            "started": 1.0,
            "boxes": [{"name": name} for name in kills],
        }
    ]
    for first in (True, False):
        for name, count in kills.items():
            mem = {"oom_kills": 3 if first else count, "used": 10, "limit": 100}
            lines.append(
                {"box": name, "at": 2.0, "line": {"t": "sample", "boot": "b", "seq": 1, "mem": mem}}
            )
            lines.append(
                {"box": name, "at": 2.0, "line": {"t": "log", "path": "a.log", "lines": ["x"]}}
            )
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("name", ["lab.jsonl", "lab.jsonl.gz"])
def test_the_readings_of_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "killed.log").write_text(KILLED)

    def named(kills: dict[str, int], *words: str) -> list[str]:
        readings = recording(tmp_path / name, kills)
        status, out, err = rgt(
            capsys, "triage", tmp_path / "killed.log", "--json", "--samples", readings, *words
        )
        return (
            [one["gotcha"] for one in json.loads(out)["findings"]]
            if status == 1
            else [str(status), err]
        )

    assert named({"lab": 3})[0] == "U3" and named({"lab": 4})[0] == "U9"
    status, err = named({"lab": 3, "other": 9})
    assert status == "2" and "readings of lab and other: --box NAME says whose" in err
    assert named({"lab": 3, "other": 9}, "--box", "lab")[0] == "U3"
    assert named({"lab": 3, "other": 9}, "--box", "other")[0] == "U9"
    status, err = named({"lab": 3}, "--box", "gone")
    assert status == "2" and "holds no sample of gone" in err


@pytest.mark.parametrize(
    "odd",
    [
        "[" * 100_000,
        '{"t":"sample","mem":{"oom_kills":NaN,"used":1e999,"limit":"x"},"disks":7,"boot":[1]}',
        '{"t":"sample","mem":{"oom_kills":true},"disks":["a",null,{"inodes_used":1}],"cpu":[],"gpus":7}',
        '{"t":"sample","mem":{},"disks":"abc","cpu":{"usable":"8"},"gpus":[1,{"util":"x"}]}',
        '{"line":7,"box":[]}',
    ],
    ids=["deep", "no-numbers", "no-objects", "text", "no-frame"],
)
def test_readings_that_are_none_end_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], odd: str
) -> None:
    readings = samples(tmp_path / "s.jsonl", 3, 3)
    readings.write_text(f"{odd}\n{readings.read_text()}{odd}\n")
    for text in (KILLED, FULL, "num_workers=64\n" + KILLED):
        (tmp_path / "x.log").write_text(text)
        assert rgt(capsys, "triage", tmp_path / "x.log", "--samples", readings)[0] == 1


def test_a_log_that_stops_where_the_machine_was_restarted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cut.log").write_text("step 1 loss 2.0\n")
    (tmp_path / "full.log").write_text(FULL)

    def named(log: str, *readings: tuple[str, int]) -> list[tuple[str, float, str]]:
        lines = [
            json.dumps({"t": "sample", "boot": boot, "seq": 7, "mem": {"oom_kills": kills}})
            for boot, kills in readings
        ]
        (tmp_path / "s.jsonl").write_text("\n".join(lines) + "\n")
        out = rgt(capsys, "triage", tmp_path / log, "--json", "--samples", tmp_path / "s.jsonl")[1]
        return [
            (one["gotcha"], one["confidence"], one["line"]) for one in json.loads(out)["findings"]
        ]

    (one,) = named("cut.log", ("a1", 3), ("a1", 3), ("b2", 0))
    assert one == (
        "BOOT1", 0.5,
        "the boot id changed from a1 to b2, first read as sample 7 of it; the log names no other cause",
    )  # fmt: skip
    assert named("cut.log", ("a1", 3), ("a1", 3)) == []
    assert [name for name, *_ in named("cut.log", ("a1", 3), ("a1", 4), ("b2", 0))] == ["U9"]
    assert "BOOT1" not in [name for name, *_ in named("full.log", ("a1", 0), ("b2", 0))]


def test_what_a_log_says_cannot_move_the_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.log").write_bytes(
        b"\x1b]0;owned\x07OSError: [Errno 28] No space left on device \x1b[2J\x9b2J\n"
    )
    status, out, _ = rgt(capsys, "triage", tmp_path / "x.log")
    assert status == 1 and "\x1b" not in out and "\x9b" not in out


def test_a_page_of_your_own_can_be_used_whatever_the_umask(
    own_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = os.umask(0)
    try:
        for name in ("LAB1", "LAB2"):
            status, _, said = rgt(capsys, "handbook", "new", name)
            assert status == 0, said
    finally:
        os.umask(before)
    assert rgt(capsys, "handbook", "LAB1")[0] == 0
    made = (own_config / "rgt", *(own_config / "rgt").rglob("*"))
    assert [path for path in made if path.stat().st_mode & 0o022] == []


def test_pages_are_found_shown_and_drafted(
    own_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rgt(capsys, "handbook", "u7")[1].startswith("# U7: ")
    assert rgt(capsys, "handbook", "OSError: [Errno 98] Address already in use")[1].startswith(
        "# D4: "
    )
    assert len(rgt(capsys, "handbook")[1].splitlines()) >= 310
    assert json.loads(rgt(capsys, "handbook", "D4", "--json")[1])["severity"] == "fatal"
    assert rgt(capsys, "handbook", "xyzzy")[0] == 1
    status, out, _ = rgt(capsys, "handbook", "new", "LAB1")
    path = own_config / "rgt" / "handbook" / "LAB1.toml"
    assert (status, out) == (0, f"{path}: written; edit it, then: rgt handbook LAB1\n")
    assert "your own page" in rgt(capsys, "handbook", "LAB1")[1]
    assert rgt(capsys, "handbook", "MyError: shard 7 is missing")[1].startswith("# LAB1: ")
    text = path.read_text()
    for words in (("LAB1",), ("U7",)):
        assert rgt(capsys, "handbook", "new", *words)[0] == 1
    for wrong in ([], ["../x"], ["lab"], ["A", "B"]):
        assert rgt(capsys, "handbook", "new", *wrong)[0] == 2
    assert path.read_text() == text
    path.write_text(text.replace('severity = "fatal"', 'severity = "bad"'))
    for command in (("handbook", "U7"), ("triage", path)):
        status, _, err = rgt(capsys, *command)
        assert status == 2 and "LAB1.toml" in err and "'bad'" in err


def test_a_page_names_its_alerts_and_checks_and_the_traps_of_platforms_are_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = rgt(capsys, "handbook", "U7")[1]
    assert (
        "**Named by** alerts `holding`, `bytes`, `inodes`, `filling`; checks 0.2, 0.5, 4.3." in told
    )
    assert "**Named by**" not in rgt(capsys, "handbook", "M19")[1]
    status, out, _ = rgt(capsys, "handbook", "wandb.init")
    assert status == 0 and "\nAD1      autodl: wandb.init times out" in f"\n{out}"
    status, out, _ = rgt(capsys, "handbook", "ad4")
    assert (
        status == 0
        and out.startswith("# AD4: a trap of AutoDL\n")
        and "**Fix.** watch df -i" in out
    )
    found = [
        json.loads(line) for line in rgt(capsys, "handbook", "wandb.init", "--json")[1].splitlines()
    ]
    assert {"platform": "autodl", "id": "AD1"}.items() <= next(
        one for one in found if "platform" in one
    ).items()


def test_what_a_log_advises_stands_behind_what_it_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = "***** Running training *****\n"
    path = tmp_path / "hf.log"
    path.write_text(
        begin
        + "Saving model checkpoint to out/checkpoint-500\n"
        + KILLED
        + begin
        + "num_workers=64\n"
    )
    status, out, _ = rgt(capsys, "triage", path, "--json")
    told = json.loads(out)
    assert (
        status == 1 and told["findings"] and [one["about"] for one in told["advice"]] == ["resume"]
    )
    (one,) = told["advice"]
    assert (one["page"], one["seconds"]) == ("C9", None) and "resume_from_checkpoint=True" in one[
        "text"
    ]
    readings = samples(tmp_path / "s.jsonl", 0, 0, cpu={"usable": 8})
    out = rgt(capsys, "triage", path, "--samples", readings)[1]
    assert out.index("proof") < out.index(f"{path}: advice: ") and "(C9)\n" in out
    assert "64 loader workers share 8 cores: 7 are as fast" in out
    (tmp_path / "well.log").write_text(
        "lightning==2.6.6\nRestoring states from the checkpoint path at a.ckpt\n"
    )
    status, out, _ = rgt(capsys, "triage", tmp_path / "well.log")
    assert (
        status == 0 and "no known failure in it\n" in out and "order of epoch 0 again (C13)" in out
    )


def test_a_profile_that_is_damaged_hides_no_page(
    own_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = own_config / "rgt" / "profiles" / "mine.toml"
    path.parent.mkdir(parents=True)
    path.write_text('id = "mine"\n')
    status, out, err = rgt(capsys, "handbook", "no", "space")
    assert status == 0 and "U7" in out and "mine.toml: name, kind" in err
    status, out, err = rgt(capsys, "handbook", "xyzzy")
    assert (status, out) == (2, "") and "mine.toml: name, kind" in err, (
        "a trap of it may be about that"
    )


@pytest.mark.parametrize(
    ("line", "page"),
    [
        ("You are using a CUDA device ('NVIDIA H200') that has Tensor Cores. To properly utilize them, you", "P2"),
        ("[rank0]:[W402 11:57:52.29 reducer.cpp:1400] Warning: find_unused_parameters=True was specified in DDP "
        "constructor, but did not find any unused parameters in the forward pass.", "T23"),
    ],
)  # fmt: skip
def test_a_suggestion_of_a_library_is_advice_and_no_finding(
    line: str, page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "train.log"
    path.write_text(f"Starting training\n{line}\n")
    status, out, _ = rgt(capsys, "triage", path, "--json")
    report = json.loads(out)
    assert (status, report["findings"]) == (0, [])
    assert [(one["about"], one["page"]) for one in report["advice"]] == [("speed", page)]
    path.write_text(
        f"{line}\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n"
    )
    status, out, _ = rgt(capsys, "triage", path, "--json")
    assert (status, [one["gotcha"] for one in json.loads(out)["findings"]]) == (1, ["U10"])
