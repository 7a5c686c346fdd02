"""Which directory a host takes in a home that it may share, whom it leaves alone, and by what it knows itself again."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from rgt_box import files, place, procstat


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The agent's place in a home that has none yet."""
    for name in ("RGT_STATE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RGT_BOOT_ID", "this-boot")
    return tmp_path / ".cache" / "rgt"


def usual(base: Path) -> str:
    return str(base / f"host-{place.host_identity()['host']}")


def owned(folder: Path | str, **changes: object) -> Path:
    """Let a directory be of this host, but for some changes."""
    made = Path(folder)
    made.mkdir(parents=True, exist_ok=True)
    (made / place.OWNER).write_text(json.dumps(place.host_identity() | changes))
    return made


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    with (folder / place.LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_what_is_given_is_taken_and_has_no_neighbours(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned(base / "host-other", host="other")
    monkeypatch.setenv("RGT_STATE_DIR", "/given")
    assert (place.state_dir(), place.neighbours(str(base))) == ("/given", [])


def test_a_first_start_takes_a_directory_by_its_host_and_makes_none(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert place.state_dir() == usual(base)
    assert not base.exists()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert place.state_dir() == usual(tmp_path / "cache" / "rgt")


@pytest.mark.parametrize("whose", ["usual", "any"])
def test_what_is_ours_is_found_wherever_it_is(base: Path, whose: str) -> None:
    owned(base / "host-another", host="another")
    mine = {"usual": Path(usual(base)), "any": base / "host-x"}[whose]
    with locked(owned(mine)):
        assert place.state_dir() == str(mine), "also while our recorder holds it"


def test_a_past_boot_of_this_host_is_gone_on_with_and_one_that_lives_is_left_alone(
    base: Path,
) -> None:
    mine = owned(usual(base), boot="earlier")
    assert place.state_dir() == str(mine)
    with locked(mine):
        apart = place.state_dir()
        assert re.fullmatch(re.escape(usual(base)) + "-[0-9a-f]{8}", apart)
        assert place.state_dir() == apart
        owned(apart)
    assert place.state_dir() == apart, "once it has one of its own it stays there"


def test_another_life_of_the_same_boot_has_a_third_one(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two containers with one name that share the kernel differ in their processes alone."""
    with locked(owned(usual(base), processes=1)):
        first = place.state_dir()
        monkeypatch.setattr(place, "namespace", lambda: 2)
        assert first != place.state_dir() != usual(base)


def test_another_host_s_is_never_taken(base: Path) -> None:
    owned(base, host="another")
    owned(base / "host-other", host="other")
    (base / "host-empty").mkdir()
    assert place.state_dir() == usual(base)


def test_a_directory_is_claimed_once(base: Path) -> None:
    folder = owned(base, boot="earlier")
    place.claim_state_dir(str(folder))
    assert json.loads((folder / place.OWNER).read_text()) == place.host_identity()
    before = (folder / place.OWNER).stat().st_ino
    place.claim_state_dir(str(folder))
    assert (folder / place.OWNER).stat().st_ino == before


def test_neighbours_are_the_other_hosts(base: Path) -> None:
    assert place.neighbours(str(base)) == []
    for name in ("host-a", "host-b", "ring"):
        (base / name).mkdir(parents=True)
    assert place.neighbours(str(base)) == [str(base / "host-a"), str(base / "host-b")]
    assert place.neighbours(str(base / "host-a")) == [str(base / "host-b")]


def test_a_host_is_known_by_its_name_and_its_machine(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def named(name: str, machine: bytes | None) -> str:
        monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=name))
        monkeypatch.setattr(files, "read_file", lambda path, limit: machine)
        host = place.host_identity()["host"]
        assert isinstance(host, str)
        return host

    assert re.fullmatch("gpu-1.lan-[0-9a-f]{8}", named("gpu-1.lan", b"1\n"))
    assert named("gpu-1.lan", b"1\n") == named("gpu-1.lan", b"1")
    assert named("gpu-1.lan", b"1") != named("gpu-1.lan", b"2") != named("gpu-1.lan", None)
    assert re.fullmatch("a_.._b-[0-9a-f]{8}", named("a/../b", None))
    assert re.fullmatch("x{40}-[0-9a-f]{8}", named("x" * 64, None))
    assert named("x" * 64, None) != named("x" * 65, None), (
        "what is cut off the name is in its number"
    )
    assert re.fullmatch("unnamed-[0-9a-f]{8}", named("", None))
    assert (place.host_identity()["boot"], place.host_identity()["processes"]) == (
        "this-boot",
        place.namespace(),
    )


def unreadable(path: str) -> os.stat_result:
    raise PermissionError(path)


def test_namespaces_and_boots_are_the_kernel_s(monkeypatch: pytest.MonkeyPatch) -> None:
    assert place.namespace() == os.stat("/proc/self/ns/pid").st_ino
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", unreadable)
        assert place.namespace() == 0
    monkeypatch.delenv("RGT_BOOT_ID", raising=False)
    kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip().replace("-", "")[:16]
    first = procstat.read_stat(1)
    assert first is not None
    assert place.boot_id() == f"{kernel}-{first.start:x}"
    monkeypatch.setattr(procstat, "read_bytes", lambda *_: None)
    monkeypatch.setattr(procstat, "read_stat", lambda _: None)
    assert place.boot_id() == "unknown-0"


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("rgt-box-0123456789abcdef.pyz", "0123456789abcdef"),
        ("rgt-box-0123.pyz", "dev"),
        ("agent.pyz", "dev"),
    ],
)
def test_the_code_is_known_by_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, digest: str
) -> None:
    (tmp_path / name).touch()
    monkeypatch.setattr(place, "__file__", str(tmp_path / name / "rgt_box" / "place.py"))
    assert place.agent_digest() == digest
    assert place.agent_command("watch", "x") == [
        sys.executable,
        "-I",
        "-S",
        "-Xutf8",
        str(tmp_path / name),
        "watch",
        "x",
    ]


def test_code_in_a_source_tree_is_started_as_a_directory() -> None:
    package = Path(place.__file__).parent
    assert place.agent_digest() == "dev"
    assert place.agent_command() == [sys.executable, "-I", "-S", "-Xutf8", str(package)]
