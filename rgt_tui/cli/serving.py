"""``rgt serve``: the dashboard in a browser on this machine, on a loopback address and read-only.

Pages of other sites in the same browser, and other users of this machine, could open a web socket
to it. So requests without the secret of this run, from another origin, or for another host name are
refused.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from rgt_tui.cli.commands import FAILED, OK, USAGE
from rgt_tui.cli.opening import open_fleet
from rgt_tui.cli.printing import print_error
from rgt_tui.cli.watch_arguments import ServeArguments
from rgt_tui.fleet.config import FleetFileError
from rgt_tui.language import translate

LOOPBACK = ("127.0.0.1", "::1")
COOKIE = "rgt"
NOT_HERE = (
    "{host!r} can be reached by others; rgt serve listens only on 127.0.0.1 or ::1. "
    "From another computer: ssh -L {port}:127.0.0.1:{port} HOST rgt serve"
)
ONLY_OURS = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self' ws://{}; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Content policy of the page: nothing from other sites, such as the font in textual-serve's
page."""
MISSING = 'textual-serve is not installed: pip install "textual-serve<2"'


def run_serve(arguments: ServeArguments) -> int:
    """Serve until interrupted; return the exit code."""
    # A fixed list, not a check of the address: 0.0.0.0 and host names could mean other networks.
    if arguments.host not in LOOPBACK:
        print_error(translate(NOT_HERE, host=arguments.host, port=arguments.port))
        return USAGE
    try:
        # Only to refuse early: each browser window starts an rgt of its own, which reads it again.
        open_fleet(arguments, trusted=True)
    except FleetFileError as error:
        print_error(error)
        return USAGE
    try:
        import textual_serve  # noqa: F401
    except ImportError:
        print_error(MISSING)
        return USAGE
    try:
        return asyncio.run(
            _serve_dashboard(command_of(arguments.fleet), arguments.host, arguments.port)
        )
    except OSError as error:
        print_error(
            translate(
                "cannot listen on {host}:{port}: {strerror}; choose another --port",
                host=arguments.host,
                port=arguments.port,
                strerror=error.strerror or error,
            )
        )
        return FAILED


def command_of(fleet: str | None) -> str:
    """Return the command for each browser window: always read-only."""
    if fleet is None:
        named = []
    else:
        named = ["--fleet", fleet]
    return shlex.join([sys.executable, "-m", "rgt_tui", "--readonly", *named])


def is_allowed(request: Any, hosts: frozenset[str], secret: str) -> bool:
    """Return whether a request has this machine's name, our own origin, and the secret."""
    origin = request.headers.get("Origin")
    if request.headers.get("Host", "") not in hosts:
        return False
    if origin is not None and origin not in {f"http://{host}" for host in hosts}:
        return False
    given = request.query.get("key") or request.cookies.get(COOKIE, "")
    # Constant time, since the comparison is reachable by every local user.
    return hmac.compare_digest(given.encode(), secret.encode())


async def _serve_dashboard(command: str, host: str, port: int) -> int:
    from aiohttp import web
    from textual_serve.server import Server

    secret = secrets.token_urlsafe(24)
    shown = f"[{host}]" if ":" in host else host
    # Names that resolve to this machine by DNS of others (rebinding) are refused by this list.
    hosts = frozenset((f"{shown}:{port}", f"localhost:{port}"))
    server = Server(command, host=host, port=port, title="rgt", public_url=f"http://{shown}:{port}")

    async def check_request(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        if not is_allowed(request, hosts, secret):
            raise web.HTTPForbidden(text=translate("open the address that rgt serve printed\n"))
        if "key" in request.query:  # redirect, so that the secret leaves the address bar
            moved = web.HTTPFound("/")
            moved.set_cookie(COOKIE, secret, httponly=True, samesite="Strict")
            raise moved
        return await handler(request)

    async def add_security_headers(request: Any, response: Any) -> None:
        response.headers["Content-Security-Policy"] = ONLY_OURS.format(f"{shown}:{port}")
        response.headers["Referrer-Policy"] = "no-referrer"

    # Private, because textual-serve's public `serve` offers no middleware; hence "<2" in `MISSING`.
    app = await server._make_app()
    app.on_startup.clear()  # its banner would print the command
    app.middlewares.append(web.middleware(check_request))
    app.on_response_prepare.append(add_security_headers)
    runner = web.AppRunner(app)
    await runner.setup()
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    try:
        await web.TCPSite(runner, host, port).start()
        sys.stdout.write(
            translate(
                "read-only, until Ctrl-C: http://{shown}:{port}/?key={secret}\n",
                shown=shown,
                port=port,
                secret=secret,
            )
        )
        sys.stdout.flush()
        await over.wait()
    finally:
        await runner.cleanup()
    return OK
