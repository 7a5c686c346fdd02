"""Commands of a platform in a folder of their own, which say what a table says: for adapters that ask by a command.

Each is a real process. What it says, and what becomes of it, depends on the world's present state; that the words are
those of the real commands is tested where these run.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

COMMAND = """#!/bin/sh
here=${{0%/*}}
said="${{0##*/}} $*"
printf '%s\\n' "$said" >>"$here/asked"
read -r now <"$here/now"
case "$said" in
{cases}
*) echo "nobody wrote what this says: $said" >&2; exit 99;;
esac
answer="$here/$now.$call"
for fault in "$here"/fault.*; do
  [ -f "$fault" ] && [ ! -e "$here/met.${{fault##*.}}" ] && . "$fault"
done
. "$answer"
"""


@dataclass(frozen=True)
class Says:
    """How a command ends."""

    out: str = ""
    err: str = ""
    status: int = 0
    then: str | None = None
    """The state of the world after it."""

    def script(self) -> str:
        """Return it in the shell's words."""
        lines = [
            f"printf %s {quote(self.out)}" if self.out else "",
            f"echo {quote(self.err)} >&2" if self.err else "",
        ]
        if self.then is not None:
            lines.append(f'echo {quote(self.then)} >"$here/now"')
        return "\n".join((*filter(None, lines), f"exit {self.status}\n"))


@dataclass(frozen=True)
class CommandFault:
    """What goes wrong with the next command that begins with some words."""

    on: str
    status: int | None = None
    """It ends with this and `err`, and prints nothing."""
    err: str = ""
    out: str | None = None
    """It prints this instead, and ends with 0."""
    change: Callable[[str], object] | None = None
    """It prints another thing than it would have, always."""
    act: bool = False
    """It does what it is for before it goes wrong."""
    killed: bool = False
    hang: bool = False
    times: int = 1
    """A negative number = always."""


class LocalCommands:
    """A world of commands.

    Args:
        answers: State of the world → start of a command's words → what it says; a longer start counts before a shorter.
        state: The present one.
    """

    def __init__(self, answers: Mapping[str, Mapping[str, Says]], state: str = "on") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="commands-"))
        self._answers = {name: dict(says) for name, says in answers.items()}
        self._calls = sorted(
            {call for says in answers.values() for call in says}, key=lambda one: -len(one)
        )
        self._faults: list[CommandFault] = []
        self._always = 0
        (self.folder / "now").write_text(f"{state}\n")
        self._write()
        cases = "\n".join(
            f"{quote(call)}*) call={number};;" for number, call in enumerate(self._calls)
        )
        for name in {call.partition(" ")[0] for call in self._calls}:
            self.command(name).write_text(COMMAND.format(cases=cases))
            self.command(name).chmod(0o755)
        (self.folder / "env").symlink_to(shutil.which("env") or "/usr/bin/env")

    def _write(self) -> None:
        for state, says in self._answers.items():
            for number, call in enumerate(self._calls):
                text = (
                    says[call].script()
                    if call in says
                    else "echo not so in this state >&2; exit 98\n"
                )
                (self.folder / f"{state}.{number}").write_text(text)

    def command(self, name: str) -> Path:
        """Return the file of a command."""
        return self.folder / name

    @property
    def env(self) -> dict[str, str]:
        """The environment in which these commands, and no others, are found."""
        return {"PATH": str(self.folder)}

    @property
    def requests(self) -> list[str]:
        """The words of each command that was run."""
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def state(self) -> str:
        """The present state of the world."""
        return (self.folder / "now").read_text().strip()

    @property
    def met(self) -> int:
        """How many faults were met."""
        return self._always + len(list(self.folder.glob("met.*")))

    def inject(self, *faults: CommandFault) -> None:
        """Let the next commands that begin so go wrong."""
        for fault in faults:
            if fault.change is not None:
                self._edit(fault.on, fault.change)
                continue
            number = len(self._faults)
            self._faults.append(fault)
            once = f': >"$here/met.{number}"' if fault.times > 0 else ":"
            done = '(. "$answer") >/dev/null 2>&1' if fault.act else ":"
            ends = Says(out=fault.out or "", err=fault.err, status=fault.status or 0).script()
            if fault.killed:
                ends = "kill -9 $$\n"
            if fault.hang:
                ends = f"exec {shutil.which('sleep')} 600\n"
            script = f'case "$said" in {quote(fault.on)}*) {once}\n{done}\n{ends};;\nesac\n'
            (self.folder / f"fault.{number}").write_text(script)

    def _edit(self, on: str, change: Callable[[str], object]) -> None:
        edited = 0
        for says in self._answers.values():
            for call, answer in says.items():
                if call.startswith(on) and answer.out:
                    new = str(change(answer.out))
                    edited += new != answer.out
                    says[call] = replace(answer, out=new)
        self._always += bool(edited)
        self._write()

    async def start(self) -> None:
        """There is nothing to start."""

    async def wait_settled(self) -> None:
        """Everything has its effect at once."""

    async def stop(self) -> None:
        """Take the folder away."""
        shutil.rmtree(self.folder, ignore_errors=True)
