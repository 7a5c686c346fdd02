"""Commands that fail say why in the person's language; in English they say what they always said."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.model import BoxSpec
from tests.contract.cli.conftest import Rgt, mounted_disk
from tests.contract.providers.fakes.renting_vast import RentingVast
from tests.contract.ssh.conftest import RealSshd

LANGUAGES = ("en", "zh_CN")


def failed(rgt: Rgt, language: str, *words: str) -> str:
    """Run a command in a process of its own, which chooses its language, and return what it printed."""
    done = subprocess.run(
        rgt.command(words[0], "--fleet", str(rgt.fleet), *words[1:]),
        cwd=rgt.folder,
        env=rgt.environment() | {"RGT_LANG": language},
        capture_output=True,
        text=True,
        check=False,
        timeout=60.0,
    )
    assert done.returncode != 0
    return done.stdout + done.stderr


def unused_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_host_that_refuses_the_connection(rgt: Rgt, language: str) -> None:
    rgt.describe([BoxSpec("lab", "127.0.0.1", port=unused_port())])
    said = failed(rgt, language, "exec", "lab", "--", "true")
    expected = {"en": "refused the connection", "zh_CN": "拒绝连接"}
    assert expected[language] in said
    assert (expected["en"] in said) == (language == "en")


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_key_file_that_is_not_there(
    rgt: Rgt, lab: BoxSpec, tmp_path: Path, language: str
) -> None:
    missing = tmp_path / "nothing"
    rgt.describe([msgspec.structs.replace(lab, identity=str(missing))])
    said = failed(rgt, language, "exec", "lab", "--", "true")
    expected = {
        "en": ("refused the login of", f"{missing}: no such key file"),
        "zh_CN": ("拒绝用户", f"{missing}：没有这个密钥文件"),
    }
    for words in expected[language]:
        assert words in said
    for words in expected["en"]:
        assert (words in said) == (language == "en")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_a_key_that_the_platform_refuses(rgt: Rgt, language: str) -> None:
    server = RentingVast(settle_s=0.0)
    await server.start()
    server.add_instance(31415926, "mill", created=server.clock() - 3600)
    rgt.env["RGT_TEST_KEY"] = "not-the-key-of-the-server"
    rgt.write(
        '[boxes.mill]\nhost = "127.0.0.1"\nprofile = "vastai"\n[boxes.mill.provider]\nkind = "vastai"\n'
        f'instance = "31415926"\nbase_url = "{server.base_url}"\nkey_env = "RGT_TEST_KEY"\n'
    )
    try:
        said = await asyncio.to_thread(failed, rgt, language, "bid", "mill", "0.5", "--dry-run")
    finally:
        await server.stop()
    expected = {"en": "refused the key", "zh_CN": "拒绝了密钥"}
    assert expected[language] in said
    assert (expected["en"] in said) == (language == "en")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    with mounted_disk(tmp_path / "tiny", "1m") as folder:
        yield folder


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_pull_for_which_there_is_no_room(
    rgt: Rgt, lab: BoxSpec, real_sshd: RealSshd, tiny: Path, language: str
) -> None:
    big = real_sshd.folder / "box" / "big.pt"
    big.parent.mkdir(exist_ok=True)
    big.write_bytes(bytes(range(256)) * (2 << 12))
    said = failed(rgt, language, "pull", "lab", str(big), "--dest", str(tiny))
    expected = {"en": f"no room under {tiny}", "zh_CN": f"{tiny} 下空间不足"}
    assert expected[language] in said
    assert (expected["en"] in said) == (language == "en")
