"""What rgt offers to type, on names made to fool it: the real scan, the real frame, the real shell.

A hostile (or odd) directory stands beside an innocent one whose name is what the screen would show of it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from rgt_box import jsonline
from rgt_box.sampling import disks

from rgt_tui.health import diagnose_box
from rgt_tui.model import BoxSpec, BoxState, DiskReading, FixStep, LinkState, Sample, clean_text
from rgt_tui.ui.widgets import finding_details, finding_lines, text_of

INNOCENT = b"viz"
HOSTILE = {
    "zero width space": "vi\u200bz".encode(),
    "a control string of one byte": "viz\u009drest".encode(),
    "right-to-left override": "\u202ev\u202ciz".encode(),
    "tag characters": "viz\U000e0041".encode(),
    "no UTF-8 at all": b"vi\xffz",
    "a newline": b"viz\n/",
    "a soft hyphen": "vi\u00adz".encode(),
    "a no-break space": "viz\u00a0".encode(),
    "a variation selector": "viz\ufe0f".encode(),
    "a combining grapheme joiner": "vi\u034fz".encode(),
    "a Hangul filler": "viz\u3164".encode(),
    "a Mongolian variation selector": "v\u180biz".encode(),
    "an empty cell of braille": "viz\u2800".encode(),
}
PLAIN = {
    "a quote": b"it's",
    "a space": b"a b",
    "a command": b"$(touch x)",
    "a dash": b"-rf",
    "a star": b"*",
    "none": b"viz",
}


def offered(root: Path) -> tuple[FixStep, ...]:
    """Return the steps out of used-up inodes, after the scan and the frame of the agent."""
    wire = jsonline.dumps(
        {
            "mount": str(root),
            "inodes_total": 100,
            "inodes_used": 100,
            "hogs": disks.find_inode_hogs(str(root)),
        }
    )
    disk = msgspec.json.decode(wire, type=DiskReading)
    box = BoxState(
        spec=BoxSpec(name="b", host="h"),
        link=LinkState.LIVE,
        sample=Sample(boot="b", seq=1, at=1.0, disks=(disk,)),
        sample_at=1.0,
    )
    (finding,) = diagnose_box(box, 1.0, ())
    return finding.fixes


def fill(root: Path, name: bytes, files: int) -> bytes:
    """Make a directory of files below a cache."""
    made = os.path.join(os.fsencode(root), b"cache", name)
    parts = made.rstrip(b"/")
    os.makedirs(parts)
    for number in range(files):
        with open(os.path.join(parts, b"%d" % number), "wb"):
            pass
    return parts


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_no_offered_command_touches_the_directory_that_a_name_pretends_to_be(
    tmp_path: Path, name: bytes
) -> None:
    innocent = fill(tmp_path, INNOCENT, 3)
    question = fill(tmp_path, b"vi?z", 3)
    fill(tmp_path, name, 400)
    fixes = offered(tmp_path)
    assert len(fixes) > 1
    for fix in fixes:
        if fix.command is not None:
            assert clean_text(fix.command) == fix.command
            subprocess.run(
                ["bash", "-c", fix.command], cwd=tmp_path, check=False, capture_output=True
            )
    assert len(os.listdir(innocent)) == 3
    assert len(os.listdir(question)) == 3
    assert not any((fix.command or "").startswith("rm") for fix in fixes), (
        "it was judged under another name"
    )


@pytest.mark.parametrize("name", PLAIN.values(), ids=PLAIN)
def test_an_offered_removal_removes_what_was_judged_and_nothing_else(
    tmp_path: Path, name: bytes
) -> None:
    judged = fill(tmp_path, name, 400)
    beside = fill(tmp_path, b"beside", 3)
    fixes = offered(tmp_path)
    for fix in fixes:
        if fix.command is not None:
            done = subprocess.run(
                ["bash", "-c", fix.command], cwd=tmp_path, check=False, capture_output=True
            )
            assert done.returncode == 0, done.stderr
    assert not os.path.exists(judged)
    assert len(os.listdir(beside)) == 3
    assert sorted(os.listdir(tmp_path)) == ["cache"]


def test_a_removal_is_never_shown_without_a_look_and_a_warning_before_it(tmp_path: Path) -> None:
    fill(tmp_path, b"viz", 400)
    wire = jsonline.dumps(
        {
            "mount": str(tmp_path),
            "inodes_total": 100,
            "inodes_used": 100,
            "hogs": disks.find_inode_hogs(str(tmp_path)),
        }
    )
    disk = msgspec.json.decode(wire, type=DiskReading)
    box = BoxState(
        spec=BoxSpec(name="b", host="h"), sample=Sample(boot="b", seq=1, at=1.0, disks=(disk,))
    )
    (finding,) = diagnose_box(box, 1.0, ())
    for width in (20, 40, 76, 116, 196):
        shown = [finding_lines(finding, width, 1.0), finding_details(finding, width, said=False)]
        for way, lines in enumerate(shown):
            text = "\n" + "\n".join(map(text_of, lines))  # the path in the title may hold any word
            places = [
                text.index(word) for word in ("\ndo ", "\nnever", "$ df", "$ ls", "$ rm", "\nwhat ")
            ]
            assert places == sorted(places), (width, way)
            whole = "".join(text.split())
            assert finding.never is not None
            assert "".join(finding.never.split()) in whole, "what must not be done is not cut off"
            for fix in finding.fixes:
                assert "".join((fix.command or "").split()) in whole, "a command is not cut off"
