"""Put the agent on a box: find a Python, and write the zipapp under its content hash, once.

The file is written to a temporary name, its hash is checked on the box, it is fsynced and renamed. A name that
exists is never written to again: an older client may still run that very file.
"""

from __future__ import annotations

import shlex

import asyncssh
import msgspec

from rgt_tui.model.plain import clean
from rgt_tui.ssh.bundle import AgentBundle
from rgt_tui.ssh.command import run
from rgt_tui.ssh.errors import DeployFailed, NoCommands, NoPython

MOST_BYTES = 1 << 16
CANDIDATES = ("python3", "python", "/root/miniconda3/bin/python", "/opt/conda/bin/python", "/usr/bin/python3")

_SHELL = "RGT-SHELL"
_PROBE = """
printf '\\nRGT-SHELL\\n'
for p in {candidates}; do
  v=$("$p" -c 'import sys; print("%d%02d" % sys.version_info[:2])' 2>/dev/null) || continue
  [ "$v" -ge 308 ] || continue
  "$p" - {filename} <<'PROBE'
import os, sys
home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
path = os.path.join(home, "rgt", sys.argv[1])
print("RGT\\t%s\\t%s\\t%d" % (sys.executable, path, os.path.exists(path)))
PROBE
  exit 0
done
exit 7
"""

_READ = "import sys; exec(sys.stdin.buffer.read(int(sys.argv.pop(1))))"
"""Runs the script that stands before the agent on standard input: csh and its kin take no argument of several lines."""
_WRITE = """
import hashlib, os, sys
path, digest = sys.argv[1:3]
data = sys.stdin.buffer.read()
if hashlib.sha256(data).hexdigest() != digest:
    sys.exit("the agent arrived damaged (%d bytes)" % len(data))
folder = os.path.dirname(path)
os.makedirs(folder, mode=0o700, exist_ok=True)
temporary = "%s.%d.tmp" % (path, os.getpid())
try:
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
except OSError as error:
    try:
        os.unlink(temporary)
    except OSError:
        pass
    sys.exit(str(error))
handle = os.open(folder, os.O_RDONLY)
os.fsync(handle)
os.close(handle)
"""


class Deployed(msgspec.Struct, frozen=True):
    """Where the agent stands on a box."""

    python: str
    path: str

    def command(self, *arguments: str) -> str:
        """Return the shell command that runs the agent with these arguments."""
        return shlex.join([self.python, self.path, *arguments])


async def deploy(
    connection: asyncssh.SSHClientConnection, bundle: AgentBundle, pythons: tuple[str, ...] = ()
) -> Deployed:
    """Make sure that the agent is on the box.

    Raises:
        NoCommands: the box gives no shell to commands.
        CommandFailed: it did not answer in time.
        Unreachable: the connection was lost.
        NoPython: no Python >= 3.8 among `pythons` and the usual places.
        DeployFailed: it could not be written; the box's own words are passed on.
    """
    candidates = " ".join(shlex.quote(p) for p in (*pythons, *CANDIDATES))
    script = _PROBE.format(candidates=candidates, filename=shlex.quote(bundle.filename))
    probe = await run(connection, "sh -s", data=script.encode(), most_bytes=MOST_BYTES, name="the first look")
    lines = probe.out.decode(errors="replace").splitlines()
    if _SHELL not in lines:
        said = clean(next((line for line in lines if line.strip()), "") or probe.words)[:200]
        raise NoCommands("the box runs no commands" + (f"; it says: {said}" if said else ""))
    rows = (line.split("\t") for line in lines if line.startswith("RGT\t"))
    found = [row for row in rows if len(row) == len(("RGT", "python", "path", "exists"))]
    if not found:
        raise NoPython(
            "no Python 3.8 or newer on the box (looked for: "
            + ", ".join((*pythons, *CANDIDATES))
            + "); set `python` for this box"
        )
    _, python, path, exists = found[0]
    for word in (python, path):
        if clean(word) != word:
            shown = clean(word)[:200]
            raise DeployFailed(
                f"the box names a path with characters that cannot be shown, and rgt does not use it: {shown}"
            )
    deployed = Deployed(python=python, path=path)
    if exists == "1":
        return deployed
    writer = _WRITE.encode()
    command = shlex.join([python, "-c", _READ, str(len(writer)), path, bundle.digest])
    written = await run(connection, command, data=writer + bundle.data, name="writing the agent")
    if written.status != 0:
        raise DeployFailed(f"cannot write the agent to {path}: {written.words or f'exit {written.status}'}")
    return deployed
