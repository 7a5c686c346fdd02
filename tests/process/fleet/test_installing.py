"""Which file of the code says what to install, and that the line that does it works with a real pip."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rgt_tui.fleet.work import installing

FILES = ["requirements.txt", "uv.lock", "requirements.lock", "setup/install_deps.sh"]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_most_exact_file_counts(count: int) -> None:
    plan = installing.plan_install({"train.py", *FILES[:count]})
    assert plan is not None and plan.source == FILES[count - 1]
    reads = {"uv.lock": "uv export --frozen"}.get(plan.source, plan.source)
    assert reads in plan.line
    assert bool(plan.warning) == (count == 1)


def test_code_that_says_nothing_has_no_plan() -> None:
    assert installing.plan_install({"train.py", "docs/requirements.txt"}) is None


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
