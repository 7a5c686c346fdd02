"""Whose a directory and a process are, judged with a second user, groups and sticky directories."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from rgt_box import ownership

NOBODY, NO_SUCH = 65534, 3_999_999
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as a second user")


def test_a_user_without_a_name_is_called_by_the_number() -> None:
    assert ownership.user_name(0) == "root"
    assert ownership.user_name(NO_SUCH) == str(NO_SUCH)


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert ownership.process_uids(gone.pid) == ()
    assert ownership.process_user_name(gone.pid) is None
    assert not ownership.is_own_process(gone.pid)
    assert ownership.process_user_name(os.getpid()) == "root"
    assert ownership.is_own_process(os.getpid())


def started_by(uid: int) -> subprocess.Popen[bytes]:
    """Start a process with another real user than the effective one; it runs when this returns."""
    told = "echo; exec sleep 60"  # -p: a shell gives up what it is in effect alone
    words = ["setpriv", f"--ruid={uid}", "sh", "-p", "-c", told]
    child = subprocess.Popen(words, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"\n"
    return child


def test_no_directory_service_is_asked_who_started_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may hang, and the sampler with it."""
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: pytest.fail("asked"))
    child = started_by(NO_SUCH)
    try:
        assert (
            ownership.process_user_name(os.getpid()),
            ownership.process_user_name(child.pid),
        ) == (
            "root",
            str(NO_SUCH),
        )
    finally:
        child.kill()
        child.wait()


def test_a_process_of_which_one_uid_is_another_is_not_ours() -> None:
    """As of a set-user-ID program: another user chose its arguments."""
    child = started_by(NOBODY)
    try:
        assert ownership.process_uids(child.pid) == (NOBODY, 0, 0, 0)
        assert not ownership.is_own_process(child.pid)
        assert ownership.process_user_name(child.pid) == "nobody"
    finally:
        child.kill()
        child.wait()


def made(path: Path, mode: int, uid: int = 0, gid: int = 0) -> Path:
    path.mkdir()
    os.chown(path, uid, gid)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "words", "replaced"),
    [
        (0o755, 0, 0, "", ""),
        (0o755, NOBODY, 0, "belongs to nobody", "belongs to nobody"),
        (0o777, 0, 0, "everyone can write", "everyone can write"),
        (0o1777, 0, 0, "everyone can write", ""),
        (0o775, 0, 0, "", ""),
        (0o755, 0, NO_SUCH, "", ""),
        (0o775, 0, NO_SUCH, f"the group {NO_SUCH} can write", f"the group {NO_SUCH} can write"),
        (0o1775, 0, NO_SUCH, f"the group {NO_SUCH} can write", ""),
    ],
)
def test_who_else_may_put_something_into_a_directory(
    tmp_path: Path, mode: int, uid: int, gid: int, words: str, replaced: str
) -> None:
    folder = made(tmp_path / "a", mode, uid, gid)
    for only, said in ((False, words), (True, replaced)):
        why = ownership.why_unsafe(str(folder), top=str(tmp_path), only_replaced=only)
        assert why.startswith(f"{folder} {said}" if said.startswith("belongs") else said), why
        assert bool(why) is bool(said)


@pytest.mark.parametrize(("mode", "safe"), [(0o1777, True), (0o777, False), (0o755, True)])
def test_directories_above_it_count_up_to_the_highest_that_is_looked_at(
    tmp_path: Path, mode: int, safe: bool
) -> None:
    below = made(made(made(tmp_path / "a", 0o777) / "b", mode) / "c", 0o755)
    (tmp_path / "link").symlink_to(below)
    for way in (below, tmp_path / "link"):
        why = ownership.why_unsafe(str(way), top=str(tmp_path / "a/b"))
        assert (why == "") is safe, why
    assert ownership.why_unsafe(str(below), top=str(tmp_path)), "a is open to all"


def account(monkeypatch: pytest.MonkeyPatch, group: str, members: list[str], gid: int = 77) -> None:
    """Let this user be `me` with the primary group 77, and a group be called so."""
    known = SimpleNamespace(gr_name=group, gr_mem=members)
    monkeypatch.setattr(grp, "getgrgid", lambda number: known)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: SimpleNamespace(pw_name="me", pw_gid=gid))


@pytest.mark.parametrize(
    ("group", "members", "gid", "private"),
    [
        ("me", [], 77, True),
        ("me", ["me"], 77, True),
        ("me", ["me", "you"], 77, False),
        ("staff", [], 77, False),
        ("me", [], 78, False),
    ],
)
def test_a_group_of_one_is_nobody_else(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    group: str,
    members: list[str],
    gid: int,
    private: bool,
) -> None:
    folder = made(tmp_path / "a", 0o775, gid=77)
    account(monkeypatch, group, members, gid)
    assert (ownership.why_unsafe(str(folder), top=str(folder)) == "") is private


def test_a_file_is_ours_only_where_nobody_else_can_change_it(tmp_path: Path) -> None:
    folder = made(tmp_path / "a", 0o755)
    file = folder / "f"
    file.write_text("x")
    file.chmod(0o644)
    assert ownership.is_ours(str(file))
    for path, mode in ((file, 0o664), (file, 0o646), (folder, 0o775)):
        before = path.stat().st_mode & 0o7777
        path.chmod(mode)
        assert not ownership.is_ours(str(file)), (path, mode)
        path.chmod(before)
    for path in (file, folder):
        os.chown(path, NOBODY, 0)
        assert not ownership.is_ours(str(file)), path
        os.chown(path, 0, 0)
    (folder / "link").symlink_to(file)
    assert not ownership.is_ours(str(folder / "link"))
    assert not ownership.is_ours(str(folder))
    assert not ownership.is_ours(str(folder / "none"))


def test_a_directory_that_is_not_there_is_nobodys(tmp_path: Path) -> None:
    assert not ownership.is_another_users(str(tmp_path / "none"))
    assert not ownership.is_another_users(str(tmp_path))
    assert ownership.is_another_users(str(made(tmp_path / "a", 0o755, NOBODY)))
