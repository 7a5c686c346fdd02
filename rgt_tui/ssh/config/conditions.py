"""The conditions of ``Match``."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping

from rgt_tui.ssh.config import patterns, tokens
from rgt_tui.ssh.config.reader import Reader

EXEC_SECONDS = 10.0
"""A command of ``Match exec`` that takes longer is given up, with an error."""

Known = Callable[[Reader], tokens.Tokens]


class Conditions:
    """Evaluates what stands in a ``Match`` line, with the values that were collected above it."""

    def __init__(self, known: Known, env: Mapping[str, str], notes: Callable[[str], None]) -> None:
        self._known = known
        self._env = env
        self._note = notes

    def __call__(self, name: str, argument: str, reader: Reader) -> bool:
        """Tell whether a condition holds.

        Raises:
            ValueError: it is unknown, or its command did not end.
        """
        known = self._known(reader)
        texts = {
            "host": known.host,
            "originalhost": known.original,
            "user": known.user,
            "localuser": known.local_user,
            "tagged": str(reader.values.get("tag", "")),
            "sessiontype": "exec",
        }
        if name == "exec":
            return self._exec(tokens.percent(argument, known.table()))
        if name in texts:
            return patterns.in_list(argument, texts[name], lower=name in ("host", "originalhost"))
        if name in ("localnetwork", "version", "command"):
            self._note(f"Match {name} is not honoured by rgt: its block does not count")
            return False
        raise ValueError(f"the condition {name!r} is not known")

    def _exec(self, command: str) -> bool:
        try:
            done = subprocess.run(
                [self._env.get("SHELL") or "/bin/sh", "-c", command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=EXEC_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ValueError(f"the command {command!r} did not end within {EXEC_SECONDS:g} s") from None
        except OSError as error:
            raise ValueError(f"the command {command!r} cannot be run: {error.strerror}") from error
        return done.returncode == 0
