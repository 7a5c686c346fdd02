"""The zipapp: the same bytes for the same source, and it works under every Python that is at hand."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rgt_tui.model import protocol
from rgt_tui.ssh import bundle
from tests.process.box.harness import Agent, decode, make_job, pythons


def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    first = bundle.build_agent()
    bundle.build_agent.cache_clear()
    assert first == bundle.build_agent()
    assert first.digest == hashlib.sha256(first.data).hexdigest()
    assert first.filename == f"rgt-box-{first.digest[:16]}.pyz"
    files = bundle.agent_files(bundle.remote_root())
    assert bundle.pack_zip(dict(reversed(files.items()))) == first.data


def test_the_nvml_binding_is_packed_and_nothing_else_foreign(agent_file: Path) -> None:
    with zipfile.ZipFile(agent_file) as archive:
        names = archive.namelist()
    assert "pynvml.py" in names
    assert all(
        name.startswith(("rgt_box/", "rgt_wire/")) or name in ("__main__.py", "pynvml.py")
        for name in names
    )
    assert names == sorted(names)


def test_building_does_not_import_the_ssh_library() -> None:
    code = "import sys; import rgt_tui.ssh.bundle as b; b.build_agent(); sys.exit('asyncssh' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_agent_imports_only_the_standard_library_and_itself() -> None:
    allowed = set(sys.stdlib_module_names) | {"rgt_box", "rgt_wire", "__future__"}
    for path in (bundle.remote_root() / bundle.PACKAGE).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 8))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert {name.split(".")[0] for name in names} <= allowed, path


@pytest.mark.parametrize("python", pythons())
def test_every_python(agent_file: Path, tmp_path: Path, python: str) -> None:
    agent = Agent(agent_file, tmp_path / "state", python)
    try:
        assert isinstance(decode(agent.run("sample").stdout), protocol.Sample)
        job = make_job(tmp_path / "job", ["sh", "-c", "mkdir -p {out}; echo 1 > {out}/best"], ["a", "b"],
                       durable=str(tmp_path / "fs" / "{name}"))  # fmt: skip
        assert agent.run("queue", "run", "--job", str(job)).returncode == 0
        channel = agent.watch(interval=0.05, jobs=[str(job)])
        queue = channel.expect(lambda frame: isinstance(frame, protocol.QueueState))
        assert [(cell.state, cell.durable) for cell in queue.cells] == [("done", "verified")] * 2
        first = channel.expect(lambda frame: isinstance(frame, protocol.Sample))
        assert channel.expect(lambda frame: isinstance(frame, protocol.Sample)).seq == first.seq + 1
        assert channel.close() == 0
    finally:
        agent.stop()


@pytest.mark.parametrize("verb", ["sample", "watch", "record", "queue", "detach"])
def test_every_verb_has_help(agent: Agent, verb: str) -> None:
    done = agent.run(verb, "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"usage: " + verb.encode())


def test_wrong_command_lines_exit_2(agent: Agent) -> None:
    for words in (
        [],
        ["dance"],
        ["sample", "--nope"],
        ["sample", "--mount"],
        ["queue"],
        ["queue", "run"],
        ["detach"],
    ):
        assert agent.run(*words).returncode == 2, words
    assert agent.run("queue", "run", "--job", "x", "--from", "many").returncode == 2


def test_it_runs_from_the_source_tree(tmp_path: Path) -> None:
    env = dict(os.environ, RGT_STATE_DIR=str(tmp_path))
    source = bundle.remote_root() / bundle.PACKAGE
    done = subprocess.run(
        [sys.executable, "-IS", str(source), "sample"], env=env, capture_output=True, check=True
    )
    assert isinstance(decode(done.stdout), protocol.Sample)
