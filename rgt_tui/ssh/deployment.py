"""Puts the agent or the trainer on a box: finds a Python, and writes the zipapp once, named by its content hash.

The file is written to a temporary name, its hash is checked on the box, it is fsynced and renamed. A name that
exists with that content is never written to again: an older client may still run that very file. Where it may stand,
and what is done on a full disk, is in ``rgt_box/landing.py``, which runs there.
"""

from __future__ import annotations

import functools
import shlex

import asyncssh
import msgspec

from rgt_tui.model import clean, exact
from rgt_tui.ssh.bundle import PACKAGE, AgentBundle, remote_root
from rgt_tui.ssh.remote_command import run
from rgt_tui.ssh.ssh_errors import DeployFailed, NoCommands, NoPython

MOST_BYTES = 1 << 16
NAMES = ("python3", "python", *(f"python3.{minor}" for minor in range(14, 7, -1)))
"""What is looked for in PATH: distributions keep a newer one beside the old `python3`."""
PLACES = (
    '/usr/bin/python3', '/usr/local/bin/python3',
    '"$VIRTUAL_ENV"/bin/python', '"$CONDA_PREFIX"/bin/python', '"$HOME"/.venv/bin/python', '"$HOME"/venv/bin/python',
    '"$HOME"/*conda*/bin/python', '"$HOME"/*forge*/bin/python', '"$HOME"/.conda/envs/*/bin/python',
    '"$HOME"/*conda*/envs/*/bin/python', '"$HOME"/.local/bin/python3*',
    '"$HOME"/.pyenv/versions/*/bin/python', '"${PYENV_ROOT:-/opt/pyenv}"/versions/*/bin/python',
    '"${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}"/*/bin/python3', '/root/*conda*/bin/python',
    '/opt/*conda*/bin/python', '/opt/*conda*/envs/*/bin/python', '/opt/*forge*/bin/python', '/venv/*/bin/python',
    '/opt/*venv*/bin/python', '/workspace/*venv*/bin/python', '"$HOME"/*mamba*/envs/*/bin/python',
    '/usr/bin/python3.[0-9]*', '/usr/local/bin/python3.[0-9]*',
    '/opt/python*/bin/python3', '/opt/python/*/bin/python3',
)  # fmt: skip
"""Where else: as a POSIX shell expands them. A login without a shell's start-up files has a short PATH."""
SAID = (
    f"{NAMES[0]} and {NAMES[-1]} to {NAMES[2]} in PATH, conda, mamba, pyenv, uv and virtual environments in the home "
    "directory, /opt, /venv and /workspace"
)

_SHELL = "RGT-SHELL"
_PROBE = """
printf '\\nRGT-SHELL\\n'
for p in {candidates}; do
  "$p" -I -S -c {new_enough} {look} look {filename} {digest} {spare} 2>/dev/null || continue
  exit 0
done
exit 7
"""
"""Without a here-document: for those a shell writes a file, which a full disk has no room for."""

_NEW_ENOUGH = "import sys; sys.exit(7) if sys.hexversion < 0x3080000 else exec(sys.argv.pop(1))"
"""An older Python ends here: it need not understand the rest, and so one start tells both."""

_READ = "import sys; exec(sys.stdin.buffer.read(int(sys.argv.pop(1))))"
"""Runs the script that stands before the agent on standard input: csh and its kin take no argument of several lines."""


ALONE = ("-I", "-S")
"""As for each process that the agent starts itself (``rgt_box.place.command``): nothing of the user's environment
shadows the standard library, and ``site``, which may take longer than all the rest, is left out."""


class Deployed(msgspec.Struct, frozen=True):
    """Where the agent is on a box."""

    python: str
    path: str
    note: str = ""
    """What is not as it should be: another place, or an older agent, and why."""
    options: tuple[str, ...] = ()
    """Of the Python."""

    def command(self, *arguments: str) -> str:
        """Return the shell command that runs the agent with these arguments."""
        return shlex.join([self.python, *self.options, self.path, *arguments])


def candidates(pythons: tuple[str, ...]) -> str:
    """Return the interpreters to try, the given ones first, as words for a POSIX shell."""
    return " ".join((*map(shlex.quote, (*pythons, *NAMES)), *PLACES))


@functools.cache
def _landing() -> str:
    return (remote_root() / PACKAGE / "landing.py").read_text(encoding="utf-8")


async def deploy(
    connection: asyncssh.SSHClientConnection,
    bundle: AgentBundle,
    pythons: tuple[str, ...] = (),
    *,
    spare: bool = True,
) -> Deployed:
    """Make sure that the agent is on the box.

    Args:
        connection: To the box.
        bundle: The agent.
        pythons: Interpreters to try first.
        spare: Where it cannot be written to the home directory, another place or an older agent will do.

    Raises:
        NoCommands: the box gives no shell to commands.
        CommandFailed: it did not answer in time.
        Unreachable: the connection was lost.
        NoPython: no Python >= 3.8 among `pythons` and the usual places.
        DeployFailed: it could not be written; the box's own words are passed on.
    """
    words = [bundle.filename, bundle.digest, "1" if spare else ""]
    script = _PROBE.format(
        candidates=candidates(pythons),
        new_enough=shlex.quote(_NEW_ENOUGH),
        look=shlex.quote(_landing()),
        filename=shlex.quote(words[0]),
        digest=words[1],
        spare=shlex.quote(words[2]),
    )
    probe = await run(
        connection, "sh -s", data=script.encode(), most_bytes=MOST_BYTES, name="the first look"
    )
    lines = probe.out.decode(errors="replace").splitlines()
    if _SHELL not in lines:
        said = clean(next((line for line in lines if line.strip()), "") or probe.words)[:200]
        raise NoCommands("the box runs no commands" + (f"; it says: {said}" if said else ""))
    row = _row(probe.out)
    if row is None:
        named = "".join(f"{python}, " for python in pythons)
        raise NoPython(
            f"no Python 3.8 or newer on the box (looked for: {named}{SAID}); set `python` for this box"
        )
    python, path, said = row
    exists, _, why = said.partition(" ")
    if exists == "1":
        return Deployed(python, path, _note(path, "", why), ALONE)
    writer = _landing().encode()
    command = shlex.join([python, "-I", "-S", "-c", _READ, str(len(writer)), "write", *words])
    written = await run(connection, command, data=writer + bundle.data, name="writing the agent")
    row = _row(written.out)
    if written.status != 0 or row is None:
        raise DeployFailed(
            f"cannot write the agent to {path}: {written.words or f'exit {written.status}'}"
        )
    path, why, kind = row
    return Deployed(python, path, _note(path, kind, why), ALONE)


def _note(path: str, kind: str, why: str) -> str:
    if not why:
        return ""
    what = (
        f"an older agent runs ({path}): this one"
        if kind == "older"
        else f"the agent is in {path}: it"
    )
    return f"{what} could not be written to the home directory ({why}); fix that and press retry"


def _row(out: bytes) -> tuple[str, str, str] | None:
    """Return the box side's answer; None where there is none.

    Raises:
        DeployFailed: it names what a terminal would obey.
    """
    rows = [
        line.split("\t")
        for line in out.decode(errors="replace").splitlines()
        if line.startswith("RGT\t")
    ]
    found = next(
        (row for row in rows if len(row) == len(("RGT", "python", "path", "exists"))), None
    )
    if found is None:
        return None
    _, *values = found
    for word in values:
        if clean(word) != word:
            shown = clean(word)[:200]
            raise DeployFailed(
                f"the box names a path with characters that cannot be shown, and rgt does not use it: {shown}"
            )
    return values[0], values[1], values[2]


OLDEST_TORCH = (2, 4)

_TORCH_PROBE = """
echo
for p in {candidates}; do
  "$p" -c {look} 2>/dev/null && exit 0
done
exit 0
"""
_VERSION = f"""
import sys
try:
    from importlib.metadata import version
    found = version("torch")
except Exception:
    found = ""
print("RGT\\t%s\\t%s" % (sys.executable, found))
sys.stdout.flush()
new = [int(part) for part in found.split("+")[0].split(".")[:2] if part.isdigit()] >= {list(OLDEST_TORCH)}
sys.exit(0 if new else 1)
"""
"""The first that is new enough ends the search: there may be dozens of interpreters."""


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
    connection: asyncssh.SSHClientConnection,
    box: str,
    bundle: AgentBundle,
    pythons: tuple[str, ...] = (),
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
    python, torch = await find_torch(connection, pythons, deployed.python)
    return Pushed(
        box=box,
        path=deployed.path,
        sha256=bundle.digest,
        python=python,
        torch=torch,
        launch=shlex.join(
            [
                python,
                deployed.path,
                "--task",
                "char_lm",
                "--epochs",
                "4",
                "--seed",
                "0",
                "--out",
                "RUN",
            ]
        ),
        library=f"PYTHONPATH={shlex.quote(deployed.path)}",
    )


async def find_torch(
    connection: asyncssh.SSHClientConnection, pythons: tuple[str, ...], otherwise: str
) -> tuple[str, str | None]:
    """Return the Python of a box to train with, and the version of its torch; None where no Python there has one.

    Args:
        connection: To the box.
        pythons: Where to look first.
        otherwise: A Python that is known to be there.

    Raises:
        BoxError: the box did not answer.
    """
    probe = await run(
        connection,
        "sh -s",
        data=_TORCH_PROBE.format(
            candidates=candidates(pythons), look=shlex.quote(_VERSION)
        ).encode(),
        name="looking for torch",
    )
    return best_python(probe.out.decode(errors="replace"), otherwise)


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
    having = [
        (python, clean(torch)) for _, python, torch in rows if torch.strip() and exact(python)
    ]
    for python, torch in having:
        if version_of(torch) >= OLDEST_TORCH:
            return python, torch
    if having:
        return having[0]
    return (otherwise, None)


def version_of(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; empty where it begins with none."""
    numbers: list[int] = []
    for part in text.split("+", 1)[0].split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
