"""Which files of a box are nobody's results: a table of caches, packages and system files. Pure.

A rule is told with what it left out. Only those of packages, of downloads that a library keeps by their names, and of
rgt itself hide a file that looks like a checkpoint or a result; every other rule steps aside for one.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple, Optional, Pattern

    class Rule(NamedTuple):
        """Why files of a directory, and of all below it, are nobody's result."""

        name: str
        hides: bool = False
        """Also what looks like a checkpoint or a result."""
        counted: bool = True
        """Its files are; else nobody walks there: packages are nine of ten files of a box."""

    class Rows(NamedTuple):
        """What tells that a rule holds."""

        rule: Rule
        paths: "tuple[str, ...]" = ()
        """Directories, absolute."""
        names: "tuple[str, ...]" = ()
        """Names of directories, wherever they are."""
        at_home: "tuple[str, ...]" = ()
        """Names of directories in a home directory."""
        marks: "tuple[str, ...]" = ()
        """Names of entries: the directory that holds one."""
        pattern: "Optional[Pattern[str]]" = None
        """Of the path of a directory."""
else:
    from collections import namedtuple

    Rule = namedtuple("Rule", "name hides counted", defaults=(False, True))
    Rows = namedtuple("Rows", "rule paths names at_home marks pattern", defaults=((), (), (), (), None))

RESULT = re.compile(
    r".*\.(?:pt|pth|ckpt|safetensors|distcp|gguf|ggml|onnx|h5|hdf5|keras|npz|npy|pkl|pickle|joblib|msgpack|orbax"
    r"|pdparams|pdopt|params|mar|nemo|tflite|pb|parquet|arrow|wandb|bin\.index\.json)"
    r"|.*(?:model|optimizer|adapter|scheduler|training_args|weights)[^/]*\.bin|events\.out\.tfevents\..*"
    r"|(?:metrics|scalars|history|log)\.(?:jsonl|csv|json)|result\.json|best\.json|trainer_state\.json|results\.csv",
    re.IGNORECASE,
)
"""Names of files that look like a checkpoint, or like what a run has measured."""

PACKAGES = Rule("packages", hides=True, counted=False)
ENVIRONMENTS = Rule("Python environments")
CACHES = Rule("caches")
SETTINGS = Rule("settings of programs")
SYSTEM = Rule("the system's own")
IMAGE = Rule("came with the image, as far as can be told")
OBJECTS = Rule("objects of git", hides=True, counted=False)
HOME_FILES = Rule("start-up files and histories of shells")
OWN = Rule("rgt's own", hides=True)
RECORDS = Rule("records of rgt push")
READ_ONLY = Rule("mounted read-only")
DOWNLOADS = Rule("downloads", hides=True)

TABLE = (
    Rows(PACKAGES, names=("site-packages", "dist-packages", "node_modules", "__pycache__")),
    Rows(
        PACKAGES,
        paths=(
            "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/boot", "/usr/bin", "/usr/sbin", "/usr/lib",
            "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/share", "/usr/include", "/var/lib/dpkg",
            "/var/lib/apt", "/var/lib/rpm", "/var/cache",
        ),
        pattern=re.compile(
            r"/lib/python\d\.\d+$|/(?:conda|mamba|mini(?:conda|forge|mamba)\d?|anaconda\d?|\.conda)/pkgs$"
        ),
    ),
    Rows(
        DOWNLOADS,
        # huggingface_hub: hub/models--ORG--NAME (guides/manage-cache); datasets; torch.hub.load_state_dict_from_url.
        pattern=re.compile(
            r"/hub/(?:models|datasets|spaces)--[^/]+$|/\.cache/huggingface/(?:datasets|xet)$"
            r"|/\.cache/torch/hub/checkpoints$"
        ),
    ),
    Rows(ENVIRONMENTS, names=(".pyenv",), marks=("pyvenv.cfg", "conda-meta")),
    Rows(OBJECTS, pattern=re.compile(r"/\.git/(?:modules/.*/)?objects$")),
    Rows(
        CACHES,
        names=(
            ".cache", ".npm", ".nv", ".triton", ".yarn", ".pnpm-store", ".cargo", ".rustup", ".m2", ".gradle",
            ".conda", ".ccache", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".ipynb_checkpoints", ".keras",
        ),
        pattern=re.compile(r"^(?:/var)?/tmp/(?:torchinductor_|triton|pip-|uv-|npm-)[^/]*$"),
    ),
    Rows(RECORDS, names=(".rgt-push",)),
    Rows(
        SETTINGS,
        at_home=(
            ".ssh", ".config", ".jupyter", ".ipython", ".vscode-server", ".vscode", ".cursor-server", ".gnupg",
            ".docker", ".pki", ".dbus", ".local", ".oh-my-zsh", ".nano", ".vim", ".emacs.d", ".byobu", ".tmux",
        ),
    ),
    Rows(
        SYSTEM,
        paths=("/usr", "/etc", "/var", "/snap", "/run", "/dev", "/lost+found"),
        pattern=re.compile(r"^(?:/var)?/tmp/(?:systemd-private-|snap-private-)[^/]*$|/lost\+found$"),
    ),
)  # fmt: skip
BEYOND = ("/var/tmp", "/var/lib/docker/volumes")
"""Directories to which the rule of one above does not reach."""
MARKS = frozenset(mark for row in TABLE for mark in row.marks)
OF_IMAGE = ("/opt",)
"""Directories that images fill; what is in them counts where it is known how old the instance is."""
PSEUDO = frozenset(
    (
        "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "efivarfs",
        "fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore",
        "rpc_pipefs", "securityfs", "selinuxfs", "squashfs", "sysfs", "tracefs",
    )
)  # fmt: skip
"""File systems that hold no files of anybody."""

_PATHS = {path: row.rule for row in TABLE for path in row.paths}
_NAMES = {name: row.rule for row in TABLE for name in row.names}
_AT_HOME = {name: row.rule for row in TABLE for name in row.at_home}
_MARKS = {mark: row.rule for row in TABLE for mark in row.marks}
_PATTERNS = [(row.pattern, row.rule) for row in TABLE if row.pattern is not None]


def folder_rule(
    path: str, above: Rule | None, at_home: bool = False, since_known: bool = True
) -> Rule | None:
    """Return the rule of a directory.

    Args:
        path: Absolute.
        above: The rule of the directory that it stands in.
        at_home: That one is a home directory.
        since_known: Older files are told from newer ones; else what looks like the image's is left out.
    """
    if above is not None and above.hides:
        return above
    if path in BEYOND:
        return None
    name = path.rpartition("/")[2]
    found = _PATHS.get(path) or _NAMES.get(name) or (_AT_HOME.get(name) if at_home else None)
    if found is None:
        found = next((rule for pattern, rule in _PATTERNS if pattern.search(path)), None)
    if found is None and not since_known and path in OF_IMAGE:
        found = IMAGE
    # A package inside of a cache is a package; what is named like a cache inside of the system stays the system's.
    return found if found is not None and (above is None or found.hides) else above


def marked_rule(names: list[str]) -> Rule | None:
    """Return the rule for a directory by the names of its entries."""
    return next((_MARKS[name] for name in names if name in _MARKS), None)


def looks_like_result(name: str) -> bool:
    """Tell whether a file's name is that of a checkpoint or of a result."""
    return RESULT.fullmatch(name) is not None
