"""A box with another locale than UTF-8: names on it are bytes, and rgt finds what it is given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.model import BoxSpec
from rgt_tui.ssh import (
    FileBegins,
    build_agent,
    connect,
    deploy_agent,
    list_matching_files,
    run_command,
    stream_cat,
)
from tests.contract.ssh.servers import spec_of, sshd

LOCALES = {"C": None, "zh_CN.GBK": ("zh_CN", "GBK"), "fr_FR.ISO-8859-1": ("fr_FR", "ISO-8859-1")}
NAMES = ["结果/一".encode(), "结果".encode("gbk"), "实验".encode("gbk"), b"caf\xe9", b"\x9c|x"]


@pytest.fixture(params=LOCALES)
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BoxSpec]:
    locale: str = request.param
    if (source := LOCALES[locale]) is not None:
        if not shutil.which("localedef"):
            pytest.skip("there is no localedef")
        words = ["localedef", "-i", source[0], "-f", source[1], str(tmp_path / locale)]
        if subprocess.run(words, check=False, capture_output=True).returncode:
            pytest.skip(f"{locale} cannot be built here")
    options = (
        f'SetEnv SHLVL=1 "HOME={tmp_path}" "XDG_CACHE_HOME={tmp_path}/.cache" "PATH={os.environ["PATH"]}" '
        f'"LC_ALL={locale}" "LOCPATH={tmp_path}"\n'
    )
    with sshd(tmp_path, options) as port:
        yield spec_of(tmp_path, port)


async def test_every_name_is_found_and_read(spec: BoxSpec, tmp_path: Path) -> None:
    for name in NAMES:
        folder = os.path.join(os.fsencode(tmp_path), b"runs", name)
        os.makedirs(folder)
        Path(os.fsdecode(folder), "train.log").write_bytes(b"in " + name)
    async with await connect(spec) as connection:
        deployed = await deploy_agent(connection, build_agent(), (sys.executable,))
        for name in NAMES:
            path = os.fsdecode(os.path.join(os.fsencode(tmp_path), b"runs", name, b"train.log"))
            (found,) = await list_matching_files(connection, deployed, (path,))
            begins, *pieces = [
                piece async for piece in stream_cat(connection, deployed, "--path", path)
            ]
            assert found.size == len(b"in " + name)
            assert isinstance(begins, FileBegins)
            assert pieces == [b"in " + name]
        listed = await list_matching_files(connection, deployed, (f"{tmp_path}/runs/*/*/*.log",))
        done = await run_command(connection, f"ls -d '{tmp_path}/runs/结果'")
        await run_command(connection, deployed.build_command("record", "--stop"))
    assert [file.path for file in listed] == [f"{tmp_path}/runs/结果/一/train.log"]
    assert done.out == f"{tmp_path}/runs/结果\n".encode()
