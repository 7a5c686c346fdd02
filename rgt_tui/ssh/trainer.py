"""Put the trainer on a box, and find the Python there that has torch."""

from __future__ import annotations

import shlex

import asyncssh
import msgspec

from rgt_tui.model.plain import clean, exact
from rgt_tui.ssh.bundle import AgentBundle
from rgt_tui.ssh.command import run
from rgt_tui.ssh.deploy import candidates, deploy

OLDEST_TORCH = (2, 4)

_PROBE = """
echo
for p in {candidates}; do
  "$p" -c {look} 2>/dev/null
done
exit 0
"""
_VERSION = """
import sys
try:
    from importlib.metadata import version
    found = version("torch")
except Exception:
    found = ""
print("RGT\\t%s\\t%s" % (sys.executable, found))
"""


class Pushed(msgspec.Struct, frozen=True):
    """The trainer on a box."""

    box: str
    path: str
    """On the box. A file of this name never changes."""
    sha256: str
    python: str
    """The Python to launch it with: the first that has torch, else the first of all."""
    torch: str | None
    """The version of its torch; None where no Python has one."""
    launch: str
    """The command that trains; the same again goes on where it stopped."""
    library: str
    """What to put before the launch of a loop of one's own that imports ``rgt_train``."""

    @property
    def problem(self) -> str | None:
        """What keeps it from training there, in words."""
        if self.torch is None:
            return "no Python there has torch; install torch >= 2.4, or set `python` for this box"
        if version_of(self.torch) < OLDEST_TORCH:
            return f"torch {self.torch} of {self.python} is older than 2.4"
        return None


async def push(
    connection: asyncssh.SSHClientConnection, box: str, bundle: AgentBundle, pythons: tuple[str, ...] = ()
) -> Pushed:
    """Make sure that the trainer is on the box; a file that is there already is not written again.

    Args:
        connection: To the box.
        box: Its name.
        bundle: The trainer.
        pythons: Where to look for a Python first.

    Raises:
        BoxError: no Python, no room, or no shell; the box's own words are passed on.
    """
    deployed = await deploy(connection, bundle, pythons, spare=False)
    probe = await run(
        connection,
        "sh -s",
        data=_PROBE.format(candidates=candidates(pythons), look=shlex.quote(_VERSION)).encode(),
        name="looking for torch",
    )
    python, torch = best_python(probe.out.decode(errors="replace"), deployed.python)
    return Pushed(
        box=box,
        path=deployed.path,
        sha256=bundle.digest,
        python=python,
        torch=torch,
        launch=shlex.join(
            [python, deployed.path, "--task", "char_lm", "--epochs", "4", "--seed", "0", "--out", "RUN"]
        ),
        library=f"PYTHONPATH={shlex.quote(deployed.path)}",
    )


def best_python(text: str, otherwise: str) -> tuple[str, str | None]:
    """Return the first Python with a torch that is new enough, else the first with any, else `otherwise`.

    Args:
        text: What the probe printed.
        otherwise: A Python that is known to be there.
    """
    rows = [
        parts
        for line in text.splitlines()
        if line.startswith("RGT\t") and len(parts := line.split("\t")) == 3
    ]
    having = [(python, clean(torch)) for _, python, torch in rows if torch.strip() and exact(python)]
    for python, torch in having:
        if version_of(torch) >= OLDEST_TORCH:
            return python, torch
    return having[0] if having else (otherwise, None)


def version_of(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; empty where it begins with none."""
    numbers: list[int] = []
    for part in text.split("+", 1)[0].split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
