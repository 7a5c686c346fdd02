"""Collects the messages of shells and tools in other languages: ``python scripts/collect_messages.py``.

It reads the message catalogues that this machine has in ``/usr/share/locale`` (packages of Debian:
``locales``, ``bash``, ``coreutils``, ``tar``, ``make``, ``git``, ``apt``) and rewrites the part
``catalogues`` of ``handbook/messages.json``. Messages written by hand are kept.
"""

from __future__ import annotations

import gettext
import json
from pathlib import Path

TABLE = Path(__file__).parents[1] / "handbook" / "messages.json"
CATALOGUES = Path("/usr/share/locale")
MESSAGES = {
    "libc": """
        Operation not permitted|No such file or directory|Input/output error|Argument list too long|Exec format error
        Resource temporarily unavailable|Cannot allocate memory|Permission denied|Device or resource busy
        No such device|Not a directory|Is a directory|Too many open files in system|Too many open files|File exists
        Inappropriate ioctl for device|File too large|No space left on device|Read-only file system|Broken pipe
        File name too long|Directory not empty|Remote I/O error|Disk quota exceeded|Stale file handle
        Structure needs cleaning|Transport endpoint is not connected|Network is unreachable|Connection refused
        Connection timed out|Connection reset by peer|No route to host|Address already in use|No child processes
        Cannot assign requested address|Name or service not known|Temporary failure in name resolution
        cannot open shared object file|cannot allocate memory in static TLS block|invalid ELF header
        failed to map segment from shared object
        Killed|Segmentation fault|Aborted|Bus error|Terminated|Hangup|Illegal instruction|Floating point exception
        Trace/breakpoint trap|CPU time limit exceeded|File size limit exceeded|Interrupt|Stopped""",
    "bash": """
        Killed|Segmentation fault|Abort|Aborting...|Bus error|Terminated|Hangup|Illegal instruction
        Floating point exception|CPU limit|File limit|Interrupt|Stopped| (core dumped)|(core dumped)
        %s: command not found|%s: not found|%s: line %d: | line |%s: %s: bad interpreter|%s: Is a directory
        %s: cannot execute binary file: %s|%s: cannot execute: required file not found|%s: ambiguous redirect
        %s: bad substitution|%s: unbound variable|%s: unary operator expected|syntax error: unexpected end of file
        syntax error near unexpected token `%s'|syntax error near `%s'|%s: integer expression expected
        unexpected EOF while looking for matching `%c'|write error: %s|%s: invalid option
        cannot create temp file for here-document: %s|%s: cannot create: %s""",
    "coreutils": """
        error writing %s|error reading %s|write error|read error|%s: write error|%s: read error
        cannot create directory %s|cannot create regular file %s|cannot stat %s|cannot access %s|cannot remove %s
        cannot touch %s|cannot move %s to %s|cannot open %s for reading|cannot open %s for writing|failed to open %s
        failed to close %s|failed to run command %s|cannot change directory to %s|invalid option -- %c
        invalid option -- '%c'|unrecognized option '%s'|unrecognized option '%s%s'|missing operand
        target %s is not a directory|%s: No such file or directory|failed to access %s""",
    "tar": """
        Unexpected EOF in archive|This does not look like a tar archive|Error is not recoverable: exiting now
        Exiting with failure status due to previous errors|%s: Cannot open|%s: Cannot mkdir|%s: Cannot write""",
    "make": """
        *** [%s] Error %d|*** [%s:%lu] Error %d|Command not found|No targets specified and no makefile found
        No rule to make target '%s'%s""",
    "git": """
        Authentication failed for '%s'|RPC failed; %s|early EOF
        destination path '%s' already exists and is not an empty directory.
        failed to push some refs to '%s'|fetch-pack: invalid index-pack output|not a git repository: %s
        not a git repository (or any of the parent directories): %s|refusing to merge unrelated histories
        repository '%s' does not exist|repository '%s' not found|the remote end hung up unexpectedly
        pathspec '%s' did not match any file(s) known to git|unable to write file %s|unable to read tree (%s)
        Need to specify how to reconcile divergent branches.|Not possible to fast-forward, aborting.
        Automatic merge failed; fix conflicts and then commit the result.|clone of '%s' into submodule path '%s' failed
        unable to access '%s': %s|could not create work tree dir '%s'""",
    "apt": """
        Unable to locate package %s|Package '%s' has no installation candidate|Failed to fetch %s  %s
        Temporary failure resolving '%s'|You don't have enough free space in %s.|Connection failed
        Unable to fetch some archives, maybe run apt-get update or try with --fix-missing?""",
    "libapt-pkg6.0": """
        Unable to correct problems, you have held broken packages.|Hash Sum mismatch|Unable to locate package %s
        Could not get lock %s|Unable to acquire the dpkg frontend lock (%s), are you root?
        The repository '%s' does not have a Release file.|The repository '%s' is not signed.""",
    "wget": "Unable to establish SSL connection.|Read error (%s) in headers.",
}  # fmt: skip
"""Domain of gettext → English messages that the handbook's patterns know, alone or as part of a
line.
"""


ORDINARY_WORDS = ("Terminated", "Interrupt", "Stopped", "Aborted")
"""Signals whose names in European languages are everyday words (``Terminé``): they count behind a
process's number alone, as bash writes it.
"""


def list_messages(language: str) -> dict[str, str]:
    """Return a language's messages → English."""
    found: dict[str, str] = {}
    for domain, wanted in MESSAGES.items():
        path = CATALOGUES / language / "LC_MESSAGES" / f"{domain}.mo"
        if not path.exists():
            continue
        with path.open("rb") as file:
            catalogue = gettext.GNUTranslations(file)
        for line in wanted.strip("\n").split("\n"):
            for part in line.removeprefix(" " * 8).split("|"):
                for english in (part, f"{part} ", f"{part}\n"):
                    text = catalogue.gettext(english)
                    if text not in (english, "") and text.strip() != english.strip():
                        if english in ORDINARY_WORDS and text < "\u2e80":
                            text, english = f"%d {text}", f"%d {english}"
                        found.setdefault(text.strip("\n"), english.strip("\n"))
    return dict(sorted(found.items()))


def main() -> None:
    """Rewrite the table."""
    table = json.loads(TABLE.read_text())
    for language, part in table["languages"].items():
        part["catalogues"] = list_messages(language)
    TABLE.write_text(json.dumps(table, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
