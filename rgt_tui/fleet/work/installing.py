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
POETRY_LOCK = "poetry.lock"
PLAIN = "requirements.txt"
CONDA_FILES = ("conda-lock.yml", "environment.yml", "environment.yaml")
"""Never installed: conda would replace the image's torch by a build of its own."""

# torch and the libraries around it belong to the image: another build may not fit its driver.
# pip freeze gives no version of what came from a file, as in NVIDIA's images.
_BEFORE = (
    "python -m pip list --format=freeze | grep -E "
    "'^(torch|torchvision|torchaudio|(pytorch[-_])?triton|flash[-_]attn|xformers|nvidia-[a-z0-9-]+)==' "
    '> "$RGT_OUT/kept.txt"; export PIP_CONSTRAINT="$RGT_OUT/kept.txt" '
    'UV_CONSTRAINT="$RGT_OUT/kept.txt"; '
)
# A package that came from a file is pinned by its version: no other machine has that file.
_AFTER = (
    ' && python -m pip freeze > "$RGT_OUT/frozen.txt" && '
    """sed -n 's/^\\([^ ]*\\) @ file:.*/^\\1==/p' "$RGT_OUT/frozen.txt" """
    '> "$RGT_OUT/files.txt" && '
    """{ { grep -v ' @ file:' "$RGT_OUT/frozen.txt"; """
    'if [ -s "$RGT_OUT/files.txt" ]; then '
    'python -m pip list --format=freeze | grep -f "$RGT_OUT/files.txt"; fi; } '
    '> "$RGT_OUT/packages.txt"; python -m pip check || true; }'
)


def _install_lock(lock: str) -> str:
    """Return the shell line for a lock file; files that another machine had are left out."""
    return (
        f"{{ grep ' @ file:' {lock} | sed 's/^/left out, a file of another machine: /'; }}; "
        f"if grep -q ' @ file:' {lock}; then "
        f"""grep -v ' @ file:' {lock} > "$RGT_OUT/lock.txt"; """
        'python -m pip install -r "$RGT_OUT/lock.txt"; '
        f"else python -m pip install -r {lock}; fi"
    )


def find_conda_file(paths: Collection[str]) -> str | None:
    """Return the file of conda that says what the code needs; None without one."""
    return next((file for file in CONDA_FILES if file in paths), None)


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
            return _build_plan(_install_lock(lock), lock, "")
    if UV_LOCK in paths:
        export = 'python -m uv export --frozen --no-emit-project --no-hashes -o "$RGT_OUT/lock.txt"'
        steps = (
            f'python -m pip install uv && {export} && python -m pip install -r "$RGT_OUT/lock.txt"'
        )
        return _build_plan(steps, UV_LOCK, "")
    if POETRY_LOCK in paths:
        # In a directory of its own: poetry's dependencies are not the code's.
        steps = (
            "tools=$(mktemp -d) && "
            'python -m pip install -q --target "$tools" poetry poetry-plugin-export && '
            'PYTHONPATH="$tools" python -m poetry export --without-hashes '
            '-o "$RGT_OUT/lock.txt" && '
            'rm -rf "$tools" && python -m pip install -r "$RGT_OUT/lock.txt"'
        )
        return _build_plan(steps, POETRY_LOCK, "")
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
