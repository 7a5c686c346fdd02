"""``rgt serve``: on loopback, read-only, and for who has the secret: over HTTP and a web socket, as a browser does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from rgt_tui.cli import command_of
from tests.free_ports import free_port
from tests.process.cli.headless_browser import headless

FLEET = '[boxes.lab]\nhost = "lab.invalid"\n'


def rgt(*words: str, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "s"),
        "XDG_CONFIG_HOME": str(home / "c"),
        **more,
    }
    return subprocess.run(
        [sys.executable, "-m", "rgt_tui", *words], capture_output=True, text=True, env=env, check=False,
        stdin=subprocess.DEVNULL, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.org", "localhost.evil"])
def test_every_other_address_is_refused(tmp_path: Path, host: str) -> None:
    done = rgt("serve", "--host", host, home=tmp_path)
    assert done.returncode == 2
    assert "can be reached by others; rgt serve listens only on 127.0.0.1 or ::1" in done.stderr
    assert "ssh -L" in done.stderr


def test_in_a_browser_rgt_is_read_only_alone(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(FLEET)
    done = rgt(
        "--fleet", str(fleet), home=tmp_path, TEXTUAL_DRIVER="textual.drivers.web_driver:WebDriver"
    )
    assert (done.returncode, "in a browser rgt is always read-only" in done.stderr) == (2, True)
    assert "--readonly" in command_of(None)
    assert command_of("a b").endswith("--readonly --fleet 'a b'")


class Served(NamedTuple):
    address: str
    port: int


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    try:
        import textual_serve  # noqa: F401
    except ImportError:
        if os.environ.get("CI"):
            raise
        pytest.skip("textual-serve is not installed")
    fleet = tmp_path / "fleet.toml"
    fleet.write_text(FLEET)
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "s"),
        "XDG_CONFIG_HOME": str(tmp_path / "c"),
    }
    port = free_port()
    words = [sys.executable, "-m", "rgt_tui", "serve", "--port", str(port), "--fleet", str(fleet)]
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, env=env)
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        told = (tmp_path / "stderr").read_text()
        assert said.startswith("read-only, until Ctrl-C: http://127.0.0.1:"), said + told
        yield Served(said.split()[-1], port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait()


def test_only_who_has_the_secret_sees_the_fleet(served: Served) -> None:
    asyncio.run(_browse(served))


async def _browse(served: Served) -> None:
    import aiohttp

    base = f"http://127.0.0.1:{served.port}"
    assert urlsplit(served.address).query.startswith("key=")
    async with aiohttp.ClientSession() as stranger:
        for path in ("/", "/?key=wrong", "/static/", "/ws?width=80&height=24"):
            async with stranger.get(f"{base}{path}") as answer:
                assert answer.status == 403, path
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as browser:
        async with browser.get(served.address) as answer:
            assert answer.status == 200
            assert "key=" not in str(answer.url), "the secret left the address bar"
            assert "/ws" in await answer.text()
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; ")
        for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
            async with browser.get(f"{base}/ws", headers=headers) as answer:
                assert answer.status == 403, headers
        async with browser.ws_connect(
            f"{base}/ws?width=120&height=30", headers={"Origin": base}
        ) as page:
            await _until(page, b"lab")
            await page.send_json(["stdin", "D"])
            await _until(page, b"--readonly")


async def _until(page: object, words: bytes) -> None:
    import aiohttp

    assert isinstance(page, aiohttp.ClientWebSocketResponse)
    seen = b""
    async with asyncio.timeout(300):
        async for message in page:
            if message.type is aiohttp.WSMsgType.BINARY:
                seen += message.data
                if words in seen:
                    return
    raise AssertionError(f"{words!r} was not shown: {seen[-400:]!r}")


def test_in_a_real_browser_the_fleet_is_seen_and_keys_work_but_none_that_bills(
    served: Served, tmp_path: Path
) -> None:
    asyncio.run(_look(served, tmp_path / "browser"))


async def _look(served: Served, folder: Path) -> None:
    async with headless(folder) as page:
        await page.open(served.address)
        await page.until("rgt  fleet", "lab ", "1 box", "? help")
        blank = await page.blank_picture()
        fleet = await page.picture_where(lambda seen: len(seen) > 5 * len(blank))
        assert page.blocked, "the page of textual-serve names a font of another site"
        await page.press("D")
        text = await page.until("--readonly")
        assert "rgt  fleet" in text and "type the box's name" not in text
        await page.press("a")
        await page.until("› alerts")
        await page.picture_where(lambda seen: seen != fleet)
