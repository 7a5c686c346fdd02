"""``job.json``: what to run, with defaults filled in and every mistake named by its line."""

from __future__ import annotations

import json
import re

from rgt_box import files
from rgt_box.cells import template

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COMMAND = [
    "{py}", "-m", "rgt_train", "--config", "{cfg}", "--task", "{task}", "--epochs", "{epochs}", "--out", "{out}",
]  # fmt: skip
KEEP = ["best", "best.json", "metrics.jsonl", "result.json"]
DETACH = ("auto", "tmux", "setsid", "slurm")
SIZES = ("ckpt_bytes", "ckpt_inodes", "scratch_bytes", "scratch_inodes")

KEYS: dict[str, tuple[Any, Any]] = {
    "command": ((list, str), COMMAND),
    "py": (str, None),
    "out": (str, None),
    "durable": (str, None),
    "keep": (list, KEEP),
    "env": (dict, {}),
    "workdir": (str, None),
    "default_epochs": (int, 20),
    "retries": (int, 0),
    "parallel": (int, 1),
    "nice": (int, 0),
    "detach": (str, "auto"),
    "sbatch": (list, []),
    "ckpt_bytes": (int, None),
    "ckpt_inodes": (int, None),
    "scratch_bytes": (int, 0),
    "scratch_inodes": (int, 0),
}
"""Key → (what it must be, default)."""

WORDS = {list: "a list", str: "a string", dict: "an object", int: "a whole number"}


class Settings:
    """A ``job.json`` as read.

    Attributes:
        values: Every key of `KEYS`.
        problems: What is wrong with it, each with file and line and what to do.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.values: dict[str, Any] = {key: default for key, (_, default) in KEYS.items()}
        self.problems: list[str] = []
        self._text = ""
        raw = files.read(path, 1 << 20)
        if raw is None:
            self.problems.append("%s is missing or cannot be read; write one (docs/jobs.md)" % path)
            return
        self._text = raw.decode("utf-8-sig", "replace")
        self._read()

    def _read(self) -> None:
        try:
            data = json.loads(self._text)
        except ValueError as error:
            line = getattr(error, "lineno", 1)
            self.problems.append("%s:%d: is no JSON object: %s" % (self.path, line, error))
            return
        except RecursionError:
            data = None
        if not isinstance(data, dict):
            self.problems.append("%s:1: is no JSON object; begin with { and end with }" % self.path)
            return
        for key, value in data.items():
            if key not in KEYS or value is None:
                continue  # a newer client may know more
            kinds = KEYS[key][0]
            if not isinstance(value, kinds) or isinstance(value, bool):
                named = " or ".join(WORDS[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
                self.say(key, "must be %s, not %s" % (named, json.dumps(value)[:60]))
                continue
            self.values[key] = value
        self._check_paths()
        self._check_rest()

    def say(self, key: str, text: str) -> None:
        """Add a problem of one key."""
        self.problems.append('%s: "%s" %s' % (self.where(key), key, text))

    def where(self, key: str) -> str:
        """Return ``FILE:LINE`` of a key; of the file's first line where the key is not in it."""
        found = re.search(r'"%s"\s*:' % re.escape(key), self._text)
        return "%s:%d" % (self.path, self._text.count("\n", 0, found.start()) + 1 if found else 1)

    def _check_paths(self) -> None:
        if not self.values["out"]:
            self.say("out", 'is required; name the directory of a run, like "runs/{name}"')
        for key in ("out", "durable"):
            text = self.values[key]
            if not text:
                continue
            if "{name}" not in text:
                self.say(key, "needs {name}, or all cells would share one directory")
            for field in template.unknown(text, template.PATH_FIELDS):
                self.say(key, "has the unknown field {%s}; it may use {name} only" % field)
        for kept in self.values["keep"]:
            if (
                not isinstance(kept, str)
                or kept.startswith("/")
                or ".." in kept.split("/")
                or kept in ("", ".")
            ):
                self.say("keep", 'must hold paths below "out", not %r' % (kept,))

    def _check_rest(self) -> None:
        try:
            command = template.words(self.values["command"])
        except ValueError as error:
            command = ["?"]
            self.say("command", "cannot be split into words (%s); close the quote or write a list" % error)
        if not command or not command[0]:
            self.say("command", "is empty; leave it out to run the trainer, or name a program")
        for field in sorted({field for word in command for field in template.unknown(word)}):
            known = " ".join("{%s}" % name for name in template.FIELDS)
            hint = "known are %s; write {{%s}} for the braces themselves" % (known, field)
            self.say("command", "has the unknown field {%s}; %s" % (field, hint))
        if self.values["detach"] not in DETACH:
            self.say(
                "detach", "must be one of %s, not %r" % (", ".join(DETACH), str(self.values["detach"])[:40])
            )
        if self.values["parallel"] < 1:
            self.say("parallel", "must be 1 or more")
        elif self.values["parallel"] > 1 and self.values["detach"] in ("tmux", "setsid"):
            self.say(
                "parallel", 'needs "detach": "slurm", or a Kubernetes Job: cells of one box run one by one'
            )
        for key in SIZES + ("retries",):
            if (self.values[key] or 0) < 0:
                self.say(key, "must not be below 0")
