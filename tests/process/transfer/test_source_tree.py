"""What of a directory is pushed: patterns as git means them, secrets, links, line ends, and one hash over all of it."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from rgt_box import masking

from rgt_tui.files import note_written
from rgt_tui.transfer import (
    ALWAYS_LEFT_OUT,
    FileRow,
    IgnoreRules,
    Ledger,
    OwnFiles,
    SourceError,
    ledger_path,
    read_tree,
    source_tree,
    why_secret,
)
from rgt_tui.transfer.ledger import sha256_of
from rgt_tui.ui import clipboard, exports

PLAIN = IgnoreRules(ALWAYS_LEFT_OUT)
TOKEN = "hf_" + "aB3dE5fG7h" * 3
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\n" + "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ\n" * 2


def fill(top: Path, *names: str) -> None:
    for name in names:
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def paths(top: Path, rules: IgnoreRules = PLAIN) -> list[str]:
    return [file.path for file in read_tree(top, rules).files]


PATTERNS = (
    "*.log", "/top.txt", "build/", "a/**/z.txt", "**/deep/x.txt", "lib/*.so", "!lib/keep.so", "file[0-9].txt", "q?.txt",
    "\\#odd", "data/**", "[!a]bang", "trail.txt  ", "wild*card/", "doc/notes.txt",
)  # fmt: skip
FILES = (
    "x.log", "d/x.log", "top.txt", "d/top.txt", "build/o", "d/build/o", "d/e/build", "a/z.txt", "a/b/c/z.txt",
    "deep/x.txt", "k/deep/x.txt", "lib/a.so", "lib/keep.so", "m/lib/a.so", "file1.txt", "fileA.txt", "qa.txt",
    "qab.txt", "#odd", "data/a", "data/b/c", "abang", "bbang", "trail.txt", "wildXcard/f", "wildcard", "doc/notes.txt",
    "d/doc/notes.txt",
)  # fmt: skip


def test_patterns_mean_what_git_means(tmp_path: Path) -> None:
    fill(tmp_path, *FILES)
    (tmp_path / ".gitignore").write_text("\n".join(PATTERNS))
    (tmp_path / "m" / ".gitignore").write_text("!*.log\n/lib\n")
    fill(tmp_path, "m/y.log")
    git = ["git", "-C", str(tmp_path), "-c", "core.excludesFile=/dev/null"]
    subprocess.run([*git, "init", "-q"], check=True)
    listed = subprocess.run(
        [*git, "ls-files", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert paths(tmp_path, IgnoreRules((".git",))) == sorted(
        listed.stdout.replace('"', "").splitlines(), key=lambda path: path.split("/")
    )


def test_what_is_left_out_is_named(tmp_path: Path) -> None:
    fill(
        tmp_path,
        "train.py",
        "wandb/run",
        "__pycache__/x.pyc",
        ".git/config",
        "data/big",
        "notes.txt",
    )
    (tmp_path / ".rgtignore").write_text("notes.txt\n")
    found = read_tree(tmp_path, IgnoreRules((*ALWAYS_LEFT_OUT, "data/")))
    assert [file.path for file in found.files] == [".rgtignore", "train.py"]
    assert {(each.path, each.why) for each in found.left_out} == {
        ("wandb/", "wandb"),
        ("__pycache__/", "__pycache__"),
        (".git/", ".git"),
        ("data/", "data/"),
        ("notes.txt", "notes.txt in .rgtignore"),
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".env", "A=1"), ("prod.env", ""), ("id_rsa", ""), ("server.pem", KEY), (".netrc", ""), ("notes.md", KEY),
        ("train.py", f"login(token='{TOKEN}')"), ("aws.ini", "id = AKIAIOSFODNN7EXAMPLE"), (".env.example", TOKEN),
    ],
)  # fmt: skip
def test_secrets_stay_here_unless_that_is_typed(tmp_path: Path, name: str, text: str) -> None:
    fill(tmp_path, "a.py")
    (tmp_path / name).write_text(text)
    found = read_tree(tmp_path, PLAIN)
    assert [file.path for file in found.files] == ["a.py"]
    assert [each.path for each in found.left_out if each.secret] == [name]
    assert not any(TOKEN in each.why for each in found.left_out)
    assert sorted(paths(tmp_path)) == ["a.py"]
    assert len(read_tree(tmp_path, PLAIN, secrets_too=True).files) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "from huggingface_hub import hf_hub_download"), ("b.py", "pip install sk-learn-contrib-extras"),
        (".env.example", "HF_TOKEN="), ("ca.pem", "-----BEGIN CERTIFICATE-----"), ("id_rsa.pub", "ssh-rsa AAAA"),
        ("c.py", "tokenizer = 'hf_internal_testing_tokenizer'"), ("d.py", "-----BEGIN RSA PRIVATE KEY-----"),
    ],
)  # fmt: skip
def test_code_is_not_taken_for_a_secret(name: str, text: str) -> None:
    assert why_secret(name, text.encode()) is None


@pytest.mark.parametrize(
    "piece", ["eyJ-", "eyJaaaaaaaaaa.aaaa-", "hf_-", "AIza-", "12345678:AA-", "-----BEGIN ", " \n"]
)
def test_a_hostile_file_is_looked_at_in_one_go(piece: str) -> None:
    """What tried each beginning anew against all the rest took minutes for a megabyte."""
    why_secret("notes.txt", piece.encode() * (source_tree.MOST // len(piece)))


@pytest.mark.parametrize(
    "pattern",
    ["*" * 60 + "b", "*a" * 30 + "b", "**/a/" * 12 + "b", "**/" * 40 + "b", "**/*a/" * 12 + "b"],
)
def test_many_stars_of_a_cloned_tree_cost_no_time(pattern: str) -> None:
    for path in ("a" * 250, "/".join("a" * 120), "/".join(["aaaaaaaa"] * 27)):
        assert IgnoreRules([pattern]).why_ignored(path, is_folder=False) is None
        assert IgnoreRules([pattern]).why_ignored(path[:-1] + "b", is_folder=True) in (
            None,
            pattern,
        )
    assert IgnoreRules(["*a*b*"]).why_ignored("d/xaxbx", is_folder=False) == "*a*b*"
    assert IgnoreRules(["**/a*/**/b"]).why_ignored("x/ab/c/d/b", is_folder=False) == "**/a*/**/b"


@pytest.mark.parametrize("make", ["pipe", "zeros", "circle", "folder"])
def test_a_list_of_patterns_that_is_no_file_is_none(tmp_path: Path, make: str) -> None:
    fill(tmp_path, "a.py", "d/b.py")
    for folder in (tmp_path, tmp_path / "d"):
        path = folder / ".gitignore"
        if make == "pipe":
            os.mkfifo(path)
        elif make == "folder":
            path.mkdir()
        else:
            path.symlink_to("/dev/zero" if make == "zeros" else ".gitignore")
    assert {"a.py", "d/b.py"} <= set(paths(tmp_path))


def test_a_tree_deeper_than_python_calls_itself_is_read(tmp_path: Path) -> None:
    deep = "/".join("d" * 1500)
    try:
        subprocess.run(["mkdir", "-p", deep], cwd=tmp_path, check=True)
        (tmp_path / deep / "a.py").write_text("x")
        (tmp_path / "d" / ".gitignore").write_text("b.py\n")
        (tmp_path / deep / "b.py").write_text("x")
        assert paths(tmp_path) == ["d/.gitignore", f"{deep}/a.py"]
    finally:  # pytest itself cannot remove so deep a tree
        subprocess.run(["rm", "-rf", "d"], cwd=tmp_path, check=True)


def test_the_shapes_are_those_that_the_agent_hides() -> None:
    assert masking._SHAPES.pattern == source_tree.SHAPES


def test_links_that_leave_and_what_is_no_file(tmp_path: Path) -> None:
    top = tmp_path / "top"
    fill(top, "a/b.txt")
    (tmp_path / "outside").write_text("x")
    for name, target in (("in", "a/b.txt"), ("up", "a/../a"), ("dangling", "nowhere")):
        (top / name).symlink_to(target)
    for name, target in (
        ("out", "../outside"),
        ("root", "/etc/passwd"),
        ("a/out", "../../outside"),
    ):
        (top / name).symlink_to(target)
    os.mkfifo(top / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(top / "sock"))
        found = read_tree(top, PLAIN)
    assert [file.path for file in found.files] == ["a/b.txt"]
    assert sorted(found.links) == [("dangling", "nowhere"), ("in", "a/b.txt"), ("up", "a/../a")]
    assert sorted(each.path for each in found.left_out) == ["a/out", "out", "pipe", "root", "sock"]


def test_names_that_a_terminal_would_obey(tmp_path: Path) -> None:
    fill(tmp_path, "a.py")
    (tmp_path / "x\x1b[2J").write_text("")
    with open(os.fsencode(tmp_path) + b"/\xff", "wb"):
        pass
    found = read_tree(tmp_path, PLAIN)
    assert [file.path for file in found.files] == ["a.py"] and len(found.left_out) == 2


def test_line_ends_are_mended_on_the_way_only(tmp_path: Path) -> None:
    crlf = b"#!/bin/bash\r\necho hi\r\n"
    for name in ("run.sh", "queue.txt", "tool", "table.csv"):
        (tmp_path / name).write_bytes(crlf if name != "table.csv" else b"a,b\r\n")
    as_is, mended = read_tree(tmp_path, PLAIN), read_tree(tmp_path, PLAIN, mend=True)
    assert as_is.windows == mended.windows == ("queue.txt", "run.sh", "tool")
    assert all(file.mended is None for file in as_is.files)
    by_path = {file.path: file for file in mended.files}
    assert (
        by_path["run.sh"].mended == b"#!/bin/bash\necho hi\n"
        and by_path["table.csv"].mended is None
    )
    assert by_path["run.sh"].size == len(crlf) - 2 and as_is.tree_digest != mended.tree_digest
    assert (tmp_path / "run.sh").read_bytes() == crlf


def test_the_hash_is_of_names_contents_and_modes(tmp_path: Path) -> None:
    fill(tmp_path, "a.py", "b.py")
    first = read_tree(tmp_path, PLAIN)
    os.utime(tmp_path / "a.py", (1, 1))
    assert read_tree(tmp_path, PLAIN).tree_digest == first.tree_digest
    (tmp_path / "a.py").chmod(0o755)
    second = read_tree(tmp_path, PLAIN).tree_digest
    (tmp_path / "link").symlink_to("a.py")
    third = read_tree(tmp_path, PLAIN).tree_digest
    (tmp_path / "b.py").rename(tmp_path / "c.py")
    assert len({first.tree_digest, second, third, read_tree(tmp_path, PLAIN).tree_digest}) == 4


def left(top: Path, own: OwnFiles) -> dict[str, str]:
    return {each.path: each.why for each in read_tree(top, PLAIN, own=own).left_out}


def note_pulled(copy: Path, env: dict[str, str]) -> None:
    """Write the row of a copy, as a pull does."""
    digest, here = sha256_of(copy)
    row = FileRow(path="/root/run/a.pt", local=str(copy), sha256=digest, there=here, here=here)
    ledger = Ledger(ledger_path("lab", env))
    ledger.append_rows([row])
    ledger.close()


def test_what_rgt_wrote_is_no_code(tmp_path: Path) -> None:
    top, env = tmp_path / "exp", {"HOME": str(tmp_path / "exp")}
    fill(
        top,
        "a.py",
        "boxes.toml",
        "sub/rgt.toml",
        ".boxes.toml.4711.tmp",
        "sub/PULL_VERIFIED.json",
        "x/b.py",
    )
    fill(
        top,
        "pulled/lab/root/run/a.pt",
        "half/.rgt-parts/1",
        "half/a.pt",
        "night.jsonl",
        "mine.csv",
        "loss.csv",
    )
    fill(top, ".local/state/rgt/journal.json", ".config/rgt/fleet.toml")
    note_written([top / "pulled/lab/root/run", top / "mine.csv", top / "gone"], env)
    note_written([top / "night.jsonl"], env, grows=True)
    note_pulled(top / "pulled/lab/root/run/a.pt", env)
    with (top / "night.jsonl").open("a") as recording:
        recording.write("another line")
    (top / "mine.csv").write_text("a table of the person's, in the same file")
    own = OwnFiles(top / "boxes.toml", env=env)
    found = read_tree(top, PLAIN, own=own)
    assert [file.path for file in found.files] == ["a.py", "loss.csv", "mine.csv", "x/b.py"]
    why = left(top, own)
    assert why["boxes.toml"] == "the fleet file of rgt" and why["night.jsonl"] == "rgt wrote it"
    assert why["half/"] == why["pulled/lab/root/run/"] == why["sub/"] == "rgt pulled it"
    before = found.tree_digest
    (top / "boxes.toml").write_text("[boxes.a]\nhost = 'b'\njobs = ['~/jobs/c']\n")
    fill(top, "pulled/lab/root/run/b.pt")
    assert read_tree(top, PLAIN, own=own).tree_digest == before
    as_data = read_tree(
        top, IgnoreRules(), own=OwnFiles(top / "boxes.toml", pulled_too=True, env=env)
    )
    assert {"half/a.pt", "pulled/lab/root/run/a.pt"} <= {file.path for file in as_data.files}
    assert "boxes.toml" not in {file.path for file in as_data.files}
    (tmp_path / "link").symlink_to("exp")
    assert read_tree(tmp_path / "link", PLAIN, own=own).tree_digest == before, (
        "by another way to the same directory"
    )
    with pytest.raises(SourceError, match="the fleet file of rgt"):
        read_tree(top / "boxes.toml", PLAIN, own=own)


def test_what_a_person_makes_where_rgt_had_written_is_pushed(tmp_path: Path) -> None:
    top, env = tmp_path / "exp", {"HOME": str(tmp_path)}
    fill(top, "a.py", "loss.csv", "run/a.pt", "night.jsonl")
    note_written([top / "loss.csv", top / "run"], env)
    note_written([top / "night.jsonl"], env, grows=True)
    note_pulled(top / "run/a.pt", env)
    own = OwnFiles(env=env)
    assert [file.path for file in read_tree(top, PLAIN, own=own).files] == ["a.py"]
    inodes = {(top / name).stat().st_ino for name in ("loss.csv", "run", "run/a.pt", "night.jsonl")}
    for name in ("loss.csv", "run/a.pt", "night.jsonl"):  # in place: device and inode stay
        with (top / name).open("r+") as file:
            file.write("mine: ")
    os.utime(
        top / "run/a.pt", ns=(0, 0)
    )  # a clock may be too coarse to show that it was written again
    assert inodes == {
        (top / name).stat().st_ino for name in ("loss.csv", "run", "run/a.pt", "night.jsonl")
    }
    found = [file.path for file in read_tree(top, PLAIN, own=own).files]
    assert found == ["a.py", "loss.csv", "night.jsonl", "run/a.pt"]


def test_what_the_dashboard_exports_is_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, env = tmp_path / "exp", {"HOME": str(tmp_path)}
    fill(top, "a.py")
    monkeypatch.chdir(top)
    assert exports.write_export("loss.svg", b"<svg/>", env) == top / "loss.svg"
    clipboard.write_screenshot("<svg/>", env)
    assert [file.path for file in read_tree(top, PLAIN, own=OwnFiles(env=env)).files] == ["a.py"]


def test_what_cannot_be_pushed_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        read_tree(tmp_path / "no", PLAIN)
    with pytest.raises(SourceError, match="neither a directory nor a regular file"):
        read_tree(Path("/dev/null"), PLAIN)
    fill(tmp_path, ".env")
    with pytest.raises(SourceError, match="are excluded"):
        read_tree(tmp_path, PLAIN)
    fill(tmp_path, "a.py")
    with pytest.raises(SourceError, match="--name"):
        read_tree(tmp_path, PLAIN, name="模型")
    assert read_tree(tmp_path, PLAIN, name="my exp").name == "my_exp"
    assert read_tree(tmp_path / "a.py", PLAIN).name == "a"
