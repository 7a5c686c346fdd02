"""A box added to a fleet file: nothing that a person wrote changes, and a refusal changes nothing at all."""

from __future__ import annotations

import errno
import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rgt_tui import files
from rgt_tui.fleet.config import FleetFileError, load_fleet
from rgt_tui.fleet.config.editing import (
    add_boxes,
    remove_box,
    with_boxes,
    with_entry,
    without_box,
    write_atomically,
)

NEW = {"new": {"host": "n", "port": 40022, "logs": ["~/a b/*.log", 'q"\\u']}}

BEFORE = [
    "",
    "# only a comment, without a line end",
    '# top\n[boxes.lab]   # mine\nhost = "x"  # here\n\n\n# tail\n',
    "[boxes]\nlab.host = 'x'",
    '[boxes.lab]\r\nhost = "x"\r\n',
    '\ufeff[boxes.lab]\nhost = "x"\n',
    '[boxes.lab]\nhost = "x"\n[[sinks]]\nkind = "bell"\n',
]


@pytest.mark.parametrize("text", BEFORE)
def test_what_stands_there_is_left_byte_by_byte(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rgt.toml"
    path.write_bytes(text.encode())
    config = add_boxes(path, NEW)
    assert path.read_bytes().startswith(text.encode())
    assert load_fleet(path) == config.boxes
    assert config.boxes[-1].logs == ("~/a b/*.log", 'q"\\u')
    assert ("\r\n" in text) == (b"\r\n[boxes.new]\r\n" in path.read_bytes())


def test_a_new_file_is_made_with_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "rgt.toml"
    add_boxes(path, NEW)
    assert path.read_text().startswith("[boxes.new]\nhost =")


@pytest.mark.parametrize(
    ("text", "tables", "words"),
    [
        ('[boxes.new]\nhost = "x"\n', NEW, [":1:", "boxes.new already exists"]),
        ('boxes = { lab = { host = "x" } }\n', NEW, [":1:", "[boxes.NAME]"]),
        ("[boxes.lab\n", NEW, ["not valid TOML", "was not changed"]),
        ("# a\nboxes = 3\n", NEW, [":2:", "[boxes.NAME]"]),
        ('[boxes.lab]\nhots = "x"\n', NEW, [":2:", "'hots'"]),
        ("", {"a b": {"host": "x"}}, ["'a b'", "not a valid box name"]),
        ("", {"a": {"host": "x", "profile": "nope"}}, ["nope"]),
    ],
)
def test_a_refusal_changes_nothing(
    tmp_path: Path, text: str, tables: dict[str, dict[str, object]], words: list[str]
) -> None:
    path = tmp_path / "rgt.toml"
    path.write_text(text)
    before = path.stat()
    with pytest.raises(FleetFileError) as error:
        add_boxes(path, tables)
    assert [word for word in words if word not in str(error.value)] == []
    after = path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_and_a_symbolic_link_survive(tmp_path: Path) -> None:
    real = tmp_path / "real.toml"
    real.write_text("")
    real.chmod(0o600)
    link = tmp_path / "rgt.toml"
    link.symlink_to(real)
    add_boxes(link, NEW)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    assert "boxes.new" in real.read_text()


def test_a_full_disk_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rgt.toml"
    path.write_text('[boxes.lab]\nhost = "x"\n')

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("rgt_tui.fleet.config.editing.os.fsync", full)
    with pytest.raises(FleetFileError, match="No space left"):
        add_boxes(path, NEW)
    assert path.read_text() == '[boxes.lab]\nhost = "x"\n'
    assert list(tmp_path.iterdir()) == [path]


def test_an_exclusive_write_never_replaces(tmp_path: Path) -> None:
    path = tmp_path / "rgt.toml"
    write_atomically(path, "a", exclusive=True)
    with pytest.raises(FileExistsError):
        write_atomically(path, "b", exclusive=True)
    assert path.read_text() == "a"
    assert list(tmp_path.iterdir()) == [path]


def test_several_are_added_all_or_none() -> None:
    both = {"a": {"host": "a"}, "lab": {"host": "b"}}
    with pytest.raises(FleetFileError):
        with_boxes(Path("x"), '[boxes.lab]\nhost = "x"\n', both)


def test_many_that_add_at_once_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        files, "SECONDS", 300.0
    )  # a lock that is asked for again and again may go to others for long
    path = tmp_path / "rgt.toml"
    names = [f"box{number}" for number in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: add_boxes(path, {name: {"host": name}}), names))
    assert sorted(spec.name for spec in load_fleet(path)) == sorted(names)
    assert list(tmp_path.iterdir()) == [path]


def test_a_lock_that_nobody_lets_go_of_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SECONDS", 0.0)
    path = tmp_path / "rgt.toml"
    path.write_text(BEFORE[2])
    handle = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(
            FleetFileError, match=rf"cannot write {path}: another program has held its lock"
        ):
            add_boxes(path, NEW)
    finally:
        os.close(handle)
    assert path.read_text() == BEFORE[2]
    assert "new" in {box.name for box in add_boxes(path, NEW).boxes}


WRITTEN = """# my boxes
[alerts]
quiet = 1

# the lab's
[boxes.lab]
host = "a"
logs = [
  "x.log", # [boxes.no]
]
[boxes.lab.tiers]
"/data" = "disk"

# rented by the hour
[ boxes . "b.c" ]
host = "b"
user = "me"
"""


def test_a_box_is_taken_out_and_nothing_else_changes() -> None:
    text = without_box(Path("f"), WRITTEN, "lab")
    before, after = WRITTEN.split("[boxes.lab]\n")[0], WRITTEN[WRITTEN.index("\n# rented") :]
    assert text == before + after
    assert without_box(Path("f"), WRITTEN, "b.c") == WRITTEN[: WRITTEN.index('[ boxes . "b.c" ]')]


@pytest.mark.parametrize(
    "text",
    ['boxes = { lab = { host = "a" } }\n', '[boxes]\nlab = { host = "a" }\n', '[boxes]\nlab.host = "a"\n',
     '[boxes.lab]\nhost = """\n[boxes.x]\n"""\n'],
)  # fmt: skip
def test_a_box_that_is_no_table_of_its_own_is_left_and_its_line_named(
    text: str, tmp_path: Path
) -> None:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    with pytest.raises(FleetFileError, match=r"fleet\.toml:\d+: boxes\.lab .* by hand"):
        remove_box(path, "lab")
    assert path.read_text() == text


def test_the_last_box_may_go_and_an_unknown_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "fleet.toml"
    path.write_bytes(b'[boxes.lab]\r\nhost = "a"\r\n')
    with pytest.raises(FleetFileError, match="no box 'lob'"):
        remove_box(path, "lob")
    remove_box(path, "lab")
    assert path.read_bytes() == b""


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('[boxes.a]\nhost = "x"\n', '[boxes.a]\njobs = ["/j"]\nhost = "x"\n'),
        ("[boxes.a]\r\nhost = 'x'\r\n", "[boxes.a]\r\njobs = [\"/j\"]\r\nhost = 'x'\r\n"),
        (
            "# top\n[boxes.b]\nhost='y'\n\n[boxes.a] # mine\nhost = 'x'",
            "# top\n[boxes.b]\nhost='y'\n\n[boxes.a] # mine\njobs = [\"/j\"]\nhost = 'x'",
        ),
        (
            "[boxes.a]\nhost = 'x'\n  jobs = [ # old\n  '/k', # keep\n]\n",
            "[boxes.a]\nhost = 'x'\n  jobs = [\"/j\",  # old\n  '/k', # keep\n]\n",
        ),
        ("[boxes.a]\nhost = 'x'\n\"jobs\" = []", '[boxes.a]\nhost = \'x\'\n"jobs" = ["/j", ]'),
        (
            "[defaults]\njobs = ['/s']\n[boxes.a]\nhost = 'x'\n",
            "[defaults]\njobs = ['/s']\n[boxes.a]\njobs = [\"/j\", \"/s\"]\nhost = 'x'\n",
        ),
        ("[boxes.a]\njobs = ['/j']\nhost = 'x'\n", "[boxes.a]\njobs = ['/j']\nhost = 'x'\n"),
        (
            "[defaults]\njobs = ['/j']\n[boxes.a]\nhost = 'x'\n",
            "[defaults]\njobs = ['/j']\n[boxes.a]\nhost = 'x'\n",
        ),
        (
            "[boxes.a.kubectl]\ncontext='c'\nnamespace='n'\njob='j'\n",
            "[boxes.a]\njobs = [\"/j\"]\n\n[boxes.a.kubectl]\ncontext='c'\nnamespace='n'\njob='j'\n",
        ),
    ],
)
def test_an_entry_comes_first_in_a_list_of_a_box_and_nothing_else_changes(
    text: str, result: str
) -> None:
    assert with_entry(Path("rgt.toml"), text, "a", "jobs", "/j") == result


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[boxes.a\n", ["rgt.toml is not valid TOML", "was not changed"]),
        ("[boxes.b]\nhost = 'x'\n", ["rgt.toml has no box 'a'"]),
        (
            "boxes = { a = { host = 'x' } }\n",
            ["rgt.toml:1: boxes.a", 'add "/j" to its jobs by hand'],
        ),
        ("[boxes.a]\nhost = 'x'\njobs =   ['/k']\njob = 1\n", ["rgt.toml:4:", "'job'"]),
        ("[boxes]\na.host = 'x'", ["rgt.toml:2: boxes.a", "by hand"]),
    ],
)
def test_a_list_that_cannot_be_added_to_says_what_to_write(text: str, words: list[str]) -> None:
    with pytest.raises(FleetFileError) as error:
        with_entry(Path("rgt.toml"), text, "a", "jobs", "/j")
    assert all(word in str(error.value) for word in words), error.value
