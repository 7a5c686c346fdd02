"""Load the ``pynvml`` module that is packed beside the agent, cheaply."""

from __future__ import annotations

import os
import sys

from rgt_box import files, ownership, place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def load(state_dir: str) -> Any:
    """Import ``pynvml``, compiled once per agent and Python into the state directory.

    The module is large: compiling it in this process would cost 0.1 s and 17 MiB that are never given back.

    Raises:
        ImportError: when it was not packed.
    """
    import importlib.machinery
    import importlib.util

    cached = os.path.join(state_dir, "pynvml-%s-%s.pyc" % (place.digest(), sys.implementation.cache_tag))
    if place.digest() != "dev" and not ownership.is_ours(cached):
        _compile(cached)
    if ownership.is_ours(cached):  # it is run
        loader = importlib.machinery.SourcelessFileLoader("pynvml", cached)
        spec = importlib.util.spec_from_loader("pynvml", loader)
        if spec is not None:
            try:
                module = importlib.util.module_from_spec(spec)
                sys.modules["pynvml"] = module  # it looks itself up there
                loader.exec_module(module)
                return module
            except (ImportError, EOFError, ValueError):
                sys.modules.pop("pynvml", None)
                files.unlink(cached)
    return __import__("pynvml")


def _compile(target: str) -> None:
    import subprocess

    try:
        ownership.take(os.path.dirname(target))
    except OSError:
        return

    code = (
        "import sys, zipfile, importlib._bootstrap_external as b\n"
        "source = zipfile.ZipFile(sys.argv[1]).read('pynvml.py')\n"
        "data = b._code_to_timestamp_pyc(compile(source, 'pynvml.py', 'exec', dont_inherit=True, optimize=2))\n"
        "import os; t = sys.argv[2] + '.tmp-%d' % os.getpid()\n"
        "f = os.open(t, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)\n"
        "os.write(f, data); os.close(f); os.rename(t, sys.argv[2])\n"
    )
    try:
        subprocess.call(
            [sys.executable, "-I", "-S", "-c", code, place.root(), target],
            stderr=subprocess.DEVNULL,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass  # no cache, then: the plain import still works
