"""The process that loads files of torch.save with torch, ``weights_only``, mapped where they can be, under limits.

Only what `rgt_tui.transfer.torch_files` has found to be whole and to name nothing but what torch's own loader takes
comes here. torch before 2.6 is not used: its ``weights_only`` loading could be made to run code (CVE-2025-32434).

One JSON object per line in, ``{"path", "legacy"}``; one per line out: ``trouble``, or nothing. The first line out says
which torch it is, or why there is none.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
from pathlib import Path
from typing import Any

from rgt_tui.transfer.examine_child import limit

OLDEST = (2, 6)
MEMORY = 16 << 30
"""Address space beside that of the file: the libraries of torch alone reserve several GB."""
DATA = 3 << 30
"""Memory of its own beside that for the file."""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("+")[0].split(".")[:2] if part.isdigit())


def _load(torch: Any, path: str, legacy: bool) -> dict[str, Any]:
    size = Path(path).stat().st_size
    for what, most in ((resource.RLIMIT_AS, MEMORY + 2 * size), (resource.RLIMIT_DATA, DATA + 2 * size)):
        resource.setrlimit(what, (most, resource.getrlimit(what)[1]))
    try:
        torch.load(path, map_location="cpu", weights_only=True, mmap=not legacy)
    except MemoryError:
        return {"trouble": "torch needs more memory for it than a file of its length may need"}
    except Exception as error:
        lines = [*(line for line in str(error).splitlines() if "error:" in line), str(error)]
        return {"trouble": f"torch.load refuses it: {type(error).__name__}: {lines[0].strip()[:160]}"}
    return {}


def main() -> int:
    """Answer until standard input ends."""
    limit(None)
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        print(json.dumps({"missing": f"torch cannot be imported: {type(error).__name__}"}), flush=True)
        return 0
    if _version(torch.__version__) < OLDEST:
        why = f"torch {torch.__version__} is older than 2.6, whose weights_only loading can be trusted"
        print(json.dumps({"missing": why}), flush=True)
        return 0
    print(json.dumps({"torch": str(torch.__version__)}), flush=True)
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        print(json.dumps(_load(torch, asked["path"], asked["legacy"])), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
