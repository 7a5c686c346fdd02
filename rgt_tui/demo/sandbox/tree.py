"""What of this machine a box may see: the operating system and the interpreter, read-only."""

from __future__ import annotations

import sys
from pathlib import Path

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix")
CODE = "/root/code"
"""Where the box finds the trainer."""
TRACES = "/root/.gpu-traces"
"""Where the box finds the GPU traces that it replays."""


def system_links() -> list[tuple[str, str]]:
    """Return ``(path, text)`` of the top-level symbolic links that a merged-/usr system has."""
    return [
        (f"/{name}", str(Path(f"/{name}").readlink())) for name in SYSTEM if Path(f"/{name}").is_symlink()
    ]


def binds(remote: Path) -> list[tuple[str, str, bool]]:
    """Return ``(source, target, read_only)`` for the system, the interpreter, and the trainer below `remote`."""
    tops = [f"/{name}" for name in SYSTEM if Path(f"/{name}").is_dir() and not Path(f"/{name}").is_symlink()]
    shown = [(top, top, True) for top in tops]
    for path in sorted({str(Path(p).resolve()) for p in (sys.prefix, sys.base_prefix)}, key=len):
        if not any(path == top or path.startswith(top + "/") for top, _, _ in shown):
            shown.append((path, path, True))
    shown.append((str(remote / "rgt_train"), f"{CODE}/rgt_train", True))
    shown.append((str(Path(__file__).parents[1] / "traces"), TRACES, True))
    shown += [("/dev", "/dev", False), ("/sys", "/sys", False)]
    return shown


def environment(marker: str, root: str) -> dict[str, str]:
    """Return the environment that a login on a box starts with."""
    return {
        "HOME": "/root",
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "PATH": f"{sys.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "RGT_RING_BYTES": str(8 << 20),
        marker: root,
    }
