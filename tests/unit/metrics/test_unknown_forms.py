"""Files of unknown programs: each case is one general form, not one program."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from rgt_box.metrics import json_documents, scalars_command

A = [1.55, 1.25, 1.05, 0.93, 0.81]
B = [2.55, 2.25, 2.05, 1.93, 1.81]
EPOCHS = [1, 2, 3, 4, 5]
ROWS = list(zip(EPOCHS, A, B, strict=True))
SETS = {
    "train": [{"epoch": i, "loss": a} for i, a, _ in ROWS],
    "val": [{"epoch": i, "loss": b} for i, _, b in ROWS],
}
PAIRS = {"loss": [[i, a] for i, a, _ in ROWS], "acc": [[i, b] for i, _, b in ROWS]}
NUMBERED = {f"epoch_{i}": {"loss": a, "val_loss": b} for i, a, b in ROWS}
SEVERAL = "\n".join(json.dumps({"epoch": i, "loss": a, "acc": b}, indent=2) for i, a, b in ROWS)
NUMPY = "{'loss': [" + ", ".join(f"np.float64({y})" for y in A) + f"], 'val_loss': {B}}}"
BOX = "-------\n| loss | {a} |\n| mean 100 rewards | {b} |\n-------"
SETTINGS = "Namespace(itr=1, d_model=8, dropout=0.1, loss='MSE', amp=False, gpu=None, model='S')\n"
YOLO = "     {i}/4   4.8G {a} 0 0 0 9 640 {b} 0 0 0 0 0 0"
OPTUNA = ",number,values_0,values_1,params_lr,state\n"
MONITOR = '#{"t_start": 1}\nr,l,t\n'


def read_series(path: Path) -> dict[tuple[str, str], tuple[list[float], list[float]]]:
    """Return (tag, axis) → xs and ys of a file, as ``rgt scalars`` reads it."""
    (source,) = scalars_command.find_sources_at(str(path))[0]
    reading = scalars_command.SourceReading(source)
    return {(key[1], key[2]): (series.xs, series.ys) for key, series, _ in reading.iterate_series()}


def fill(form: str, head: str = "") -> str:
    """Return `form` for each epoch; ``{i}``, ``{a}``, ``{b}``, and ``{da}`` with a decimal comma."""
    lines = [
        form.format(i=i, a=a, b=b, da=str(a).replace(".", ","), db=str(b).replace(".", ","))
        for i, a, b in ROWS
    ]
    return head + "\n".join(lines) + "\n"


HITS = "".join(
    f"epoch   {i}\nloss: {a}\nacc: {b}%, ({round(b * 24660)}/2466000)\n" for i, a, b in ROWS
)


@pytest.mark.parametrize(
    ("name", "text", "axis", "first", "second"),
    [
        ("out.tsv", fill("{i}\t{da}\t{db}", "epoch\tloss\tval_loss\n"), "epoch", "loss", "val_loss"),
        ("out.csv", fill("{i}|{a}|{b}", "epoch|loss|val_loss\n"), "epoch", "loss", "val_loss"),
        ("out.csv", fill("{i},{a},{b},", "# lr=1\nepoch,loss,val_loss\n"), "epoch", "loss", "val_loss"),
        ("out.txt", fill('"{i}" {i} {a} {b}', '"epoch" "loss" "val_loss"\n'), "epoch", "loss", "val_loss"),
        ("out.csv", fill("{a},{b}", "train_acc,val_acc\n"), "row", "train_acc", "val_acc"),
        ("m.csv", fill("{a},{i},{b}", MONITOR), "row", "reward", "seconds"),
        ("out.dat", fill("{i} {a} {b}"), "step", "out/1", "out/2"),
        ("out.log", fill("train_loss={a} val_loss={b}"), "row", "train_loss", "val_loss"),
        ("out.log", fill(BOX), "row", "loss", "mean 100 rewards"),
        ("out.log", fill("[{i}] Train: loss={a} | Valid: loss={b}"), "step", "loss", "valid/loss"),
        ("out.log", fill("Epoch {i}: train loss 9.5, acc {a}, val loss 9.4, acc {b}"), "epoch", "acc", "val/acc"),
        ("out.log", fill("epoch {i} acc (cur) = {a}, acc (avg) = {b}"), "epoch", "acc (cur)", "acc (avg)"),
        ("out.log", fill("ep{i:03d} loss={a} acc={b}"), "epoch", "loss", "acc"),
        ("out.log", fill("E{i:03d} loss {a} acc {b}"), "epoch", "loss", "acc"),
        ("out.log", fill("epoch_{i}: loss {a} acc {b}"), "epoch", "loss", "acc"),
        ("out.log", fill('[1] "epoch {i} loss {a} acc {b}"'), "epoch", "loss", "acc"),
        ("out.log", HITS, "epoch", "loss", "acc"),
        ("out.log", fill("Epoch{i} loss = {a}\nTrain Acc = 0.5, val Acc = {b}"), "epoch", "loss", "val Acc"),
        ("out.log", fill("epoch 1; batch{i}; loss: {a}; acc: {b}"), "step", "loss", "acc"),
        ("out.log", fill("Stats | t_env: {i} | Episode: 7\nloss: {a}\tret_mean: {b}"), "step", "loss", "ret_mean"),
        ("out.log", fill("Epoch: {i} loss: {a} vali acc: {b}\nLoss decreased (9 --> 8)"), "epoch", "loss", "vali acc"),
        ("out.log", fill("\titers: {i}, epoch: 1 | loss: {a}, acc: {b}", SETTINGS), "step", "loss", "acc"),
        ("out.log", fill("step={i} loss={a} acc={b} amp=True ema=True fp8=False x=None"), "step", "loss", "acc"),
        ("results.txt", fill(YOLO), "epoch", "train/box_loss", "metrics/precision"),
        ("trials.csv", fill(",{i},{a},{b},0.001,COMPLETE", OPTUNA), "step", "values_0", "values_1"),
        ("out.log", fill("loss[{i}] = {a}, acc: {b}"), "step", "loss", "acc"),
        ("out.log", fill("idx: {i}loss: tensor({a}, grad_fn=<A>), acc: {b}"), "row", "loss", "acc"),
        ("out.log", fill("Época {i}/5 - pérdida: {a} - acc: {b}"), "epoch", "pérdida", "acc"),
        ("losses.json", json.dumps({"train": A, "val": B}), "epoch", "train/loss", "val/loss"),
        ("out.json", json.dumps({"loss": {"train": A, "val": B}}), "epoch", "loss/train", "loss/val"),
        ("out.json", json.dumps(SETS), "epoch", "train/loss", "val/loss"),
        ("out.json", json.dumps(NUMBERED), "epoch", "loss", "val_loss"),
        ("out.json", json.dumps([{"loss": a, "val_loss": b} for _, a, b in ROWS]), "row", "loss", "val_loss"),
        ("out.json", json.dumps(PAIRS), "step", "loss", "acc"),
        ("out.json", SEVERAL, "epoch", "loss", "acc"),
        ("out.txt", str({"loss": A, "val_loss": B}), "epoch", "loss", "val_loss"),
        ("out.txt", NUMPY, "epoch", "loss", "val_loss"),
    ],
)  # fmt: skip
def test_a_form_is_read(
    name: str, text: str, axis: str, first: str, second: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = read_series(path)
    assert found[first, axis] == (EPOCHS, A)
    assert found[second, axis] == (EPOCHS, B)
    assert not {"step", "lr", "params_lr", "dropout", "Loss decreased"}.intersection(
        tag for tag, _ in found
    )


@pytest.mark.parametrize(
    ("name", "text", "tag"),
    [
        ("loss.mat", fill(" {a:e}", "# Created by Octave\n# name: loss\n# type: matrix\n"), "loss"),
        ("test.log", fill(" {a:e}", "% mean accuracy (test set)\t\n"), "mean accuracy (test set)"),
        ("out.log", fill("loss: {a}"), "loss"),
        ("loss.json", json.dumps(A), "loss"),
    ],
)
def test_numbers_without_a_position_are_counted(
    name: str, text: str, tag: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert read_series(path)[tag, "row"] == (EPOCHS, A)


def test_epochs_of_which_nothing_was_printed_are_counted(tmp_path: Path) -> None:
    """CycleGAN prints every so many iterations, and a small data set has fewer in an epoch."""
    text = ""
    for run in (1, 2):  # the second one was begun again
        for epoch, iters in ((1, 80), (3, 60), (6, 20), (8, 70)):
            text += f"(epoch: {epoch}, iters: {iters}, time: 0.3) D_A: {run}.{epoch} G_A: 0.5 cycle_A: 0.2\n"
    path = tmp_path / "loss_log.txt"
    path.write_text(text)
    xs, ys = read_series(path)["D_A", "step"]
    assert (xs, ys) == ([80, 220, 420, 470], [2.1, 2.3, 2.6, 2.8])


def test_a_count_that_goes_on_over_epochs_is_the_step(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    lines = [f"epoch {epoch} iter {100 * epoch} loss {2 / epoch}" for epoch in (1, 4, 9, 30)]
    path.write_text("\n".join(lines) + "\n")
    assert read_series(path)["loss", "step"][0] == [100, 400, 900, 3000]


RESULT = """Result for PPO_CartPole-v1_00001:
  date: 2026-11-30_01-29-09
  episode_reward_mean: {a}
  info:
    learner:
      default_policy:
        learner_stats:
          cur_lr: 0.0005
          entropy: {b}
        td_error:
        - 0.5
  training_iteration: {i}
  trial_id: '00001'

(PPO pid=612604) 2026-11-30 01:29:03,195 INFO trainer.py:864 -- step 7, loss 0.5
+------------+---------+-------+
| Trial name | reward  |  iter |
|------------+---------+-------|
| PPO_00001  | {a}     |     9 |
+------------+---------+-------+
"""


def test_the_results_of_ray_tune_are_read_with_what_is_nested_in_them(tmp_path: Path) -> None:
    path = tmp_path / "nohup.out"
    path.write_text(fill(RESULT))
    found = read_series(path)
    assert found["episode_reward_mean", "step"] == (EPOCHS, A)
    assert found["default_policy/entropy", "step"] == (EPOCHS, B)
    assert found["default_policy/cur_lr", "step"][1] == [0.0005] * 5
    assert set(map(len, (xs for xs, _ in found.values()))) == {5}


def test_of_several_trials_of_ray_tune_one_is_the_curve(tmp_path: Path) -> None:
    path = tmp_path / "nohup.out"
    both = RESULT + RESULT.replace("_00001", "_00002").replace("{a}", "9.5")
    path.write_text(fill(both))
    assert read_series(path)["episode_reward_mean", "step"] == (EPOCHS, A)


def test_the_summary_of_an_epoch_is_at_its_step_and_at_its_epoch(tmp_path: Path) -> None:
    text = ""
    for epoch in (1, 2, 3):
        for step in (10, 20):
            text += f"Epoch {epoch} | step {step}/20 | loss {5 - epoch}.{step}\n"
        text += f"=> Epoch {epoch} done: train_loss {4 - epoch}.5 val_loss {4 - epoch}.7\n"
    path = tmp_path / "out.log"
    path.write_text(text)
    found = read_series(path)
    assert found["train_loss_epoch", "step"] == ([20, 40, 60], [3.5, 2.5, 1.5])
    assert found["train_loss", "epoch"] == ([1, 2, 3], [3.5, 2.5, 1.5])
    assert found["val_loss", "step"] == ([20, 40, 60], [3.7, 2.7, 1.7])
    assert found["val_loss", "epoch"] == ([1, 2, 3], [3.7, 2.7, 1.7])


def test_the_summary_of_an_epoch_between_bars_is_at_its_epoch(tmp_path: Path) -> None:
    text = ""
    for epoch in (1, 2, 3):
        for step in (1, 2, 3):
            text += f"\rEpoch {epoch}: 33%|#  | {step}/3 [00:01<00:02, 3.1it/s, loss={6 - epoch}.{step}]"
        text += f"\nEpoch {epoch} Loss: {4 - epoch}.5\n"
    path = tmp_path / "out.log"
    path.write_text(text)
    found = read_series(path)
    assert found["loss", "epoch"] == ([1, 2, 3], [3.5, 2.5, 1.5])
    assert found["loss", "step"][0] == [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("shown", ["reward=0.{n}, eps=0.5", "gen: 0.{n};disc: 1.{n}"])
def test_a_bar_need_not_show_a_loss(shown: str, tmp_path: Path) -> None:
    name = shown.split("=")[0].split(":")[0]
    path = tmp_path / "out.log"
    path.write_text(
        "".join(
            f"{n}%|# | {n}/90 [00:01<00:02, 3.1it/s, {shown.format(n=n)}]\r" for n in range(11, 19)
        )
    )
    assert read_series(path)[name, "step"][0] == list(range(11, 19))


def test_a_table_goes_on_below_another_header(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("step,loss\n1,0.5\n2,0.4\nstep,loss,acc\n3,0.3,0.9\n")
    found = read_series(path)
    assert found["loss", "step"] == ([1, 2, 3], [0.5, 0.4, 0.3])
    assert found["acc", "step"] == ([3], [0.9])


def test_the_last_line_of_a_file_that_is_not_written_need_not_end(tmp_path: Path) -> None:
    for name, text in (
        ("a.csv", fill("{i},{a}", "epoch,loss\n")),
        ("a.log", fill("epoch {i} loss {a}")),
    ):
        path = tmp_path / name
        path.write_text(text.rstrip("\n"))
        assert read_series(path)["loss", "epoch"] == (EPOCHS[:-1], A[:-1])  # it may be torn
        os.utime(path, (1e9, 1e9))
        assert read_series(path)["loss", "epoch"] == (EPOCHS, A)


def test_a_position_that_comes_late_replaces_the_count(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    text = "".join(f"loss: 9.{n}\n" for n in range(5))
    path.write_text(text + "".join(f"step {n}00 loss: 8.{n}\n" for n in range(1, 7)))
    assert read_series(path)["loss", "step"][0][-6:] == [100, 200, 300, 400, 500, 600]


@pytest.mark.parametrize(
    "value",
    [
        [{"id": 1, "loss": 0.5}, {"id": 2, "loss": 0.4}],
        {"accuracy": 0.5},
        {"acc": [0.5], "label": [1]},
    ],
)
def test_results_of_samples_are_no_document(value: Any, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(value))
    assert not any(axis for _, axis in read_series(path))


@pytest.mark.parametrize("letter", list(" -=#|_.,:;/\\[](){}'\"aA0%\te"))
@pytest.mark.parametrize("end", ["", " loss: 1.5", "1 x", ", 1, 2, 3"])
def test_a_repeated_letter_takes_no_time(letter: str, end: str, tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text((letter * 4000 + end + "\n") * 5)
    started = time.process_time()
    read_series(path)
    assert time.process_time() - started < 0.25


@pytest.mark.parametrize(
    "line", [",,", "-,-,-", "None,None,None", "early stopping,,", "---,---,---"]
)
def test_a_line_without_a_number_is_no_header(line: str, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    rows = fill("{i},{a},{b}").splitlines(keepends=True)
    path.write_text("epoch,loss,acc\n" + "".join(rows[:3]) + line + "\n" + "".join(rows[3:]))
    found = read_series(path)
    assert found["loss", "epoch"] == (EPOCHS, A)
    assert found["acc", "epoch"] == (EPOCHS, B)


def test_three_decimals_after_a_comma_are_no_thousands(tmp_path: Path) -> None:
    path = tmp_path / "out.tsv"
    path.write_text("epoch\tloss\n1\t2,305\n2\t1,874\n3\t1,203\n4\t0,981\n")
    assert read_series(path)["loss", "epoch"][1] == [2.305, 1.874, 1.203, 0.981]
    path.write_text("epoch\tloss\n1\t2,305\n2\t1,874\n3\t1,203\n4\t1,181\n")
    assert read_series(path)["loss", "epoch"][1] == [2.305, 1.874, 1.203, 1.181]
    path.write_text("step\tloss\ttokens\n500\t0.5\t1,234,567\n1,000\t0.4\t2,469,134\n")
    found = read_series(path)
    assert found["loss", "step"] == ([500, 1000], [0.5, 0.4])
    assert found["tokens", "step"][1] == [1234567, 2469134]


@pytest.mark.parametrize("cell", ["N/A", "None", "-", ""])
def test_a_missing_value_loses_no_counted_table(cell: str, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text(f"train_loss,val_loss\n1.5,{cell}\n1.25,2.25\n1.05,2.05\n")
    found = read_series(path)
    assert found["train_loss", "row"] == ([1, 2, 3], [1.5, 1.25, 1.05])
    assert found["val_loss", "row"] == ([2, 3], [2.25, 2.05])


def test_a_header_that_lacks_a_name_shifts_no_column(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    rows = fill("{i},{a},{b}")
    path.write_text("epoch,train_loss\n" + rows)
    assert not scalars_command.find_sources_at(str(path))[0] or read_series(path) == {}
    path.write_text("train_loss,val_loss\n" + rows)  # R's row numbers
    assert read_series(path)["train_loss", "step"] == (EPOCHS, A)


@pytest.mark.parametrize(
    ("name", "form", "head"),
    [
        ("a.csv", "{i},{a}", "epoch,loss\n"),
        ("a.log", "epoch {i} loss {a}", ""),
        ("b.csv", "{a},{i}", "loss,epoch\n"),
        ("b.log", "loss {a} epoch 1{i}", ""),
    ],
)
def test_a_last_number_that_may_be_cut_waits(
    name: str, form: str, head: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(fill(form, head)[:-2])
    os.utime(path, (1e9, 1e9))
    assert read_series(path)["loss", "epoch"][1] == A[:-1]


def test_a_large_unknown_document_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps([{"name": "a", "cell": n} for n in range(9000)]))
    monkeypatch.setattr(json_documents, "_read_text", lambda path: pytest.fail("read whole"))
    head = path.read_bytes()[: 64 << 10]
    assert not json_documents.is_json_document(str(path), head)


def test_names_after_a_long_list_are_found(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"lr": [0.001] * 20000, "loss": [0.5] * 20000}))
    assert len(read_series(path)["loss", "row"][0]) == 20000
