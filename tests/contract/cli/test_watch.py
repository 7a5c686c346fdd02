"""`rgt watch` against a real sshd: what changes is printed, a pause in between, Ctrl-C is a good end."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from itertools import pairwise

import msgspec

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import PATIENCE, Rgt
from tests.free_ports import free_port

replace = msgspec.structs.replace


def read_until(process: subprocess.Popen[bytes], wanted: Callable[[bytes], bool]) -> list[bytes]:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if wanted(line):
            return seen
    raise AssertionError(f"it never came: {seen}")


def end(process: subprocess.Popen[bytes], number: int) -> tuple[int, bytes]:
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    return process.returncode, said


def test_json_lines_come_with_every_change_and_not_more_than_one_a_second(
    rgt: Rgt, lab: BoxSpec
) -> None:
    rgt.describe([replace(lab, interval=0.1), replace(lab, name="dead", port=free_port())])
    process = rgt.start("watch", "--json")
    seen: list[tuple[str, str]] = []

    def all_of_it(text: bytes) -> bool:
        line = msgspec.json.decode(text)
        seen.append((line["box"], line["state"]))
        return seen.count(("lab", "idle")) >= 3 and ("dead", "unreachable") in seen

    lines = [msgspec.json.decode(line) for line in read_until(process, all_of_it)]
    assert end(process, signal.SIGINT) == (0, b"")
    times = [line["at"] for line in lines if line["box"] == "lab"]
    assert all(later - earlier >= 0.99 for earlier, later in pairwise(times))


def test_text_tells_events_and_new_words(rgt: Rgt, lab: BoxSpec) -> None:
    process = rgt.start("watch")
    lines = read_until(process, lambda line: b" idle " in line)
    assert any(line.split()[1:] == [b"lab", b"info", b"connected"] for line in lines)
    assert end(process, signal.SIGTERM) == (0, b"")


def test_it_ends_by_itself_after_the_time(rgt: Rgt, lab: BoxSpec) -> None:
    assert rgt.on("watch", "--for", "0.5").returncode == 0


def test_a_reader_that_leaves_ends_it(rgt: Rgt, lab: BoxSpec) -> None:
    process = rgt.start("watch", "--json")
    read_until(process, lambda line: b'"lab"' in line)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (1, b"")


def test_a_box_that_the_fleet_file_names_meanwhile_is_watched_too(rgt: Rgt, lab: BoxSpec) -> None:
    process = rgt.start("watch")
    read_until(process, lambda line: b" idle " in line)
    rgt.write("[boxes.lab]\nhots = 'x'\n")
    (*_, said) = read_until(process, lambda line: b"the boxes are unchanged" in line)
    assert b"fleet.toml" in said and b"hots" in said
    rgt.describe([lab, replace(lab, name="mill")])
    lines = read_until(process, lambda line: b" mill " in line and b" idle " in line)
    assert any(b"the fleet file has changed: new: mill" in line for line in lines)
    assert not any(b" lab " in line and b"connected" in line for line in lines), (
        "it was not disturbed"
    )
    assert end(process, signal.SIGTERM) == (0, b"")
