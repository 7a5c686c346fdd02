"""Which file of the code says what to install, and that the line that does it works with a real pip."""

from __future__ import annotations

import os
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

from rgt_tui.fleet.work import installing

FILES = ["requirements.txt", "poetry.lock", "uv.lock", "requirements.lock", "setup/install_deps.sh"]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_the_most_exact_file_counts(count: int) -> None:
    plan = installing.plan_install({"train.py", *FILES[:count]})
    assert plan is not None and plan.source == FILES[count - 1]
    exports = {"uv.lock": "uv export --frozen", "poetry.lock": "poetry export"}
    reads = exports.get(plan.source, plan.source)
    assert reads in plan.line
    assert bool(plan.warning) == (count == 1)


def test_code_that_says_nothing_has_no_plan() -> None:
    assert installing.plan_install({"train.py", "docs/requirements.txt", "environment.yml"}) is None


def test_files_of_conda_are_named_with_the_command() -> None:
    assert installing.find_conda_file({"train.py", "environment.yml"}) == "environment.yml"
    assert installing.find_conda_file({"conda-lock.yml", "environment.yml"}) == "conda-lock.yml"
    assert installing.find_conda_file({"train.py"}) is None


def test_the_line_keeps_torch_and_lists_what_was_installed(tmp_path: Path) -> None:
    """A `python` whose pip writes down what it was called with, and has a torch of its image.

    pip freeze says where a wheel came from, as in NVIDIA's images; only pip list says which version it is.
    """
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(
        f"""#!/bin/sh
echo "$PIP_CONSTRAINT $UV_CONSTRAINT $*" >> {tmp_path}/calls
case "$3 $4" in
freeze*) printf 'numpy==2.1\\ntorch @ file:///opt/torch.whl\\npytorch-triton @ file:///opt/t.whl\\n';;
"list --format=freeze") printf 'numpy==2.1\\ntorch==2.9.0a0+nv\\npytorch-triton==3.5\\n'
    printf 'pytorch-lightning==2.5\\nnvidia-nccl-cu12==2.27\\n';;
esac
exit 0
"""
    )
    python.chmod(0o755)
    plan = installing.plan_install({"requirements.txt"})
    assert plan is not None
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "RGT_OUT": str(tmp_path)}
    subprocess.run(["sh", "-c", plan.line], check=True, env=env)
    kept = (tmp_path / "kept.txt").read_text().splitlines()
    assert kept == ["torch==2.9.0a0+nv", "pytorch-triton==3.5", "nvidia-nccl-cu12==2.27"]
    calls = (tmp_path / "calls").read_text().splitlines()
    file = f"{tmp_path}/kept.txt"
    assert f"{file} {file} -m pip install -r requirements.txt" in calls
    assert len((tmp_path / "packages.txt").read_text().splitlines()) == 3


def run_line(line: str, folder: Path, out: Path, python: Path) -> str:
    """Run an install line with another Python as `python`, and return what it prints."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "python").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    (folder / "bin" / "python").chmod(0o755)
    out.mkdir(exist_ok=True)
    env = {**os.environ, "PATH": f"{folder / 'bin'}:/usr/bin:/bin", "RGT_OUT": str(out)}
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=env, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def test_packages_from_files_are_pinned_by_version_and_their_lines_are_not_installed(
    tmp_path: Path,
) -> None:
    """With a real pip. An image's own wheels have a path that no other machine has."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    wheel = tmp_path / "own.x-1.2-py3-none-any.whl"
    info = "own.x-1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("ownx.py", "")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: own.x\nVersion: 1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", wheel], check=True)
    (tmp_path / "requirements.txt").write_text("")
    plan = installing.plan_install({"requirements.txt"})
    assert plan is not None
    run_line(plan.line, tmp_path, tmp_path / "first", python)
    packages = (tmp_path / "first" / "packages.txt").read_text().splitlines()
    assert packages == ["own.x==1.2"]
    # A lock file that pip freeze wrote on another machine.
    (tmp_path / "requirements.lock").write_text(
        "torch @ file:///nowhere/torch-2.9.0a0.whl#sha256=00\nown.x==1.2\n"
    )
    plan = installing.plan_install({"requirements.lock"})
    assert plan is not None
    printed = run_line(plan.line, tmp_path, tmp_path / "second", python)
    assert "left out, a file of another machine: torch @ file:///nowhere" in printed
    assert (tmp_path / "second" / "packages.txt").read_text().splitlines() == ["own.x==1.2"]
    (tmp_path / "requirements.lock").write_text("no-such-file @ file:///nowhere\n./nothing.whl\n")
    with pytest.raises(subprocess.CalledProcessError):
        run_line(plan.line, tmp_path, tmp_path / "third", python)
