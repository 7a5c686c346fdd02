"""Git work trees among the results: what a remote has is no result; all else of a clone is one row."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest
from rgt_box.commands import result_walk

from rgt_tui.model import BoxResults, ResultGroup
from tests.process.box.harness import Agent, until
from tests.process.box.test_results import groups, put, results

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
URL = "https://git.example.org/lab/exp.git"


def git(folder: Path, *words: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    env.update(
        {
            f"GIT_{who}_{what}": "me@x"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
    )
    done = subprocess.run(
        ["git", *words], cwd=folder, env=env, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def fetched(clone: Path) -> None:
    """Let the clone's remote have its HEAD."""
    git(clone, "update-ref", "refs/remotes/origin/main", "HEAD")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with one commit, which its remote has."""
    folder = tmp_path / "box/exp"
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    for number in range(40):
        put(folder / f"src/part{number}/model.py", f"layers = {number}")
    put(folder / "weights.pt", "committed")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "remote", "add", "origin", URL)
    fetched(folder)
    return folder


def looked(agent: Agent, clone: Path, *words: str) -> tuple[dict[str, ResultGroup], BoxResults]:
    found = results(agent, clone.parent, *words)
    return groups(found), found


def cloned_files(found: BoxResults) -> int:
    return next((rule.files for rule in found.skipped if rule.rule == "in git, and on a remote"), 0)


def test_a_clone_whose_commits_a_remote_has_holds_no_result(agent: Agent, clone: Path) -> None:
    found, all_of_it = looked(agent, clone)
    assert found == {}
    assert cloned_files(all_of_it) > 41
    assert next(rule for rule in all_of_it.skipped if rule.rule == "in git, and on a remote").proved


def test_build_outputs_and_changed_files_of_a_clone_are_one_row(agent: Agent, clone: Path) -> None:
    put(clone / ".gitignore", "build/\n")
    for number in range(30):
        put(clone / f"build/{number}/kernel.so")
    put(clone / "src/part7/model.py", "layers = 8")  # same size
    found, _ = looked(agent, clone)
    assert {path: group.files for path, group in found.items()} == {str(clone): 32}


@pytest.mark.parametrize(
    "how",
    [
        "commit",
        "branch",
        "work tree",
        "stash",
        "older stash",
        "no remote",
        "remote on this box",
        "remote that never had it",
    ],
)
def test_commits_that_no_other_machine_has_are_results(agent: Agent, clone: Path, how: str) -> None:
    if how == "commit":
        put(clone / "new.py")
        git(clone, "add", ".")
        git(clone, "commit", "-q", "-m", "second")
    elif how == "branch":
        git(clone, "checkout", "-q", "-b", "try")
        git(clone, "commit", "-q", "--allow-empty", "-m", "tried")
        git(clone, "checkout", "-q", "main")
    elif how == "work tree":
        other = clone.parent.parent / "elsewhere"
        git(clone, "worktree", "add", "-q", "--detach", str(other))
        git(other, "commit", "-q", "--allow-empty", "-m", "tried")
    elif how == "stash":
        put(clone / "weights.pt", "stashed..")
        git(clone, "stash")
    elif how == "older stash":
        put(clone / "weights.pt", "stashed..")
        git(clone, "stash")
        put(clone / "weights.pt", "again....")
        git(clone, "stash")
        git(
            clone, "update-ref", "refs/remotes/origin/wip", "refs/stash"
        )  # the newest entry is there, by chance
    elif how == "no remote":
        git(clone, "remote", "remove", "origin")
    elif how == "remote on this box":
        git(clone, "remote", "set-url", "origin", "/data/exp.git")
    else:
        git(clone, "update-ref", "-d", "refs/remotes/origin/main")
    found, all_of_it = looked(agent, clone)
    row = found[str(clone)]
    objects = [path for path in (clone / ".git/objects").rglob("*") if path.is_file()]
    assert row.files >= len(objects), "what only .git has is counted"
    assert list(found) == [str(clone)]
    whole_tree = how in ("branch", "work tree", "stash", "older stash")
    assert (cloned_files(all_of_it) == 41) == whole_tree, (
        "the files of HEAD are on the remote all the same"
    )


def test_what_a_killed_agent_leaves_is_its_own_and_the_next_one_removes_it(
    agent: Agent, clone: Path, tmp_path: Path
) -> None:
    """A killed walk leaves the directory in which it ran git; another process's is left alone."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    agent.env["TMPDIR"] = str(temporary)
    git_of_test = tmp_path / "bin/git"
    git_of_test.parent.mkdir()
    git_of_test.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\nexec sleep 1000\n")
    git_of_test.chmod(0o755)
    path = os.environ["PATH"]
    walk = agent.start(
        "results", env={"RGT_ROOTS": str(clone), "PATH": f"{git_of_test.parent}:{path}"}
    )
    until((tmp_path / "asked").exists, "the question to git")
    asker = next(
        int(pid) for pid in Path(f"/proc/{walk.pid}/task/{walk.pid}/children").read_text().split()
    )
    (left,) = temporary.iterdir()
    walk.kill()
    walk.communicate()
    os.kill(asker, signal.SIGKILL)
    (temporary / "rgt-tmp-mine").mkdir()
    (temporary / "rgt-tmp-mine/best.pt").write_text("x")
    found = groups(results(agent, temporary))
    assert set(found) == {str(temporary / "rgt-tmp-mine")}
    assert left.exists(), "there is no repository, so this one asked no git"
    looked(agent, clone)
    assert [one.name for one in temporary.iterdir()] == ["rgt-tmp-mine"]


def test_large_files_that_git_keeps_apart_are_results(agent: Agent, clone: Path) -> None:
    put(clone / ".git/lfs/objects/ab/cd/abcd", "content of a checkpoint")
    put(clone / ".git/notes.txt", "by hand")
    found, _ = looked(agent, clone)
    assert {path: group.files for path, group in found.items()} == {str(clone): 2}


def test_without_git_or_with_damage_nothing_is_taken_for_reproducible(
    agent: Agent, clone: Path
) -> None:
    whole = sum(path.is_file() for path in clone.rglob("*"))
    agent.env["PATH"] = "/nonexistent"
    found, all_of_it = looked(agent, clone)
    assert (found[str(clone)].files, cloned_files(all_of_it)) == (whole, 0), (
        "commits may be in .git only"
    )
    del agent.env["PATH"]
    (clone / ".git/HEAD").write_bytes(b"\xff\0ref: ../../etc/passwd")
    found, all_of_it = looked(agent, clone)
    assert (found[str(clone)].files, cloned_files(all_of_it)) == (whole, 0)


@pytest.mark.parametrize("what", ["mkdtemp", "mkdir"])
def test_a_clone_on_a_full_disk_is_counted_and_is_no_problem(
    clone: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    walk = result_walk.ResultWalk(result_walk.FolderOwners(), mounts=result_walk.MountTable(b""))
    monkeypatch.setattr(*((tempfile, what) if what == "mkdtemp" else (os, what)), full)
    walk.walk_roots([str(clone.parent)])
    assert walk.problems == []
    assert walk.groups[os.fsencode(clone)].files == sum(path.is_file() for path in clone.rglob("*"))


def test_nothing_of_a_repositorys_configuration_is_executed(
    agent: Agent, clone: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    trap = put(tmp_path / "trap.sh", f"#!/bin/sh\necho $0 >> {marker}\n")
    trap.chmod(0o755)
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-auto-gc"):
        shutil.copy(trap, clone / ".git/hooks" / hook)
    put(clone / ".gitattributes", "*.py filter=evil diff=evil\n")
    with (clone / ".git/config").open("a") as file:
        file.write(
            f"[core]\n\tfsmonitor = {trap}\n\tpager = {trap}\n\tsshCommand = {trap}\n\teditor = {trap}\n"
            f'[filter "evil"]\n\tclean = {trap}\n\tsmudge = {trap}\n\tprocess = {trap}\n\trequired = true\n'
            f'[diff "evil"]\n\tcommand = {trap}\n\ttextconv = {trap}\n'
            f'[extensions]\n\tpartialClone = origin\n[remote "origin"]\n\tpromisor = true\n'
            f"\tuploadpack = {trap}\n\tproxy = {trap}\n[alias]\n\tls-tree = !{trap}\n\trev-list = !{trap}\n"
        )
    found, all_of_it = looked(agent, clone)
    assert not marker.exists()
    assert cloned_files(all_of_it) > 41
    assert found[str(clone)].files == 1, "the attributes, which were not committed"


def test_a_run_in_a_clone_has_the_files_that_are_not_committed(
    agent: Agent, clone: Path, tmp_path: Path
) -> None:
    put(clone / "outputs/best.pt")
    job = tmp_path / "job"
    put(
        job / "job.json",
        json.dumps({"command": ["true"], "out": "/nowhere/{name}", "workdir": str(clone)}),
    )
    put(job / "queue.txt", "a.yaml t\n")
    found, _ = looked(agent, clone, "--job", str(job))
    assert {path: (group.owner, group.files) for path, group in found.items()} == {
        str(clone): (f"job {job}", 1)
    }
    # Named as results, all of it counts.
    found, _ = looked(agent, clone, "--results", str(clone))
    assert found[str(clone)].files > 41
