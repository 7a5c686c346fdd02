"""A shell on a box: the app steps aside and comes back; inside tmux, it gets a window of its own."""

from __future__ import annotations

import asyncio
import os
import posixpath
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from textual.app import SuspendNotSupported

from rgt_tui.fleet import FleetSource, NotOffered
from rgt_tui.language import translate
from rgt_tui.model import LOOPBACK, BoxSpec, BoxState, Tunnel, is_exact_path, parse_tunnel
from rgt_tui.ui.box_status import choose_log
from rgt_tui.ui.commands import key_for

if TYPE_CHECKING:
    from textual.app import App


class CannotOpenShell(Exception):
    """No shell can be opened; the message says why and what to do."""


def shell_in(folder: str) -> str:
    """Return the command line that opens a login shell in a directory of a box."""
    return f'cd {shlex.quote(folder)} && exec "${{SHELL:-/bin/sh}}" -l'


def page_from(path: str, line: int | None) -> str:
    """Return the command line that shows a file of a box in its pager, at a line (1 = first)."""
    file = shlex.quote(path)
    start = "" if line is None else f"+{line} "
    # `more` for boxes that have no `less`; `--`, because a path may begin with a dash.
    return f"less {start}-- {file} || more {start}{file}"


async def open_in_terminal(
    app: App[Any], title: str, words: Sequence[str], env: Mapping[str, str] = os.environ
) -> str:
    """Run a program in the terminal until it ends; return what to say afterwards.

    Inside tmux the program gets a window of its own, and the app stays where it is. Meanwhile the
    fleet is watched on; nothing is drawn.

    Args:
        app: The running app.
        title: Name of the tmux window.
        words: The program and its arguments.
        env: The process's environment.

    Raises:
        CannotOpenShell: The app has no terminal that it could leave, or the program cannot start.
    """
    try:
        if env.get("TMUX") and shutil.which("tmux", path=env.get("PATH")):
            # `exec`: tmux runs its words in a shell
            opening = ("tmux", "new-window", "-n", title, f"exec {shlex.join(words)}")
            process = await asyncio.create_subprocess_exec(
                *opening, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
            )
            _, errors = await process.communicate()
            if process.returncode == 0:
                return translate("{title}: a shell in a new tmux window", title=title)
            raise CannotOpenShell(
                translate("tmux: {errors}", errors=errors.decode(errors="replace").strip())
            )
        # No redraw may write into the shell's terminal while the app is suspended.
        with app.batch_update(), app.suspend():
            print(
                translate("rgt: {title}; exit brings rgt back", title=title),
                file=sys.__stdout__,
                flush=True,
            )
            process = await asyncio.create_subprocess_exec(*words)
            status = await process.wait()
    except SuspendNotSupported:
        raise CannotOpenShell(
            translate("this terminal belongs to another program: use rgt ssh")
        ) from None
    except OSError as error:
        raise CannotOpenShell(f"{words[0]}: {error.strerror or error}") from error
    if status == 255:  # of ssh itself, not of the shell
        return translate("{title}: ssh could not connect, or lost the connection", title=title)
    return translate("{title}: the shell has ended", title=title)


class ShellScreen(Protocol):
    """What the keys need from their screen."""

    app: App[Any]

    @property
    def fleet(self) -> FleetSource:
        """The fleet."""
        ...

    def find_target(self) -> BoxState | None:
        """Return the box that the keys act on; None, with a hint, if there is none."""
        ...

    def hint(self, text: str) -> None:
        """Show a text on the event line."""
        ...

    def open_entry(self, label: str, text: str = "", done: Callable[[str], None] = ...) -> None:
        """Ask for a line of text."""
        ...


class ShellKeys:
    """The keys of a screen that open a shell on the box that its keys act on."""

    def find_shell_command(self, box: BoxState) -> str:
        """Return what ``S`` runs in the terminal: here a shell in the directory of the box's run.

        Raises:
            CannotOpenShell: Nothing is known to go to.
        """
        log = choose_log(box, None)
        # A path that cannot be shown exactly is never used in a command.
        if log is None or not is_exact_path(log.path):
            raise CannotOpenShell(
                translate(
                    "no run of {name} is known: {key}", name=box.spec.name, key=key_for("box.shell")
                )
            )
        return shell_in(posixpath.dirname(log.path))

    def action_shell(self, at_run: bool) -> None:
        """Open a shell on the box, in its home directory or in that of its run."""
        screen = cast("ShellScreen", self)
        box = screen.find_target()
        if box is None:
            return
        name = box.spec.name
        try:
            command = self.find_shell_command(box) if at_run else ""
            words = list(screen.fleet.shell_words(name, command))
        except (CannotOpenShell, NotOffered) as error:
            screen.hint(str(error) or translate("there is no box to connect to here"))
        else:
            screen.app.run_worker(_open_and_report(screen, name, words), group="shell")

    def action_forward(self) -> None:
        """Ask for a port of the box, and forward it until rgt quits."""
        screen = cast("ShellScreen", self)
        box = screen.find_target()
        if box is not None:
            label = translate("port of {name} (6006, 8080:6006, socks:1080)", name=box.spec.name)
            screen.open_entry(label, done=partial(self._forward_typed_port, box))

    def _forward_typed_port(self, box: BoxState, text: str) -> None:
        screen = cast("ShellScreen", self)
        if not text.strip():
            return
        try:
            tunnel = parse_tunnel(text.strip())
        except ValueError as error:
            screen.hint(str(error))
            return
        screen.app.run_worker(
            _forward_port(screen.app, box.spec, tunnel), group="forward", exit_on_error=False
        )


async def _forward_port(app: App[Any], spec: BoxSpec, tunnel: Tunnel) -> None:
    """Keep a port forwarded until the app ends, and say on its event line how it goes."""
    from rgt_tui.fleet.work.tunneling import BoxTunnels

    def say(text: str, seconds: float = 30.0) -> None:
        hint = getattr(app.screen, "hint", None)
        if callable(hint):
            hint(f"{spec.name}: {text}", seconds)

    work = BoxTunnels(spec, [tunnel], say)
    try:
        ((_, port),) = await work.listen()
        scheme = "http" if tunnel.host else "socks5"
        where = f"{scheme}://{LOOPBACK}:{port}/"
        say(translate("connecting for {where}", where=where))
        await work.run(
            lambda: say(
                translate(
                    "{where} leads to {remote_end}, until rgt quits",
                    where=where,
                    remote_end=tunnel.remote_end,
                )
            )
        )
    except Exception as error:  # whatever ended it, the person must hear that it has
        say(
            translate(
                "port {local} is not forwarded: {error}",
                local=tunnel.local,
                error=error or type(error).__name__,
            )
        )
    finally:
        await work.close()


async def _open_and_report(screen: ShellScreen, box: str, words: Sequence[str]) -> None:
    try:
        screen.hint(await open_in_terminal(screen.app, box, words))
    except CannotOpenShell as error:
        screen.hint(f"{box}: {error}")
