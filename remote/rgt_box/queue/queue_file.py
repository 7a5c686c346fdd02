"""A job directory: ``job.json``, ``queue.txt``, the cells' commands and a config's settings."""

from __future__ import annotations

import json
import os
import re
import sys

from rgt_box import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject

__all__ = ["KEEP", "Job", "QueueLine", "cell_name", "parse_queue"]


FIELDS = ("py", "cfg", "task", "epochs", "name", "out", "durable")
PATH_FIELDS = ("name",)
"""Fields allowed in ``out`` and ``durable``."""
_FIELD = re.compile(r"\{\{([A-Za-z_]\w*)\}\}|(?<!\$)\{([A-Za-z_]\w*)\}")


def fill_template(template: str, values: dict[str, str]) -> str:
    """Fill in ``{name}`` fields in one pass: fields inside a value are not filled in.

    ``{{word}}`` produces a literal ``{word}``. Other braces are kept (a command may contain JSON),
    and so is ``${word}``, which belongs to a shell.
    """

    def replace_field(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped:
            return f"{{{escaped}}}"
        return values.get(name, match.group(0))

    return _FIELD.sub(replace_field, template)


def escape_template(text: str) -> str:
    """Return a template that produces exactly this text, including its braces."""
    return _FIELD.sub(lambda match: f"{{{match.group(0)}}}", text)


def unknown_fields(template: str, known: tuple[str, ...] = FIELDS) -> list[str]:
    """Return the fields of a template that are not known."""
    return [name for _, name in _FIELD.findall(template) if name and name not in known]


def command_words(command: str | list[str]) -> list[str]:
    """Return a command as a list of words.

    A string is split like in a POSIX shell, without running one.

    Raises:
        ValueError: A quote is not closed.
    """
    if isinstance(command, list):
        return [str(word) for word in command]
    import shlex  # imported here because most jobs give a list

    return shlex.split(command)


def quote_for_shell(path: str) -> str:
    """Return a path quoted for a shell."""
    import shlex

    return shlex.quote(path)


COMMAND = [
    "{py}", "-m", "rgt_train", "--config", "{cfg}", "--task", "{task}", "--epochs", "{epochs}",
    "--out", "{out}",
]  # fmt: skip
JOBS = "~/jobs"
"""Where rgt makes jobs, by name: in the home directory, which a full data disk does not affect."""
KEEP = ["best", "best.json", "metrics.jsonl", "result.json"]
PRUNE = "keep-best"
"""Value of ``prune`` that lets finished, copied cells lose all checkpoints except the best one when
the next cell needs space.
"""
ON_SIGTERM = "saves"
"""Value of ``on_sigterm`` for cells that save and exit on SIGTERM. The reference trainer always
does.
"""
DETACH = ("auto", "tmux", "setsid", "slurm")
SIZES = ("ckpt_bytes", "ckpt_inodes", "scratch_bytes", "scratch_inodes")
KEYS: dict[str, tuple[Any, Any]] = {
    "command": ((list, str), COMMAND),
    "py": (str, None),
    "out": (str, None),
    "durable": (str, None),
    "keep": (list, KEEP),
    "ignore": (list, []),
    "env": (dict, {}),
    "workdir": (str, None),
    "default_epochs": (int, 20),
    "retries": (int, 0),
    "parallel": (int, 1),
    "nice": (int, 0),
    "detach": (str, "auto"),
    "on_sigterm": (str, None),
    "prune": (str, None),
    "sbatch": (list, []),
    "ckpt_bytes": (int, None),
    "ckpt_inodes": (int, None),
    "scratch_bytes": (int, 0),
    "scratch_inodes": (int, 0),
}
"""Key → (allowed types, default)."""
WORDS = {list: "a list", str: "a string", dict: "an object", int: "a whole number"}


class JobSettings:
    """A parsed ``job.json``.

    Attributes:
        values: Every key of `KEYS`.
        problems: Its errors, each with file and line and what to do.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.values: JsonObject = {key: default for key, (_, default) in KEYS.items()}
        self.problems: list[str] = []
        self._text = ""
        raw = files.read_file(path, 1 << 20)
        if raw is None:
            self.problems.append(f"{path} is missing or cannot be read; write one (docs/jobs.md)")
            return
        self._text = raw.decode("utf-8-sig", "replace")
        self._read_settings()

    def _read_settings(self) -> None:
        try:
            data = json.loads(self._text)
        except ValueError as error:
            line = getattr(error, "lineno", 1)
            self.problems.append("%s:%d: is not a JSON object: %s" % (self.path, line, error))
            return
        except RecursionError:
            data = None
        if not isinstance(data, dict):
            self.problems.append(
                f"{self.path}:1: is not a JSON object; begin with {{ and end with }}"
            )
            return
        for key, value in data.items():
            if key not in KEYS or value is None:
                continue  # a newer client may know more keys
            kinds = KEYS[key][0]
            if not isinstance(value, kinds) or isinstance(value, bool):
                named = " or ".join(
                    WORDS[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,))
                )
                self.add_problem(key, f"must be {named}, not {json.dumps(value)[:60]}")
                continue
            self.values[key] = value
        self._check_paths()
        self._check_rest()

    def add_problem(self, key: str, text: str) -> None:
        """Add a problem about one key."""
        self.problems.append(f'{self.line_of_key(key)}: "{key}" {text}')

    def line_of_key(self, key: str) -> str:
        """Return ``FILE:LINE`` of a key, or of the first line if the key is missing."""
        found = re.search(rf'"{re.escape(key)}"\s*:', self._text)
        above = 0
        if found:
            above = self._text.count("\n", 0, found.start())
        return "%s:%d" % (self.path, above + 1)

    def _check_paths(self) -> None:
        if not self.values["out"]:
            self.add_problem("out", 'is required; name the directory of a run, like "runs/{name}"')
        for key in ("out", "durable"):
            text = self.values[key]
            if not text:
                continue
            if "{name}" not in text:
                self.add_problem(key, "needs {name}, or all cells would share one directory")
            for field in unknown_fields(text, PATH_FIELDS):
                self.add_problem(
                    key, f"has the unknown field {{{field}}}; it may use {{name}} only"
                )
        for kept in self.values["keep"]:
            if (
                not isinstance(kept, str)
                or kept.startswith("/")
                or ".." in kept.split("/")
                or kept == ""
            ):
                self.add_problem("keep", f'must contain paths below "out", not {kept!r}')
        for ignored in self.values["ignore"]:
            if not isinstance(ignored, str) or not ignored.startswith("/"):
                self.add_problem(
                    "ignore", f"must contain absolute paths, globs allowed, not {ignored!r}"
                )

    def _check_rest(self) -> None:
        try:
            command = command_words(self.values["command"])
        except ValueError as error:
            command = ["?"]
            self.add_problem(
                "command", f"cannot be split into words ({error}); close the quote or write a list"
            )
        if not command or not command[0]:
            self.add_problem(
                "command", "is empty; leave it out to run the trainer, or name a program"
            )
        for field in sorted({field for word in command for field in unknown_fields(word)}):
            known = " ".join(f"{{{name}}}" for name in FIELDS)
            hint = f"the fields are {known}; write {{{{{field}}}}} for literal braces"
            self.add_problem("command", f"has the unknown field {{{field}}}; {hint}")
        if self.values["detach"] not in DETACH:
            self.add_problem(
                "detach",
                f"must be one of {', '.join(DETACH)}, not {str(self.values['detach'])[:40]!r}",
            )
        if self.values["on_sigterm"] not in (None, ON_SIGTERM):
            self.add_problem("on_sigterm", f'must be "{ON_SIGTERM}", or be left out')
        if self.values["prune"] not in (None, PRUNE):
            self.add_problem("prune", f'must be "{PRUNE}", or be left out')
        if self.values["prune"] and not self.values["durable"]:
            self.add_problem(
                "prune", 'needs "durable": only files with a verified copy there are removed'
            )
        if self.values["parallel"] < 1:
            self.add_problem("parallel", "must be 1 or more")
        elif self.values["parallel"] > 1 and self.values["detach"] in ("tmux", "setsid"):
            self.add_problem(
                "parallel",
                'needs "detach": "slurm", or a Kubernetes Job: cells on one box run one at a time',
            )
        for key in SIZES + ("retries",):
            if (self.values[key] or 0) < 0:
                self.add_problem(key, "must not be negative")


BOM = b"\xef\xbb\xbf"


class QueueLine:
    """One cell's line of the queue.

    Attributes:
        twin: The earlier line of the same name, which makes this one unusable; otherwise None.
    """

    __slots__ = ("cfg", "epochs", "name", "number", "task", "twin")

    def __init__(self, number: int, cfg: str, task: str, epochs: int | None) -> None:
        self.number = number
        self.cfg = cfg
        self.task = task
        self.epochs = epochs
        self.name = cell_name(cfg)
        self.twin: QueueLine | None = None


def cell_name(cfg: str) -> str:
    """Return a cell's name: the config's base name without its last extension."""
    base = os.path.basename(cfg.rstrip("/"))
    return os.path.splitext(base)[0] or base


def parse_queue(data: bytes, path: str) -> tuple[list[QueueLine], list[str]]:
    """Read every line that names a cell, including those with a duplicate name.

    Windows line endings are ignored here; `queue_check` reports them for all files.

    Args:
        data: The file's bytes.
        path: Used in the messages.

    Returns:
        The lines, and all problems at once.
    """
    found: list[QueueLine] = []
    problems: list[str] = []
    if b"\0" in data:
        return [], [f"{path}:1: is not plain text (probably UTF-16); save it as UTF-8"]
    names: dict[str, QueueLine] = {}
    if data.startswith(BOM):
        data = data[len(BOM) :]
    for number, raw in enumerate(data.split(b"\n"), 1):
        where = "%s:%d" % (path, number)
        try:
            words = raw.split(b"#", 1)[0].decode("utf-8").split()
        except UnicodeDecodeError:
            problems.append(f"{where}: is not UTF-8; rename the config and write its name in UTF-8")
            continue
        if not words:
            continue
        if len(words) not in (2, 3):
            problems.append("%s: %d words; write <cfg> <task> [epochs]" % (where, len(words)))
            continue
        if len(words) == 3 and not (
            words[2].isdigit() and words[2].isascii() and int(words[2]) > 0
        ):
            problems.append(f"{where}: epochs must be a whole number above 0, not {words[2]!r}")
            continue
        epochs = None
        if len(words) == 3:
            epochs = int(words[2])
        line = QueueLine(number, words[0], words[1], epochs)
        line.twin = names.setdefault(line.name, line)
        if line.twin is line:
            line.twin = None
        else:
            problems.append(
                "%s: the name %r is already taken by line %d; both cells would write to the same "
                "directory: rename one of the configs" % (where, line.name, line.twin.number)
            )
        found.append(line)
    return found, problems


def commented(data: bytes) -> list[QueueLine]:
    """Return the commented-out lines that look like cells.

    Prose may look like one; the caller checks whether the config file exists.
    """
    lines: list[QueueLine] = []
    for number, raw in enumerate(data.split(b"\n"), 1):
        text = raw.lstrip(BOM).strip()
        if text.startswith(b"#"):
            for line in parse_queue(text.lstrip(b"# \t"), "")[0]:
                line.number = number
                lines.append(line)
    return lines


class Job:
    """A loaded job directory.

    Attributes:
        folder: The directory, absolute.
        source: The parsed ``job.json``, which knows the line of each key.
        settings: Its values, with defaults filled in.
        problems: Its errors, as texts.
    """

    def __init__(self, folder: str) -> None:
        self.folder = os.path.abspath(os.path.expanduser(folder))
        self.source = JobSettings(self.path("job.json"))
        self.settings = self.source.values
        self.problems = self.source.problems

    def path(self, *parts: str) -> str:
        """Return a path in the job directory."""
        return os.path.join(self.folder, *parts)

    def read_lines(self) -> tuple[list[QueueLine], list[str]]:
        """Read the current queue; return its cells and the problems found."""
        lines, problems = self.read_all_lines()
        return [line for line in lines if line.twin is None], problems

    def read_all_lines(self) -> tuple[list[QueueLine], list[str]]:
        """Like `read_lines`, but including lines with a duplicate name."""
        path = self.path("queue.txt")
        try:
            data = files.read_existing(path)
        except OSError as error:
            return [], [f"{path} cannot be read: {error.strerror}"]
        if data is None:
            return [], [f"{path} is missing; write one line for each cell"]
        return parse_queue(data, path)

    def commented(self) -> list[QueueLine]:
        """Return the commented-out lines of the queue whose config exists."""
        data = files.read_file(self.path("queue.txt")) or b""
        return [line for line in commented(data) if os.path.isfile(self.config_path(line))]

    @property
    def workdir(self) -> str:
        """Directory that cells start in."""
        own = self.settings["workdir"]
        if own:
            return os.path.join(self.folder, os.path.expanduser(own))
        return self.folder

    def config_path(self, line: QueueLine) -> str:
        """Return the path of a cell's config."""
        return os.path.join(self.workdir, os.path.expanduser(line.cfg))

    def run_folder(self, name: str) -> str | None:
        """Return the run directory of a cell."""
        return self._folder_of_cell("out", name)

    def durable_folder(self, name: str) -> str | None:
        """Return the durable directory of a cell, if the job has one."""
        return self._folder_of_cell("durable", name)

    def _folder_of_cell(self, key: str, name: str) -> str | None:
        pattern = self.settings[key]
        if not pattern:
            return None
        filled = fill_template(os.path.expanduser(pattern), {"name": name})
        return os.path.normpath(os.path.join(self.workdir, filled))

    def written_folders(self) -> list[str]:
        """Return the directories that its runs write to, whose mounts are monitored."""
        return [
            os.path.dirname(path)
            for path in (self.run_folder("x"), self.durable_folder("x"))
            if path
        ]

    def log_path(self, name: str) -> str:
        """Return the log of a cell."""
        return self.path("logs", name + ".log")

    def epochs_of(self, line: QueueLine) -> int:
        """Return how many epochs a cell runs."""
        if line.epochs is None:
            return int(self.settings["default_epochs"])
        return line.epochs

    def command_of(self, line: QueueLine) -> list[str]:
        """Return the command of a cell, with every field filled in."""
        values = {
            "py": self.settings["py"] or sys.executable,
            "cfg": line.cfg,
            "task": line.task,
            "epochs": str(self.epochs_of(line)),
            "name": line.name,
            "out": self.run_folder(line.name) or "",
            "durable": self.durable_folder(line.name) or "",
        }
        return [fill_template(word, values) for word in command_words(self.settings["command"])]


ENVIRONMENT = "job-env.json"
"""Variables of the platform, sent by the client and kept in the state directory. Cells get those
that are not set otherwise.
"""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def environment(told: JsonObject) -> dict[str, str]:
    """Return the valid environment variables of an object."""
    return {
        name: value
        for name, value in told.items()
        if _VARIABLE.fullmatch(name) and isinstance(value, str) and "\0" not in value
    }


def remember_platform(folder: str, env: dict[str, str] | None, hooks: JsonObject | None) -> None:
    """Store the platform's environment and hooks for all cells started from now on.

    Args:
        folder: The state directory.
        env: Variables and values; None keeps the stored ones.
        hooks: As `cell_command.hooks` returns them; None keeps the stored ones.
    """
    path = os.path.join(folder, ENVIRONMENT)
    known = _read_platform_file(folder)
    wanted = dict(known)
    wanted.update(
        {} if env is None else {"env": env}, **({} if hooks is None else {"hooks": hooks})
    )
    if wanted == known:
        return
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        files.write_json(path, wanted)
    except OSError:
        pass  # if nothing can be written there is no recorder either, and that is reported


def _read_platform_file(folder: str) -> JsonObject:
    return files.read_json(os.path.join(folder, ENVIRONMENT), 1 << 20) or {}


def platform_environment(folder: str) -> dict[str, str]:
    """Return the platform's environment sent by the client, without the disabled ones.

    Empty if the client sent none.
    """
    told = _read_platform_file(folder).get("env")
    off = names_turned_off(folder)
    if isinstance(told, dict):
        found = environment(told)
    else:
        found = {}
    return {name: value for name, value in found.items() if name not in off}


def platform_hooks(folder: str) -> JsonObject:
    """Return the platform's hooks for cells sent by the client, without the disabled ones."""
    from rgt_box.queue import cell_command  # imported here: reading a queue does not need it

    off = names_turned_off(folder)
    return {
        key: value
        for key, value in cell_command.valid_hooks(_read_platform_file(folder).get("hooks")).items()
        if key not in off
    }


OFF = "mirrors.json"
"""Names of platform variables and hooks (mirrors, proxy) that the user has turned off."""


def names_turned_off(folder: str) -> list[str]:
    """Return the names of variables and hooks that cells do not get."""
    off = (files.read_json(os.path.join(folder, OFF), 65536) or {}).get("off")
    if isinstance(off, list):
        return [name for name in off if isinstance(name, str)]
    return []


NAMES = {
    "learning_rate": "lr",
    "max_lr": "lr",
    "batch_size": "batch",
    "train_batch_size": "batch",
    "per_device_train_batch_size": "batch",
    "micro_batch_size": "batch",
    "random_seed": "seed",
}
"""Aliases of the settings below."""
SAID = frozenset(
    (
        "lr", "batch", "seed", "optimizer", "weight_decay", "warmup", "warmup_steps", "schedule",
        "scheduler",
        "dropout", "precision", "dtype", "grad_accum", "gradient_accumulation_steps", "clip",
        "grad_clip",
        "max_grad_norm", "model", "layers", "n_layer", "num_layers", "width", "d_model", "hidden",
        "hidden_size",
        "heads", "n_head", "block_size", "seq_len", "context", "ranks", "epochs", "steps",
    )
)  # fmt: skip
LONGEST = 40
"""Maximum number of characters of a value; a longer one is not a setting."""
READ = 1 << 18
"""Number of bytes read from a config."""
_LINE = re.compile(
    r"""^[\s{,]*["']?([A-Za-z_][\w.\-]{0,60})["']?\s{0,4}[:=]\s{0,4}(?:"([^"]*)"|'([^']*)'|([\w.+\-/]+))\s*,?\s*(?:[#;}].*)?$"""
)


def read_config_settings(data: bytes | None) -> dict[str, str]:
    """Return the settings in a config by their usual short names; {} if it cannot be read."""
    found: dict[str, str] = {}
    unsure = set()
    for line in (data or b"")[:READ].decode("utf-8", "replace").splitlines():
        match = _LINE.match(line[:200])
        if match is None:
            continue
        plain = match.group(1).rpartition(".")[2].replace("-", "_").lower()
        name = NAMES.get(plain, plain)
        value = next((text for text in match.groups()[1:] if text is not None), "")
        if name not in SAID or not value or len(value) > LONGEST or not value.isprintable():
            continue
        if found.get(name, value) != value:
            unsure.add(name)
        found[name] = value
    return {name: value for name, value in found.items() if name not in unsure}
