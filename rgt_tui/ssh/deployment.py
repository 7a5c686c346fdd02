"""Deploys the agent or the trainer on a box: finds a Python, and writes the zipapp by its hash.

The file is written under a temporary name, verified by hash on the box, fsynced and renamed. An
existing file with that name and content is never written again: an older client may be running it.
The code that chooses the directory and handles a full disk is ``rgt_box/landing.py``, which runs on
the box.
"""

from __future__ import annotations

import functools
import shlex

from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, clean_text, is_exact_path
from rgt_tui.ssh.box_transport import BoxTransport, DeployFailed, NoPython
from rgt_tui.ssh.bundle import PACKAGE, AgentBundle, remote_root
from rgt_tui.ssh.login_shell import quote_words, refuse_restricted
from rgt_tui.ssh.remote_command import run_command, run_first_script
from rgt_tui.ssh.ssh_config import NO_AGENT

MOST_BYTES = 1 << 16
NAMES = ("python3", "python", *(f"python3.{minor}" for minor in range(14, 7, -1)))
"""Names searched in PATH: distributions install newer versions next to an old `python3`."""
PLACES = (
    '/usr/bin/python3', '/usr/local/bin/python3',
    '"$VIRTUAL_ENV"/bin/python', '"$CONDA_PREFIX"/bin/python', '"$HOME"/.venv/bin/python',
    '"$HOME"/venv/bin/python',
    '"$HOME"/*conda*/bin/python', '"$HOME"/*forge*/bin/python', '"$HOME"/.conda/envs/*/bin/python',
    '"$HOME"/*conda*/envs/*/bin/python', '"$HOME"/.local/bin/python3*',
    '"$HOME"/.pyenv/versions/*/bin/python', '"${PYENV_ROOT:-/opt/pyenv}"/versions/*/bin/python',
    '"${UV_PYTHON_INSTALL_DIR:-$HOME/.local/share/uv/python}"/*/bin/python3',
    '/root/*conda*/bin/python',
    '/opt/*conda*/bin/python', '/opt/*conda*/bin/python3', '/opt/*conda*/envs/*/bin/python',
    '/opt/*forge*/bin/python', '/venv/*/bin/python',
    '/opt/*venv*/bin/python', '/workspace/*venv*/bin/python', '"$HOME"/*mamba*/envs/*/bin/python',
    '/usr/bin/python3.[0-9]*', '/usr/local/bin/python3.[0-9]*',
    '/opt/python*/bin/python3', '/opt/python/*/bin/python3',
)  # fmt: skip
"""Other places, as shell patterns. A login without a shell's start-up files has a short PATH."""
SAID = (
    f"{NAMES[0]} and {NAMES[-1]} to {NAMES[2]} in PATH, also that of a login shell, conda, mamba, "
    "pyenv, uv and virtual environments in the home directory, /opt, /venv and /workspace"
)

_PROBE = """
try_python() {{
  "$1" -I -S -Xutf8 -c {new_enough} {look} look {filename} {digest} {spare} 2>/dev/null && exit 0
}}
for p in {candidates}; do try_python "$p"; done
for p in $(timeout 8 "${{SHELL:-/bin/sh}}" -lc 'command -v python3; command -v python' </dev/null 2>/dev/null |
  grep '^/.*/python[0-9.]*$'); do try_python "$p"; done
exit 7
"""
"""If none is found, the login shell is asked: its start-up files may put a module's or conda's on
its PATH. There is no here-document: for those a shell writes a temporary file, which fails on a
full disk.
"""

_NEW_ENOUGH = "import sys; sys.exit(7) if sys.hexversion < 0x3080000 else exec(sys.argv.pop(1))"
"""An older Python exits here without parsing the rest, so one start both finds and checks it."""

_READ = "import sys; exec(sys.stdin.buffer.read(int(sys.argv.pop(1))))"
"""Runs the script that precedes the agent on stdin: csh and similar shells reject multi-line
arguments.
"""


ALONE = ("-I", "-S", "-Xutf8")
"""Same as for each process that the agent starts (``rgt_box.place.command``): nothing in the user's
environment shadows the standard library, and ``site``, which may take longer than everything else,
is skipped. Names are UTF-8, and other bytes are kept, in any locale of the box.
"""


class DeployedAgent(FrozenStruct):
    """Where the agent is on a box."""

    python: str
    path: str
    note: str = ""
    """A deviation: another directory, or an older agent, and why."""
    options: tuple[str, ...] = ()
    """Options of the Python."""

    def build_command(self, *arguments: str) -> str:
        """Return the shell command that runs the agent with these arguments."""
        return quote_words(self.python, *self.options, self.path, *arguments)


def candidates(pythons: tuple[str, ...]) -> str:
    """Return the interpreters to try, the given ones first, as words for a POSIX shell."""
    return " ".join((*map(shlex.quote, (*pythons, *NAMES)), *PLACES))


@functools.cache
def _landing_source() -> str:
    return (remote_root() / PACKAGE / "landing.py").read_text(encoding="utf-8")


async def deploy_agent(
    connection: BoxTransport,
    bundle: AgentBundle,
    pythons: tuple[str, ...] = (),
    *,
    spare: bool = True,
) -> DeployedAgent:
    """Make sure that the agent is on the box.

    Args:
        connection: To the box.
        bundle: The agent.
        pythons: Interpreters to try first.
        spare: If the home directory is not writable, another directory or an older agent will do.

    Raises:
        NoCommands: the box offers no shell for commands.
        CommandFailed: it did not answer in time.
        Unreachable: the connection was lost.
        NoPython: no Python >= 3.8 among `pythons` and the usual places, or no agent is wanted.
        DeployFailed: it could not be written; the message contains the box's own.
    """
    if pythons == (NO_AGENT,):
        # A login that runs no commands must be reported even if no agent is wanted.
        await run_first_script(connection)
        raise NoPython(translate('nothing is put on this box, because `python` is "none"'))
    # The digest, too: a file of this name may have been cut off by a full disk.
    words = [bundle.filename, bundle.digest, "1" if spare else ""]
    script = _PROBE.format(
        candidates=candidates(pythons),
        new_enough=shlex.quote(_NEW_ENOUGH),
        look=shlex.quote(_landing_source()),
        filename=shlex.quote(words[0]),
        digest=words[1],
        spare=shlex.quote(words[2]),
    )
    probe = await run_first_script(connection, script, most_bytes=MOST_BYTES)
    # Python's answer, not the exit status: start-up files may change that.
    row = _find_answer(probe.out)
    if row is None:
        named = "".join(f"{python}, " for python in pythons)
        raise NoPython(
            translate(
                "no Python 3.8 or newer on the box (looked for: {named}{said}); set `python` for "
                "this box",
                named=named,
                said=SAID,
            )
        )
    python, path, said = row
    exists, _, why = said.partition(" ")
    # The usual case: nothing is sent.
    if exists == "1":
        return DeployedAgent(python, path, _describe_fallback(path, "", why), ALONE)
    # The number of bytes goes before: Python reads exactly the script, and the rest is the agent.
    writer = _landing_source().encode()
    command = quote_words(python, *ALONE, "-c", _READ, str(len(writer)), "write", *words)
    written = await run_command(
        connection, command, data=writer + bundle.data, name="writing the agent"
    )
    row = _find_answer(written.out)
    if written.status != 0 or row is None:
        refuse_restricted(written.words)
        raise DeployFailed(
            translate(
                "cannot write the agent to {path}: {words}",
                path=path,
                words=written.words or f"exit {written.status}",
            )
        )
    path, why, kind = row
    return DeployedAgent(python, path, _describe_fallback(path, kind, why), ALONE)


def _describe_fallback(path: str, kind: str, why: str) -> str:
    if not why:
        return ""
    if kind == "older":
        what = f"an older agent runs ({path}): this one"
    else:
        what = f"the agent is in {path}: it"
    return f"{what} could not be written to the home directory ({why}); fix that and press retry"


def _find_answer(out: bytes) -> tuple[str, str, str] | None:
    """Return the answer of the box; None without one.

    Raises:
        DeployFailed: it contains terminal control characters.
    """
    rows = [
        line.split("\t")
        for line in out.decode(errors="replace").splitlines()
        if line.startswith("RGT\t")
    ]
    # Other lines with this beginning are of start-up files, or cut off.
    found = next(
        (row for row in rows if len(row) == len(("RGT", "python", "path", "exists"))), None
    )
    if found is None:
        return None
    _, *values = found
    # The path is put into command lines and shown: control characters would falsify both.
    for word in values:
        if clean_text(word) != word:
            shown = clean_text(word)[:200]
            raise DeployFailed(
                translate(
                    "the box names a path with characters that cannot be shown, and rgt does not "
                    "use it: {shown}",
                    shown=shown,
                )
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
"""The first new enough version ends the search: there may be dozens of interpreters."""


class DeployedTrainer(FrozenStruct):
    """The trainer on a box."""

    box: str
    path: str
    """Path on the box. The content of a file with this name never changes."""
    sha256: str
    python: str
    """The Python for launching it: the first with torch, otherwise the first found."""
    torch: str | None
    """The version of its torch; None if no Python has one."""
    launch: str
    """The command that trains; repeating it resumes the run."""
    library: str
    """Prefix for launching a custom training loop that imports ``rgt_train``."""

    @property
    def training_problem(self) -> str | None:
        """Why it cannot train there, as text."""
        if self.torch is None:
            return "no Python there has torch; install torch >= 2.4, or set `python` for this box"
        if version_of(self.torch) < OLDEST_TORCH:
            return f"torch {self.torch} of {self.python} is older than 2.4"
        return None


async def deploy_trainer(
    connection: BoxTransport,
    box: str,
    bundle: AgentBundle,
    pythons: tuple[str, ...] = (),
) -> DeployedTrainer:
    """Make sure that the trainer is on the box. An existing file is not written again.

    Args:
        connection: To the box.
        box: Its name.
        bundle: The trainer.
        pythons: Interpreters to try first.

    Raises:
        BoxError: no Python, no room, or no shell; the message contains the box's own.
    """
    # spare=False: an older trainer must not take the place of this one, whose path is promised.
    deployed = await deploy_agent(connection, bundle, pythons, spare=False)
    python, torch = await find_torch(connection, pythons, deployed.python)
    return DeployedTrainer(
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
    connection: BoxTransport, pythons: tuple[str, ...], otherwise: str
) -> tuple[str, str | None]:
    """Return the Python of a box to train with, and its torch version; None if none has torch.

    Args:
        connection: To the box.
        pythons: Interpreters to try first.
        otherwise: A Python that is known to exist.

    Raises:
        BoxError: the box did not answer.
    """
    probe = await run_command(
        connection,
        "sh -s",
        data=_TORCH_PROBE.format(
            candidates=candidates(pythons), look=shlex.quote(_VERSION)
        ).encode(),
        name="looking for torch",
    )
    return best_python(probe.out.decode(errors="replace"), otherwise)


async def find_python_with(
    connection: BoxTransport, pythons: tuple[str, ...], code: str
) -> str | None:
    """Return the first Python of a box that runs some code without an error; None if none does.

    Args:
        connection: To the box.
        pythons: Interpreters to try first.
        code: Statements, such as the import of a library.

    Raises:
        BoxError: the box did not answer.
    """
    said = f"import sys\n{code}\nprint('RGT\\t%s\\t.' % sys.executable)"
    probe = await run_command(
        connection,
        "sh -s",
        data=_TORCH_PROBE.format(candidates=candidates(pythons), look=shlex.quote(said)).encode(),
        name="looking for a Python",
    )
    for line in probe.out.decode(errors="replace").splitlines():
        parts = line.split("\t")
        if len(parts) == 3 and parts[0] == "RGT" and is_exact_path(parts[1]):
            return parts[1]
    return None


def best_python(text: str, otherwise: str) -> tuple[str, str | None]:
    """Return the first Python with a new enough torch, or the first with any, else `otherwise`.

    Args:
        text: The output of the probe.
        otherwise: A Python that is known to exist.
    """
    rows = [
        parts
        for line in text.splitlines()
        if line.startswith("RGT\t") and len(parts := line.split("\t")) == 3
    ]
    having = [
        (python, clean_text(torch))
        for _, python, torch in rows
        if torch.strip() and is_exact_path(python)
    ]
    for python, torch in having:
        if version_of(torch) >= OLDEST_TORCH:
            return python, torch
    if having:
        return having[0]
    return (otherwise, None)


def version_of(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version; empty if it begins with none."""
    numbers: list[int] = []
    for part in text.split("+", 1)[0].split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
