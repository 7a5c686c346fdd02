"""How the dependencies of pushed code are installed: its own script, a lock file, or requirements."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from rgt_tui.language import translate


class InstallPlan(NamedTuple):
    """A shell line that installs, for a job in the directory of the code."""

    line: str
    source: str
    """The file of the code that it installs from."""
    warning: str = ""
    """Why two installs may differ; empty if everything is pinned."""


SCRIPTS = ("setup/install_deps.sh", "install_deps.sh", "scripts/install_deps.sh")
LOCKS = ("requirements.lock", "requirements-lock.txt", "requirements.lock.txt")
"""Lock files in the form of requirements, as pip-compile and pip freeze write them."""
UV_LOCK = "uv.lock"
PLAIN = "requirements.txt"

# torch and the libraries around it belong to the image: another build may not fit its driver.
# pip freeze gives no version of what came from a file, as in NVIDIA's images.
_BEFORE = (
    "python -m pip list --format=freeze | grep -E "
    "'^(torch|torchvision|torchaudio|(pytorch[-_])?triton|flash[-_]attn|xformers|nvidia-[a-z0-9-]+)==' "
    '> "$RGT_OUT/kept.txt"; export PIP_CONSTRAINT="$RGT_OUT/kept.txt" '
    'UV_CONSTRAINT="$RGT_OUT/kept.txt"; '
)
_AFTER = ' && python -m pip freeze > "$RGT_OUT/packages.txt" && { python -m pip check || true; }'


def plan_install(paths: Collection[str]) -> InstallPlan | None:
    """Return how the code with these files is installed; None if nothing says what it needs.

    Args:
        paths: Relative paths of the code's files.
    """
    for script in SCRIPTS:
        if script in paths:
            return _build_plan(f"bash {script}", script, "")
    for lock in LOCKS:
        if lock in paths:
            return _build_plan(f"python -m pip install -r {lock}", lock, "")
    if UV_LOCK in paths:
        export = 'python -m uv export --frozen --no-emit-project --no-hashes -o "$RGT_OUT/lock.txt"'
        steps = (
            f'python -m pip install uv && {export} && python -m pip install -r "$RGT_OUT/lock.txt"'
        )
        return _build_plan(steps, UV_LOCK, "")
    if PLAIN in paths:
        warning = translate(
            "{file} is no lock file: another install may take other versions (page U29). Keep "
            "packages.txt of this run as {lock}, which pins them",
            file=PLAIN,
            lock=LOCKS[0],
        )
        return _build_plan(f"python -m pip install -r {PLAIN}", PLAIN, warning)
    return None


def _build_plan(steps: str, source: str, warning: str) -> InstallPlan:
    return InstallPlan(f"{_BEFORE}{steps}{_AFTER}", source, warning)
