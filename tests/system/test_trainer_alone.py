"""The trainer on a box that has torch and nothing else, as the one file that `rgt push --trainer` puts there."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rgt_tui.ssh import build_trainer
from tests.system.tree import ROOT, tracked_files

OLDEST = (3, 8)
"""The oldest Python that a torch of 2.4 runs on."""
SOURCE = [
    path
    for path in tracked_files()
    if path.is_relative_to(ROOT / "remote/rgt_train") and path.suffix == ".py"
]
MISSING = ("numpy", "yaml", "msgspec", "safetensors", "tensorboard", "tqdm")


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a box")
    (folder / "rgt-train.pyz").write_bytes(build_trainer().data)
    (folder / "hidden").mkdir()
    for name in MISSING:
        text = f'raise ModuleNotFoundError("No module named {name}", name="{name}")\n'
        (folder / "hidden" / f"{name}.py").write_text(text)
    return folder


def there(box: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "RGT_"))}
    env |= {
        "PYTHONPATH": str(box / "hidden"),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, "rgt-train.pyz", *words],
        cwd=box,
        env=env,
        capture_output=True,
        text=True,
        timeout=150,
    )


def test_it_trains_logs_resumes_and_exports(box: Path) -> None:
    words = [
        "--task",
        "diffusion",
        "--out",
        "run",
        "--set",
        "steps_per_epoch=20",
        "--set",
        "loggers=tensorboard",
    ]
    first = there(box, *words, "--config", "dev", "--epochs", "1")
    assert first.returncode == 0 and "done: step 20" in first.stdout, first.stderr
    again = there(box, *words, "--config", "dev", "--epochs", "2")
    assert again.returncode == 0 and "resume: at step 20 of 40" in again.stdout, again.stderr
    assert len(list((box / "run/tensorboard").iterdir())) == 2
    exported = there(box, "export", "run", "--to", "model.safetensors")
    assert exported.returncode == 0 and "of step 40" in exported.stdout, exported.stderr
    versions = json.loads((box / "run/run.json").read_text())["last"]["versions"]
    assert versions["torch"]


def test_a_task_beside_the_file_is_found(box: Path) -> None:
    (box / "lines.py").write_text(
        "import torch\n"
        "class Line:\n"
        "    samples = 64\n"
        "    def __init__(self, config): pass\n"
        "    def model(self): return torch.nn.Linear(1, 1)\n"
        "    def loss(self, model, indices, seed_of, device):\n"
        "        x = torch.tensor([[float(i)] for i in indices]) / 64\n"
        "        return ((model(x) - 2 * x) ** 2).mean()\n"
        "    def validation(self, model, device):\n"
        "        yield float(self.loss(model, range(64), None, device)) * 64, 64\n"
    )
    done = there(box, "--task", "lines:Line", "--smoke", "2")
    assert done.returncode == 0 and "smoke: 2 steps ok" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "path", SOURCE, ids=lambda path: str(path.relative_to(ROOT / "remote/rgt_train"))
)
def test_the_source_is_that_of_the_oldest_python(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST)


def test_nothing_asks_where_its_file_stands() -> None:
    """A zipapp has no files beside the code."""
    readers = []
    for path in SOURCE:
        names = {
            node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)
        }
        if "__file__" in names:
            readers.append(path.name)
    # For the tree as a whole: it may be the zip file itself, and nothing is read from it. The search for state
    # compares the paths of frames with its own.
    assert sorted(readers) == ["state_search.py", "writer.py"]
