"""The config: YAML or JSON files, the command line above them, mistakes told with file, line and nearest name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rgt_train import UsageError, cli, exits
from rgt_train.config import (
    COMMON,
    SHIPPED,
    TASKS,
    Field,
    config_tables,
    fields_of,
    merge_config,
    read_config,
)

from tests.process.train.harness import ENV, ROOT, TIMEOUT


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return path


@pytest.fixture
def no_pyyaml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide PyYAML, as on a box that lacks it."""
    monkeypatch.setitem(sys.modules, "yaml", None)


def test_reads_scalars_quotes_and_comments(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "---\n# a comment\n\nlr: 1e-3   # why\nname: 'it''s # no comment'\nother: \"a\\tb\" # yes\nempty:\nurl: http://x#y\n"
        "flow: [a, 'b', c]  # three\nlist:\n- x\n- y # z\nnone: []\n",
    )
    found = {key: scalar.text for key, scalar in read_config(path).items()}
    assert found == {
        "lr": "1e-3",
        "name": "it's # no comment",
        "other": "a\tb",
        "empty": "",
        "url": "http://x#y",
        "flow": "a,b,c",
        "list": "x,y",
        "none": "",
    }


CONFIG = {
    "task": "diffusion",
    "optimizer": {"lr": 0.25, "batch": 32},
    "log": {"loggers": ["tensorboard", "wandb"]},
    "balance": True,
    "none": [],
    "nothing": None,
}


@pytest.mark.usefixtures("no_pyyaml")
def test_without_pyyaml_json_is_read_with_the_same_meaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, json.dumps(CONFIG))
    found = {
        key: (value.text, value.section, value.items) for key, value in read_config(path).items()
    }
    assert found["lr"] == ("0.25", "optimizer", False)
    assert found["balance"] == ("true", "", False)
    monkeypatch.undo()
    assert found == {
        key: (value.text, value.section, value.items) for key, value in read_config(path).items()
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "lr: 1\n",
            r"c\.yaml: PyYAML is not installed here, and this is not JSON .*: pip install pyyaml, or",
        ),
        ("[1]", r"expected an object of keys and values"),
        ("3", r"expected an object of keys and values"),
        ('{"lr": 1, "lr": 2}', r"'lr' is given twice"),
        ('{"save": {"keep": 1}, "keep": 2}', r"'keep' is given twice"),
        ('{"a": {"b": {"c": 1}}}', r"'b' takes a plain value or a list, nothing deeper"),
        ('{"a": [1, [2]]}', r"'a' takes a plain value or a list, nothing deeper"),
        ('{"a": ["x,y"]}', r"'a' has an item that cannot be an item of a list"),
        ('{"a": [{"b": 1}]}', r"'a' takes a plain value or a list, nothing deeper"),
    ],
)
@pytest.mark.usefixtures("no_pyyaml")
def test_json_s_refusals_name_the_file_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        merge_config([write(tmp_path, text)], {})


def test_pyyaml_reads_all_of_yaml_where_it_is_installed(tmp_path: Path) -> None:
    text = "rates: &rate 1e-3\nlr: *rate\nrun: {epochs: 4}\nnote: >\n  two\n  lines\n"
    found = read_config(write(tmp_path, text))
    assert {key: (one.text, one.section) for key, one in found.items()} == {
        "rates": ("1e-3", ""),
        "lr": ("1e-3", ""),
        "epochs": ("4", "run"),
        "note": ("two lines\n", ""),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\n  c:\n    d: 1\n", r":3: 'c' takes a plain value or a list, nothing deeper"),
        ("a: 1\nb: [1\n", r":3: not YAML: "),
        ("a:\n\tb: 1\n", r":2: not YAML: "),
        ('a: "\\q"\n', r":1: not YAML: found unknown escape"),
        ("a: 1\n---\nb: 2\n", r":2: not YAML: "),
        ("lr: 1\nlr: 2\n", r":2: 'lr' is given twice, first at .*:1"),
        ("- a\n", r":1: expected 'key: value'"),
        ("? [a]\n: b\n", r":1: a key must be a word"),
        ("a: [b, [c]]\n", r":1: this cannot be an item of a list here"),
        ("a: *b\n", r":1: not YAML: found undefined alias"),
    ],
)
def test_pyyaml_s_refusals_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_config(write(tmp_path, text))


def test_the_command_line_beats_the_file(tmp_path: Path) -> None:
    config = merge_config([write(tmp_path, "epochs: 3\nlr: 0.5\n")], {"epochs": "7", "seed": None})
    assert (config.int("epochs"), config.float("lr"), config.int("seed")) == (7, 0.5, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "seed: 1\nepoch: 3\n",
            r"c\.yaml:2: unknown key 'epoch' for task char_lm; did you mean 'epochs'\?",
        ),
        (
            "Learning: 3\n",
            r"c\.yaml:1: unknown key 'Learning' for task char_lm; known are accumulate, batch, ",
        ),
        ("noise: 3\n", r"unknown key 'noise' for task char_lm"),
        ("task: char_ml\n", r"c\.yaml:1: unknown task 'char_ml'; did you mean 'char_lm'\?"),
        ("epochs: 2.5\n", r"c\.yaml:1: epochs must be a whole number, not '2\.5'"),
        ("epochs: '2'\n", r"epochs must be a whole number"),
        ("batch: 0\n", r"batch must be at least 1, not 0"),
        ("lr: nan\n", r"lr must be at least 0"),
        ("lr: [1, 2]\n", r"c\.yaml:1: lr takes one value, not a list"),
        (
            "optimiser:\n  lr: 1\n",
            r"c\.yaml:2: unknown section 'optimiser'; did you mean 'optimizer'\?",
        ),
        ("save:\n  lr: 1\n", r"c\.yaml:2: lr belongs to the section 'optimizer', not 'save'"),
        ("guard:\n  spike: wran\n", r"c\.yaml:2: spike cannot be 'wran'; did you mean 'warn'\?"),
        (
            "task: image_classifier\nbalance: yes\n",
            r"c\.yaml:2: balance must be true or false, not 'yes'",
        ),
    ],
)
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        merge_config([write(tmp_path, text)], {})


def test_sections_lists_and_several_files(tmp_path: Path) -> None:
    first = write(
        tmp_path,
        "task: diffusion\nsave:\n  keep: 7\n  save_every: 3\nlog:\n  loggers: [tensorboard, wandb]\n",
    )
    second = tmp_path / "d.yaml"
    second.write_text("save_every: 9\n")
    config = merge_config(["prod", first, second], {"batch": "64"})
    assert (config.int("keep"), config.int("save_every")) == (7, 9)
    assert config.names("loggers") == ("tensorboard", "wandb")
    assert config.str("spike") == "rollback"
    assert config.given["batch"] == 64
    assert "lr" not in config.given
    assert config.float("lr") == 2e-3  # the task's own default


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("task", TASKS)
def test_the_shipped_configs_fit_every_task(name: str, task: str) -> None:
    config = merge_config([name], {"task": task})
    assert set(config.given) > {"task", "save_every", "spike"}
    assert set(config.values) == set(fields_of(task))


def test_a_file_that_is_not_there_names_the_shipped_ones() -> None:
    with pytest.raises(UsageError, match=r"shipped are dev and prod"):
        read_config("pord")


def test_fields_of_a_task_of_ones_own() -> None:
    own = Field("wings", "int", 2, "wings")
    config = merge_config([], {"task": "birds:Task", "wings": "4"}, lambda name: [own])
    assert config.int("wings") == 4
    with pytest.raises(
        UsageError, match="unknown key 'wing' for task birds:Task; did you mean 'wings'"
    ):
        merge_config([], {"task": "birds:Task", "wing": "4"}, lambda name: [own])


def test_fields_have_a_section_and_a_help() -> None:
    for field in (*COMMON, *(field for fields in TASKS.values() for field in fields)):
        assert field.help and field.section and not field.help.endswith("."), field.name
        assert field.kind in ("int", "float", "bool", "str", "names")


def test_mistakes_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    for argv, message in (
        (["--epochs", "x"], "--epochs: epochs must be a whole number, not 'x'"),
        (["--set", "lr"], "--set lr: expected KEY=VALUE"),
        (
            ["--set", "widht=3"],
            "--set widht: unknown key 'widht' for task char_lm; did you mean 'width'?",
        ),
        (["--set", "lr=x", "--epochs", "1"], "--set lr: lr must be a number"),
        (["--smoke", "0"], "--smoke 0: at least 1 step"),
        ([], "--out DIR is missing"),
        (["--config", "/nowhere.yaml"], "cannot read the config /nowhere.yaml"),
        (
            ["--set", "loggers=tensorbord"],
            "unknown logger 'tensorbord'; known are tensorboard, wandb, trackio, mlflow",
        ),
        (["--task", "nomodule:Task"], "cannot import 'nomodule'"),
        (["--task", "json:JSONDecoder"], "JSONDecoder has no method model, loss, validation"),
        (["--task", "json:Nothing"], "has no 'Nothing'"),
    ):
        assert cli.main(argv) == exits.USAGE
        assert message in capsys.readouterr().err


def test_the_help_of_export_needs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError\n")
    done = subprocess.run(
        [sys.executable, "-m", "rgt_train", "export", "--help"],
        env={**ENV, "PYTHONPATH": f"{tmp_path}:{ENV['PYTHONPATH']}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    assert "--to F.safetensors" in done.stdout


def test_a_python_without_torch_is_told(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open')\n")
    done = subprocess.run(
        [sys.executable, "-m", "rgt_train", "--out", str(tmp_path / "run")],
        env={**ENV, "PYTHONPATH": f"{tmp_path}:{ENV['PYTHONPATH']}"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == exits.USAGE
    assert (
        f"torch is not importable by {sys.executable}: ImportError: libcudart.so.12: cannot open"
        in done.stderr
    )
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_every_key_is_documented() -> None:
    page = (ROOT / "docs" / "trainer.md").read_text()
    assert f"<!-- keys -->\n{config_tables()}<!-- /keys -->" in page, (
        "paste: python -m rgt_train.config"
    )


def test_dev_trains_on_few_data_and_says_what_it_changed(tmp_path: Path) -> None:
    own = write(tmp_path, "epochs: 90\nbatch: 64\n")
    config = merge_config([own, "dev"], {"batch": "4"})
    assert (config.int("data_limit"), config.int("epochs"), config.int("batch")) == (512, 1, 4)
    (note,) = config.notes
    assert note.startswith(
        "config dev: epochs 90 → 1, steps_per_epoch 200 → 0, data_limit 0 → 512, "
    )
    assert "batch" not in note  # the option decides


def test_prod_trains_on_all_data() -> None:
    config = merge_config(["dev", "prod"], {})
    assert (config.int("data_limit"), config.int("steps_per_epoch")) == (0, 0)
    assert "data_limit 512 → 0" in config.notes[1]
    assert "data_limit" not in config.notes[0]


def test_the_variable_dev_mode_adds_the_config_dev() -> None:
    assert cli.is_dev_mode("True") and cli.is_dev_mode("1")
    assert not cli.is_dev_mode("False") and not cli.is_dev_mode("")
    with pytest.raises(UsageError, match="DEV_MODE is 'ture': set it to true or false"):
        cli.is_dev_mode("ture")
