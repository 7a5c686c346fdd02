"""Where the agent stands on odd boxes: a home that is full or read-only, Pythons in odd places, traps of others."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import Hello, WatchConfig
from rgt_tui.ssh import (
    AgentBundle,
    DeployedAgent,
    DeployFailed,
    NoPython,
    build_agent,
    connect,
    deploy_agent,
)
from tests.contract.ssh.servers import spec_of, sshd
from tests.contract.ssh.test_limited import watching, without_python

FULL = "mount -t tmpfs -o size=96k,mode=700 home {home} && mkdir -p {home}/.cache/rgt && {seed} "
FULL += "{{ dd if=/dev/zero of={home}/filler bs=4k 2>/dev/null; true; }}"
READ_ONLY = "mkdir -p {home}/.cache/rgt && {seed} mount --bind {home} {home} && mount -o remount,bind,ro {home}"


def box(
    folder: Path, before: str, seed: str = "true &&", spare: str = "spare"
) -> AbstractContextManager[int]:
    """Run an sshd whose home is what `before` makes of it, in a mount namespace of its own."""
    if os.geteuid() != 0:
        if os.environ.get("CI") == "true":
            pytest.fail("CI must run this as root: it mounts")
        raise pytest.skip.Exception("needs root: it mounts")
    home = folder / "home"
    home.mkdir(exist_ok=True)
    if spare == "spare":
        (folder / spare).mkdir(mode=0o700, exist_ok=True)
    options = f'SetEnv "HOME={home}" "PATH={Path(sys.executable).parent}:/usr/bin:/bin" '
    options += (
        f'"RGT_SPARE_DIRS={folder / spare}" "RGT_FIND_SECONDS=0.5" "RGT_RAM_DIR={folder}/ram"\n'
    )
    (folder / "ram").mkdir(exist_ok=True)
    line = before.format(home=home, seed=seed) + ' && exec "$0" "$@"'
    pids = (
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
    )
    return sshd(folder, options, wrapper=(*pids, "sh", "-ec", line))


async def put(folder: Path, port: int, bundle: AgentBundle | None = None) -> DeployedAgent:
    connection = await connect(spec_of(folder, port))
    try:
        return await deploy_agent(connection, bundle or build_agent(), (sys.executable,))
    finally:
        connection.abort()


def stands(folder: Path, found: DeployedAgent) -> Path:
    """The private directory of a spare place that an agent was put into."""
    path = Path(found.path)
    assert path.parent.parent == folder / "spare"
    assert path.parent.name.startswith(f"rgt-agent-{os.geteuid()}-")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    return path


@pytest.mark.parametrize(
    ("before", "words"), [(FULL, "No space left"), (READ_ONLY, "Read-only file system")]
)
async def test_a_home_that_takes_nothing_costs_neither_logs_nor_history(
    tmp_path: Path, before: str, words: str
) -> None:
    """The agent goes into a private directory elsewhere, says so, and is found there the next time."""
    with box(tmp_path, before) as port:
        first = await put(tmp_path, port)
        path = stands(tmp_path, first)
        assert path.read_bytes() == build_agent().data
        assert words in first.note and "the agent is in" in first.note
        again = await put(tmp_path, port)
        assert (again.path, [item.name for item in path.parent.iterdir()]) == (
            first.path,
            [path.name],
        )
        async with watching(spec_of(tmp_path, port), WatchConfig()) as (running, frames):
            await frames.until(2)
        hello = next(frame for frame in frames.all if isinstance(frame, Hello))
        assert hello.agent == build_agent().digest[:16]
    assert words in running.limited[0]


async def test_once_the_home_takes_files_again_the_agent_is_there_again(tmp_path: Path) -> None:
    with box(tmp_path, "true") as port:
        home = tmp_path / "home/.cache/rgt"
        home.mkdir(parents=True)
        os.chown(home, 65534, 65534)
        path = stands(tmp_path, await put(tmp_path, port))
        os.chown(home, os.geteuid(), -1)
        found = await put(tmp_path, port)
        assert (found.path, found.note) == (str(home / path.name), "")
        assert Path(found.path).read_bytes() == path.read_bytes()
        assert path.is_file(), "it may still be running"


def seeded(folder: Path, data: bytes, digest: str) -> str:
    """Return the shell line that puts an agent of an earlier rgt into the home."""
    (folder / "seed").write_bytes(data)
    return f"cp {folder}/seed {{home}}/.cache/rgt/rgt-box-{digest[:16]}.pyz &&".replace(
        "{home}", str(folder / "home")
    )


async def test_where_nothing_can_be_written_an_older_agent_serves(tmp_path: Path) -> None:
    bundle = build_agent()
    old = seeded(tmp_path, bundle.data, bundle.digest)
    newer = AgentBundle(b"new", hashlib.sha256(b"new").hexdigest(), "rgt-box-0000000000000000.pyz")
    with box(tmp_path, READ_ONLY, old, spare="nowhere") as port:
        found = await put(tmp_path, port, newer)
    assert found.path == str(tmp_path / "home/.cache/rgt" / bundle.filename)
    assert "an older agent runs" in found.note and "Read-only file system" in found.note


async def test_an_older_agent_that_is_not_whole_does_not(tmp_path: Path) -> None:
    bundle = build_agent()
    torn = seeded(tmp_path, bundle.data[:-1], bundle.digest)
    newer = AgentBundle(b"new", hashlib.sha256(b"new").hexdigest(), "rgt-box-0000000000000000.pyz")
    with box(tmp_path, READ_ONLY, torn, spare="nowhere") as port:
        with pytest.raises(DeployFailed, match="Read-only file system"):
            await put(tmp_path, port, newer)
        with pytest.raises(DeployFailed, match="Read-only file system"):
            await put(tmp_path, port)  # its very name, and it is not run


async def test_a_directory_that_somebody_else_has_prepared_is_not_used(tmp_path: Path) -> None:
    bundle, spare = build_agent(), tmp_path / "spare"
    spare.mkdir()
    spare.chmod(0o1777)
    traps = {
        name: spare / f"rgt-agent-{os.geteuid()}-{name}" for name in ("0theirs", "1open", "2link")
    }
    (spare / "target").mkdir(mode=0o700)
    for name in ("0theirs", "1open"):
        traps[name].mkdir(mode=0o700 if name == "0theirs" else 0o755)
        (traps[name] / bundle.filename).write_bytes(bundle.data)
    os.chown(traps["0theirs"], 65534, 65534)
    traps["2link"].symlink_to(spare / "target")
    with box(tmp_path, READ_ONLY) as port:
        path = stands(tmp_path, await put(tmp_path, port))
    assert path.parent not in traps.values()
    assert not list((spare / "target").iterdir())


async def test_where_others_may_rename_nothing_is_put(tmp_path: Path) -> None:
    (tmp_path / "spare").mkdir()
    (tmp_path / "spare").chmod(0o777)
    with (
        box(tmp_path, READ_ONLY) as port,
        pytest.raises(DeployFailed, match="Read-only file system"),
    ):
        await put(tmp_path, port)
    assert not list((tmp_path / "spare").iterdir())


async def test_a_file_of_another_content_under_the_agent_s_name_is_replaced(tmp_path: Path) -> None:
    bundle = build_agent()
    folder = tmp_path / "home/.cache/rgt"
    folder.mkdir(parents=True)
    (folder / bundle.filename).write_bytes(b"import os; os.abort()")
    with box(tmp_path, "true") as port:
        found = await put(tmp_path, port)
    assert (found.note, Path(found.path).read_bytes()) == ("", bundle.data)


async def test_a_state_directory_that_others_may_write_to_is_closed_and_one_of_theirs_is_left(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "home/.cache/rgt"
    folder.mkdir(parents=True)
    (folder / build_agent().filename).write_bytes(build_agent().data)
    folder.chmod(0o777)
    with box(tmp_path, "true") as port:
        assert (await put(tmp_path, port)).note == ""
        assert stat.S_IMODE(folder.stat().st_mode) == 0o755
        os.chown(folder, 65534, 65534)
        found = await put(tmp_path, port)
    stands(tmp_path, found)
    assert "it belongs to nobody" in found.note


async def test_where_everybody_may_put_another_directory_in_its_place_it_is_not_run(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "home/.cache/rgt"
    folder.mkdir(parents=True, mode=0o700)
    (folder / build_agent().filename).write_bytes(build_agent().data)
    folder.parent.chmod(0o777)
    with box(tmp_path, "true") as port:
        found = await put(tmp_path, port)
        stands(tmp_path, found)
        assert f"everyone can write to {folder.parent}: chmod o-w {folder.parent}" in found.note
        folder.parent.chmod(0o1777)  # as /tmp: none but the owner renames there
        assert (await put(tmp_path, port)).path == str(folder / build_agent().filename)


@pytest.mark.parametrize("place", [
    "miniconda3/bin/python", "miniforge3/bin/python", "miniconda3/envs/train/bin/python", ".venv/bin/python",
    ".pyenv/versions/3.11.7/bin/python", ".local/share/uv/python/cpython-3.11/bin/python3",
    ".local/bin/python3.11", "applets/python3.8", "applets/python3.14",
])  # fmt: skip
async def test_a_python_beside_the_path_is_found(tmp_path: Path, place: str) -> None:
    options, wrapper = without_python(tmp_path)
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(Path(sys.executable).resolve(), path)  # a link would lead to what is covered there
    with sshd(tmp_path, options, wrapper=wrapper) as port:
        async with await connect(spec_of(tmp_path, port)) as connection:
            found = await deploy_agent(connection, build_agent(), ())
            done = await connection.run(found.build_command("sample"), encoding=None)
    assert Path(found.python).resolve() == path.resolve()
    assert done.stdout and msgspec.json.decode(done.stdout)["t"] == "sample"


OLD = """\
#!/bin/sh
code=$4
shift 4
exec {python} -I -S -c 'import sys; sys.hexversion = 0x30711f0; exec(sys.argv.pop(1))' "$code" "$@"
"""
"""What a Python 3.7 answers to the first look."""


async def test_a_python_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    options, wrapper = without_python(tmp_path)
    real, old = tmp_path / "home-python", tmp_path / "applets/python3"
    shutil.copy2(Path(sys.executable).resolve(), real)
    old.write_text(OLD.format(python=real))
    old.chmod(0o755)
    newer = tmp_path / ".local/bin/python3.11"
    newer.parent.mkdir(parents=True)
    with sshd(tmp_path, options, wrapper=wrapper) as port:
        async with await connect(spec_of(tmp_path, port)) as connection:
            with pytest.raises(NoPython, match=r"no Python 3\.8 or newer on the box"):
                await deploy_agent(connection, build_agent(), ())
            shutil.copy2(real, newer)
            found = await deploy_agent(connection, build_agent(), ())
    assert Path(found.python).resolve() == newer.resolve()


async def test_a_python_on_the_path_of_login_shells_alone_is_found(tmp_path: Path) -> None:
    options, wrapper = without_python(tmp_path)
    python = tmp_path / "module/bin/python3"
    python.parent.mkdir(parents=True)
    shutil.copy2(Path(sys.executable).resolve(), python)
    (tmp_path / ".profile").write_text(f"echo welcome to /etc\nPATH={python.parent}:$PATH\n")
    with sshd(tmp_path, options, wrapper=wrapper) as port:
        async with await connect(spec_of(tmp_path, port)) as connection:
            found = await deploy_agent(connection, build_agent(), ())
    assert Path(found.python) == python
