"""Rules for files that are not results although no package manager lists them, such as caches.

The answer lists every rule with the size, number and newest of its files. A rule goes by a file's
path, which is weak evidence. So files that look like a checkpoint or result still count unless the
rule `hides` them, and the gate asks about a rule that left out much unless it is `proved`.
"""

from __future__ import annotations

import re

from rgt_wire import checkpoint_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple, Pattern

    class ExclusionRule(NamedTuple):
        """Why the files of a directory tree are not results."""

        name: str
        hides: bool = False
        """It also applies to files that look like a checkpoint or a result."""
        proved: bool = False
        """It rests on more than the path: a package list, a content hash, a time, or the user."""

    class RuleScope(NamedTuple):
        """Where a rule applies."""

        rule: ExclusionRule
        paths: "tuple[str, ...]" = ()
        """Absolute directories."""
        names: "tuple[str, ...]" = ()
        """Names of directories, at any place."""
        at_home: "tuple[str, ...]" = ()
        """Names of directories in a home directory."""
        pattern: "Pattern[str] | None" = None
        """Matches the path of a directory."""
else:
    from collections import namedtuple

    ExclusionRule = namedtuple("ExclusionRule", "name hides proved", defaults=(False, False))
    RuleScope = namedtuple(
        "RuleScope", "rule paths names at_home pattern", defaults=((), (), (), None)
    )

RESULT = re.compile(
    r".*\.(?:pt|pth|ckpt|safetensors|distcp|gguf|ggml|onnx|h5|hdf5|keras|npz|npy|pkl|pickle|joblib"
    r"|msgpack|orbax"
    r"|pdparams|pdopt|params|mar|nemo|tflite|pb|parquet|arrow|wandb|bin\.index\.json)"
    r"|.*(?:model|optimizer|adapter|scheduler|training_args|weights)[^/]*\.bin"
    r"|events\.out\.tfevents\..*"
    r"|(?:metrics|scalars|history|log)\.(?:jsonl|csv|json)|result\.json|best\.json"
    r"|trainer_state\.json|results\.csv",
    re.IGNORECASE,
)
"""File names that look like a checkpoint or like measurements of a run."""

LISTED = ExclusionRule("packages, by their lists of files", hides=True, proved=True)
OLDER = ExclusionRule("older than the machine", hides=True, proved=True)
BYTECODE = ExclusionRule("compiled Python", hides=True, proved=True)
DOWNLOADS = ExclusionRule("downloads", hides=True, proved=True)
OWN = ExclusionRule("rgt's own", hides=True, proved=True)
RECORDS = ExclusionRule("records of rgt push")
CLONED = ExclusionRule("in git, and on a remote", hides=True, proved=True)
PUSHED = ExclusionRule("pushed by rgt, unchanged", hides=True, proved=True)
PACKAGES = ExclusionRule("node_modules", hides=True)
UNLISTED = ExclusionRule("in package directories, in no package's list")
SEARCH_PATHS = ExclusionRule("search paths of Python", hides=True)
STANDARD_LIBRARY = ExclusionRule("standard library of Python", hides=True)
ENVIRONMENTS = ExclusionRule("Python environments")
OBJECTS = ExclusionRule("objects of git", hides=True)
CACHES = ExclusionRule("caches")
SETTINGS = ExclusionRule("settings of programs")
SYSTEM = ExclusionRule("files that the system writes")
CONTAINERS = ExclusionRule("containers and images of Docker")
HOME_FILES = ExclusionRule("start-up files and histories of shells")
READ_ONLY = ExclusionRule("mounted read-only", proved=True)
INPUTS = ExclusionRule("next to a training's log, and older than the training", hides=True)
LARGEST_CODE = 1 << 20
"""Bytes up to which such a file may be the training's code or settings."""
_DATA_STEM = re.compile(
    r"[-_0-9]*(?:(?:data|datasets?|corpus|train|training|val|valid|validation|test|images?|labels?"
    r"|tokens?"
    r"|text|audio|raw|processed|x|y|set|split|part|shards?|of)(?:[-_0-9]+|$))+"
)
"""A name that has only words of data sets."""
_DATA_ENDING = re.compile(
    r"(?P<array>npy|npz|bin|arrow|parquet|lmdb|tfrecord)|tgz|zip|7z|(?:tar|jsonl)(?:\.(?:gz|bz2|xz"
    r"|zst))?"
)
_NAMES_SPLIT = re.compile("train|val|test")
# A training may generate images, but not under the name of a split.
_NAMES_DATA = re.compile("data|corpus|(?:train|val|test).*(?:image|label|token|text|audio)")

TABLE = (
    RuleScope(UNLISTED, names=("site-packages", "dist-packages")),
    RuleScope(PACKAGES, names=("node_modules",)),
    RuleScope(
        ENVIRONMENTS,
        names=(".pyenv", ".nvm"),
        pattern=re.compile(r"/lib/python\d\.\d+$|/share/uv/(?:python|tools)$"),
    ),
    RuleScope(
        DOWNLOADS,
        paths=("/var/cache/apt/archives", "/var/lib/apt/lists"),
        # Stores filled only by their program, with names made from each file's content or origin.
        # huggingface_hub: hub/models--ORG--NAME/blobs/HASH (guides/manage-cache).
        pattern=re.compile(
            r"/hub/(?:models|datasets|spaces)--[^/]+/(?:blobs|refs|\.no_exist)$"
            r"|/\.cache/huggingface/xet$"
            r"|/\.cache/(?:pip/(?:http(?:-v2)?|wheels|selfcheck)|uv/[a-z-]+-v\d+|yarn|pnpm)$"
            r"|/\.npm/_cacache$"
            r"|/(?:conda|mamba|mini(?:conda|forge|mamba)\d?|anaconda\d?|\.conda)/pkgs$"
            r"|/\.cargo/registry$|/\.rustup/toolchains$|/go/pkg/mod$|/\.m2/repository$"
            r"|/\.pnpm-store$"
        ),
    ),
    RuleScope(OBJECTS, pattern=re.compile(r"/\.git/(?:modules/.*/)?objects$")),
    RuleScope(
        CACHES,
        names=(
            "__pycache__", ".cache", ".npm", ".nv", ".triton", ".yarn", ".cargo", ".rustup", ".m2",
            ".gradle",
            ".conda", ".ccache", ".pytest_cache", ".mypy_cache", ".ruff_cache",
            ".ipynb_checkpoints", ".keras",
        ),
        pattern=re.compile(
            r"^(?:/var)?/tmp/(?:torchinductor_|triton|pip-|uv-|npm-)[^/]*$"
            r"|/wandb/(?:offline-)?run-[^/]+/tmp$"
        ),
    ),
    RuleScope(RECORDS, names=(".rgt-push",)),
    # What a smoke command that was cut off has left.
    RuleScope(OWN, pattern=re.compile(r"/\.rgt-smoke-[^/]+$")),
    RuleScope(
        SETTINGS,
        at_home=(
            ".ssh", ".config", ".jupyter", ".ipython", ".vscode-server", ".vscode",
            ".cursor-server", ".gnupg",
            ".docker", ".pki", ".dbus", ".local", ".oh-my-zsh", ".nano", ".vim", ".emacs.d",
            ".byobu", ".tmux",
        ),
    ),
    RuleScope(
        SYSTEM,
        paths=(
            "/etc", "/run", "/dev", "/snap", "/boot", "/boot/efi", "/lost+found", "/var/cache",
            "/var/log",
            "/var/backups", "/var/spool", "/var/mail", "/usr/lib/locale", "/lib/apk",
            "/usr/lib/apk",
            "/usr/lib/sysimage", "/usr/lib/udev", "/usr/share/mime",
            "/usr/share/icons", "/usr/share/applications", "/usr/share/glib-2.0", "/usr/share/info",
            "/usr/share/fonts",
            *(
                "/var/lib/" + name
                for name in (
                    "alternatives", "apk", "apt", "cloud", "dbus", "dpkg", "fontconfig",
                    "ieee-data", "locales",
                    "logrotate", "man-db", "misc", "NetworkManager", "nfs", "pacman", "pam",
                    "polkit-1", "private",
                    "python", "rpm", "sgml-base", "snapd", "sudo", "systemd", "ubuntu-advantage",
                    "ucf",
                    "update-manager", "update-notifier", "vim", "xml-core",
                )
            ),
        ),
        pattern=re.compile(
            r"^(?:/var)?/tmp/(?:systemd-private-|snap-private-)[^/]*$|/lost\+found$"
            r"|^/(?:usr/)?lib/modules/[^/]+$"
        ),
    ),
    RuleScope(
        CONTAINERS,
        paths=(
            *(
                "/var/lib/docker/" + name
                for name in ("buildkit", "containers", "image", "network", "overlay2", "tmp")
            ),
            "/var/lib/containerd",
        ),
    ),
)  # fmt: skip
BEYOND = ("/dev/shm",)
"""Directories to which the parent's rule does not apply."""
IN_ENVIRONMENT = frozenset(
    (
        "bin",
        "lib",
        "lib64",
        "include",
        "Scripts",
        "share/man",
        "share/doc",
        "share/jupyter",
        "share/locale",
        "pyvenv.cfg",
    )
)
"""Entries that belong to the Python environment next to its ``pyvenv.cfg``; everything else there
belongs to the project."""
IN_CONDA = IN_ENVIRONMENT | frozenset(
    (
        "conda-meta",
        "pkgs",
        "sbin",
        "libexec",
        "etc",
        "ssl",
        "man",
        "info",
        "compiler_compat",
        "condabin",
        "shell",
    )
)
VENV = "pyvenv.cfg"
MARKERS = {VENV: IN_ENVIRONMENT, "conda-meta": IN_CONDA}
SYSTEM_FILES = frozenset(("/.dockerenv", "/.dockerinit"))
COMPILED = (".pyc", ".pyo")
SHARED_MEMORY = re.compile(r"/dev/shm/(?:sem\.|nccl-|torch_|psm_|cuda\.shm|__KMP)[^/]*")
TORCH_DOWNLOAD = re.compile(r".*/torch/hub/checkpoints/[^/]*-[0-9a-f]{8,64}\.[a-z]+")
"""torch.hub.load_state_dict_from_url(check_hash=True): the file name ends with the content's
hash."""
SEARCH_PATH_FILE = re.compile(r".*/(?:site|dist)-packages/[^/]+\.pth")
"""Path files that the module `site` reads at each Python start; only the suffix is like a PyTorch
checkpoint's.

uv (`_virtualenv.pth`), `setup.py develop` and administrators write them, and no package list names
them. The path is weak evidence, so the gate asks as soon as they are large.
"""
STANDARD_LIBRARY_FILE = re.compile(
    r".*/lib/python\d\.\d+/(?:lib2to3/(?:Pattern)?Grammar[\w.+]*\.pickle"
    r"|test/(?:\w+/)?zip_cp437_header\.zip)"
)
"""Files of Python itself that look like results.

lib2to3 caches its grammar when pip or setuptools first runs (`lib2to3/pgen2/driver.py`, Python 3.6
to 3.12), and a ZIP file of CPython's tests is named like a numbered checkpoint. No package list
names the files of an interpreter installed by pyenv, uv or `make install`.
"""
PSEUDO = frozenset(
    (
        "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts",
        "efivarfs",
        "fuse.gvfsd-fuse", "fuse.lxcfs", "fuse.portal", "fusectl", "hugetlbfs", "mqueue", "nsfs",
        "proc", "pstore",
        "rpc_pipefs", "securityfs", "selinuxfs", "squashfs", "sysfs", "tracefs",
    )
)  # fmt: skip
"""File systems without user files."""
MEMORY = frozenset(("tmpfs", "ramfs", "devtmpfs"))
"""File systems that a restart empties."""

_PATHS = {path: row.rule for row in TABLE for path in row.paths}
_NAMES = {name: row.rule for row in TABLE for name in row.names}
_AT_HOME = {name: row.rule for row in TABLE for name in row.at_home}
_PATTERNS = [(row.pattern, row.rule) for row in TABLE if row.pattern is not None]


def folder_rule(
    path: str, above: ExclusionRule | None, at_home: bool = False
) -> ExclusionRule | None:
    """Return the rule of a directory.

    Args:
        path: Absolute path, relative to the root of the walk.
        above: The rule of its parent directory.
        at_home: The parent is a home directory.
    """
    # Everything below has the same rule.
    if above is not None and above.hides:
        return above
    if path in BEYOND:
        return None
    name = path.rpartition("/")[2]
    found = _PATHS.get(path) or _NAMES.get(name) or (_AT_HOME.get(name) if at_home else None)
    if found is None:
        found = next((rule for pattern, rule in _PATTERNS if pattern.search(path)), None)
    # A package inside a cache is a package.
    if found is None or above is None or found.hides or found is UNLISTED:
        return found or above
    return above  # a system cache belongs to the system's rule


def holds_packages(path: str) -> bool:
    """Return whether a directory holds packages, downloads or git objects, not results."""
    return folder_rule(path, None) in (UNLISTED, PACKAGES, ENVIRONMENTS, DOWNLOADS, OBJECTS)


def environment_parts(names: list[str]) -> frozenset[str]:
    """Return the entries that belong to a Python environment, if a marker is in `names`."""
    found: frozenset[str] = frozenset()
    for name in names:
        found |= MARKERS.get(name, frozenset())
    return found


def file_rule(path: str) -> ExclusionRule | None:
    """Return the rule of a file by its own path."""
    if path.endswith(COMPILED):
        return BYTECODE
    if path in SYSTEM_FILES or SHARED_MEMORY.fullmatch(path):
        return SYSTEM
    if TORCH_DOWNLOAD.fullmatch(path):
        return DOWNLOADS
    if SEARCH_PATH_FILE.fullmatch(path):
        return SEARCH_PATHS
    if STANDARD_LIBRARY_FILE.fullmatch(path):
        return STANDARD_LIBRARY
    return None


def is_input(name: str, size: int) -> bool:
    """Return whether a file that is older than the training next to it is an input of the training.

    Only a name that says so: anything else may be an earlier training's result, or code if small.
    """
    stem, _, suffix = name.lower().partition(".")
    ending = _DATA_ENDING.fullmatch(suffix)
    if size <= LARGEST_CODE or ending is None or not _DATA_STEM.fullmatch(stem):
        return False
    # `train.tar` may be what a training packed, and `train.jsonl` its curve.
    is_split = ending.group("array") and _NAMES_SPLIT.search(stem)
    return bool(is_split or _NAMES_DATA.search(stem))


def looks_like_result(name: str) -> bool:
    """Return whether a file is named like a checkpoint or a result."""
    if RESULT.fullmatch(name) is not None:
        return True
    read = checkpoint_names.read_name(name)
    return checkpoint_names.is_weights(read) and not read.temporary
