"""Which variables of a loop reach nothing but the console."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path

import pytest
from rgt_train import loop_code

SHOWN = {
    "a running mean": """
        x = 0.9 * x + 0.1 * loss.item()
        print(f"mean {x:.3f}")
    """,
    "a sum that is cleared": """
        x += loss.item() * len(batch)
        if number % 10 == 0:
            print("mean", x / 10, flush=True)
            x = 0
    """,
    "through another name": """
        x += loss.item()
        mean = round(x / (number + 1), 3)
        bar.set_postfix(loss=mean)
    """,
    "a list": """
        x.append(loss.item())
        print(sum(x) / len(x))
    """,
}
USED = {
    "logged": "x += loss.item(); run.step(loss, mean=x)",
    "a scheduler's, through another name": "x += loss.item(); mean = x / 2; scheduler.step(mean)",
    "a condition of more than prints": """
        x += 1
        if x % 4 == 0:
            print(x)
            optimizer.step()
    """,
    "a condition of a loop": """
        x += 1
        while x < 3:
            x += 1
    """,
    "returned": "x += 1; return x",
    "written to a file": "x += 1; print(x, file=log)",
    "given to a function in a print": "x += 1; print(update(model, x))",
    "a function in its own update": "x = update(model, x); print(x)",
    "an attribute's": "x += 1; self.count = x",
    "a nested function's": """
        x += 1
        def scale():
            return 0.5 ** x
        print(x)
    """,
    "what changes a weight in place": """
        x += 1
        for weight in model.parameters():
            weight += x
    """,
    "what may be a weight": "x = model.weight.data; x += 1; print(x)",
    "what is inspected": "x += 1; print(x); torch.save(locals(), 'end.pt')",
    "used in a handler": """
        x += 1
        try:
            print(x)
        except ValueError:
            optimizer.step(x)
    """,
    "an argument by default": """
        x += 1
        def scale(by=x):
            return by
    """,
}


def load(folder: Path, text: str, head: str) -> types.ModuleType:
    path = folder / "train.py"
    lines = [line for line in text.splitlines() if line.strip()]
    indent = len(lines[0]) - len(lines[0].lstrip())
    body = "\n".join("        " + line[indent:] for line in lines)
    first = "x = []" if ".append" in text else "x = 0"
    path.write_text(f"{head}    {first}\n    for number, batch in enumerate(loader):\n{body}\n")
    spec = importlib.util.spec_from_file_location("train", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", SHOWN)
def test_what_only_the_console_gets_is_known(tmp_path: Path, name: str) -> None:
    module = load(tmp_path, SHOWN[name], "def train(loader, bar):\n")
    assert loop_code.is_only_printed([module.train.__code__], "x")


@pytest.mark.parametrize("name", USED)
def test_what_the_training_uses_is_not_taken_for_it(tmp_path: Path, name: str) -> None:
    module = load(tmp_path, USED[name], "def train(self, loader, model, optimizer):\n")
    assert not loop_code.is_only_printed([module.train.__code__], "x")


def test_a_global_that_another_function_uses(tmp_path: Path) -> None:
    text = "x += 1; print(x)"
    other = "def scale():\n    return 2 ** x\n"
    for head, shown in (("", True), (other, False)):
        folder = tmp_path / str(shown)
        folder.mkdir()
        module = load(folder, text, f"{head}def train(loader):\n    global x\n")
        assert loop_code.is_only_printed([module.train.__code__], "x") == shown


def test_an_edited_file_says_nothing(tmp_path: Path) -> None:
    module = load(tmp_path, SHOWN["a list"], "def train(loader):\n")
    (tmp_path / "train.py").write_text("def train(loader):\n    x = 1\n    x += 2\n")
    assert not loop_code.is_only_printed([module.train.__code__], "x")
    assert not loop_code.is_only_printed([compile("x = 0\nx += 1", "<cell>", "exec")], "x")
