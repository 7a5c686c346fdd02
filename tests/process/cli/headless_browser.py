"""A real browser without a window, driven over its DevTools protocol (https://chromedevtools.github.io/devtools-protocol/)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium-headless-shell", "chromium", "google-chrome", "chromium-browser")
"""Programs that speak the protocol; the first one that is there is used."""
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu-sandbox", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--remote-debugging-port=0", "--window-size=900,500",
    # Nothing but this machine is found: a page that needs more does not work.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip
WAIT_S = 120.0
CATCH_TERMINAL = """
Object.defineProperty(Object.prototype, "fitAddon", {
  configurable: true,
  set(value) {
    Object.defineProperty(this, "fitAddon", {value, writable: true});
    window.shown = this.terminal;
  },
});
"""
"""Makes the page's xterm.js reachable, which its script keeps to itself."""
READ_TERMINAL = """
(() => {
  const buffer = window.shown && window.shown.buffer.active, rows = [];
  for (let row = 0; buffer && row < window.shown.rows; row++) rows.push(buffer.getLine(row).translateToString(true));
  return rows.join("\\n");
})()
"""


def program() -> str:
    """Return the browser; without one the test fails where CI runs it, and is skipped elsewhere."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("no headless Chromium; it is one of the system parts (make parts)")
        pytest.skip("no headless Chromium (make parts installs it)")
    return found


class Page:
    """One page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._session: str | None = None
        self.blocked = 0
        """How much of another site the page wanted, and was not allowed to have."""

    async def call(self, method: str, **words: Any) -> dict[str, Any]:
        """Call a method of the protocol."""
        self._number += 1
        body: dict[str, Any] = {"id": self._number, "method": method, "params": words}
        await self._socket.send_json(
            body if self._session is None else body | {"sessionId": self._session}
        )
        async with asyncio.timeout(WAIT_S):
            while True:
                told = await self._socket.receive_json()
                if told.get("method") == "Network.loadingFailed":
                    self.blocked += told["params"].get("blockedReason") == "csp"
                if told.get("id") == self._number:
                    assert "error" not in told, told
                    return dict(told["result"])

    async def open(self, address: str) -> None:
        """Open an address in a tab of its own."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self._session = attached["sessionId"]
        await self.call("Network.enable")
        await self.call("Page.enable")
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=CATCH_TERMINAL)
        await self.call("Page.navigate", url=address)

    async def evaluate(self, script: str) -> Any:
        """Return what a piece of JavaScript says in the page."""
        return (await self.call("Runtime.evaluate", expression=script))["result"].get("value")

    async def text(self) -> str:
        """Return what xterm.js shows."""
        return str(await self.evaluate(READ_TERMINAL))

    async def until(self, *words: str) -> str:
        """Wait until the terminal shows all of some words; return all that it shows."""
        text = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                while True:
                    text = await self.text()
                    if all(word in text for word in words):
                        return text
                    await asyncio.sleep(0.02)
        raise AssertionError(f"{words} are not shown:\n{text}")

    async def press(self, key: str) -> None:
        """Press the key of a letter in the terminal."""
        await self.evaluate("window.shown.focus()")
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def picture_where(self, right: Callable[[bytes], bool]) -> bytes:
        """Return the first picture that is right: what the terminal shows is painted a moment later."""
        async with asyncio.timeout(WAIT_S):
            while True:
                picture = await self.picture()
                if right(picture):
                    return picture

    async def blank_picture(self) -> bytes:
        """Return how the page would look if it showed nothing."""
        await self.evaluate("document.body.style.visibility = 'hidden'")
        try:
            return await self.picture()
        finally:
            await self.evaluate("document.body.style.visibility = ''")

    async def picture(self) -> bytes:
        """Return the page as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])


@contextlib.asynccontextmanager
async def headless(folder: Path) -> AsyncIterator[Page]:
    """Run a browser, with a profile of its own."""
    process = await asyncio.create_subprocess_exec(
        program(), *OPTIONS, f"--user-data-dir={folder}", "about:blank",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        said = b""
        async with asyncio.timeout(WAIT_S):
            while b"DevTools listening on " not in said:
                said = await process.stderr.readline()
                assert said, "the browser ended before it listened"
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(said.split()[-1].decode(), max_msg_size=1 << 26) as socket,
        ):
            yield Page(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        await process.wait()
