"""Metric files of programs without a reader of their own: JSON lines and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rgt_box.metrics import (
    BY_NAME,
    identify_kind,
    json_documents,
    open_reader,
    read_all,
    scalars_command,
)

FILES: list[tuple[str, str, str, str, str, tuple[str, list[int], list[float]]]] = [
    # what is special, kind, name, one line ({n} from 1, {y} falls), tag, curve
    (
        "a figure's name and value are fields, https://github.com/caikit/caikit-nlp/pull/208",
        *("jsonl", "training_logs.jsonl"),
        '{"name": "loss", "data": {"epoch": {n}.0, "value": {y}.5, "timestamp": "2023-09-28T18:13:30"}}\n',
        *("loss", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "two sets have the same fields, and the step begins anew, https://github.com/pytorch/audio/pull/632",
        *("jsonl", "metrics.jsonl"),
        '{"name": "train", "epoch": {n}, "iteration": 9, "loss": 1.5}\n'
        '{"name": "validation", "epoch": {n}, "iteration": 9, "loss": {y}.5}\n',
        *("validation/loss", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "a field that is a list is no set",
        *("jsonl", "metrics.jsonl"),
        '{"step": {n}, "name": ["val"], "split": {"val": 1}, "loss": {y}.5}\n',
        *("loss", ("step", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
    (
        "semicolons and decimal commas",
        *("csv", "log.csv"),
        "{n};{y},5;0,25\n",
        *("loss", ("epoch", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])),
    ),
]


@pytest.mark.parametrize(("about", "kind", "name", "text", "tag", "curve"), FILES)
def test_a_file_of_this_form_is_read(
    about: str,
    kind: str,
    name: str,
    text: str,
    tag: str,
    curve: tuple[str, list[int], list[float]],
    tmp_path: Path,
) -> None:
    lines = [text.replace("{n}", str(n)).replace("{y}", str(9 - n)) for n in range(1, 5)]
    if kind == "csv":
        lines.insert(0, "epoch;loss;accuracy\n")
    (tmp_path / name).write_text("".join(lines))
    series = read_all(open_reader(kind, str(tmp_path / name)))[0].series
    found = {
        each_tag: (x_kind, list(each.xs), list(each.ys))
        for (_, each_tag, x_kind), each in series.items()
    }
    assert found.get(tag) == curve, (about, found)


def test_the_validation_of_ultralytics_has_the_names_of_its_results_file() -> None:
    state: dict[str, object] = {}
    rows = [
        row
        for line in (
            "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size",
            "       3/50      2.31G      1.213      1.711      1.271         21        640: 100%|██████| 2/2",
            "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|█| 1/1",
            "                   all        128        929      0.641      0.537      0.605      0.446",
        )
        for row in BY_NAME["ultralytics"].parse(line, state)
    ]
    assert rows[-1].epoch == 3
    assert rows[-1].values == {
        "metrics/precision(B)": 0.641,
        "metrics/recall(B)": 0.537,
        "metrics/mAP50(B)": 0.605,
        "metrics/mAP50-95(B)": 0.446,
    }


Curve = tuple[str, list[float], list[float]]


def read_file(path: Path, kind: str) -> dict[str, Curve]:
    """Return the curves of a file that is recognised as one of a kind: tag → axis, xs, ys."""
    assert str(identify_kind(str(path))).partition(":")[0] == kind
    series = read_all(open_reader(kind, str(path)))[0].series
    return {tag: (axis, list(each.xs), list(each.ys)) for (_, tag, axis), each in series.items()}


@pytest.mark.parametrize(
    ("text", "tag", "curve"),
    [
        ("loss,val_loss\n0.5,0.6\n0.4,0.5\n", "loss", ("row", [1, 2], [0.5, 0.4])),
        (",loss,acc\n0,0.5,0.6\n1,0.4,\n", "loss", ("step", [0, 1], [0.5, 0.4])),
        ("Unnamed: 0\tloss\n0\t0.5\n1\t0.4\n", "loss", ("step", [0, 1], [0.5, 0.4])),
        ("# epoch, f1, loss\n3, 0.1, 0.5\n4, 0.1, 0.4\n", "f1", ("epoch", [3, 4], [0.1, 0.1])),
    ],
)
def test_the_rows_of_a_table_without_a_position_are_counted(
    text: str, tag: str, curve: Curve, tmp_path: Path
) -> None:
    path = tmp_path / "losses.csv"
    path.write_text(text)
    assert read_file(path, "keras" if "epoch" in text else "csv")[tag] == curve


@pytest.mark.parametrize(
    "text", ["name,loss\na,b\n", "loss\n0.5\n", "price,score\n1,2\n", "loss,acc\n"]
)
def test_a_table_of_other_data_is_no_metric_file(text: str, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text)
    assert identify_kind(str(path), ("csv", "keras", "lightning")) is None


def test_json_rows_without_a_position_are_counted_over_several_reads(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    # https://github.com/facebookresearch/fastText/issues/604
    path.write_text("".join(f'{{"progress": {n}.6, "loss": {9 - n}.5}}\n' for n in range(1, 5)))
    assert read_file(path, "jsonl")["loss"] == ("row", [1, 2, 3, 4], [8.5, 7.5, 6.5, 5.5])
    reader = open_reader("jsonl", str(path))
    first = reader.read(limit=1)
    xs = [point.x for point in reader.read(first.cursor).points if point.tag == "loss"]
    assert xs == [2, 3, 4]


def test_rows_with_a_position_below_another_name_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": {"n": 10}, "loss": 0.5}\n{"step": {"n": 20}, "loss": 0.4}\n')
    assert "step" not in {axis for axis, _, _ in read_file(path, "jsonl").values()}


@pytest.mark.parametrize(
    ("value", "tag", "curve"),
    [
        ({"loss": [0.5, 0.4], "val_loss": [0.6, 0.5]}, "val_loss", ("epoch", [1, 2], [0.6, 0.5])),
        ({"loss": [0.5, 0.4], "lr": [0.1]}, "loss", ("row", [1, 2], [0.5, 0.4])),
        ({"step": [10, 20], "loss": [0.5, 0.4]}, "loss", ("step", [10, 20], [0.5, 0.4])),
        ({"train": {"loss": [0.5, 0.4]}}, "train/loss", ("row", [1, 2], [0.5, 0.4])),
        (
            [{"epoch": 3, "acc": 0.5}, {"epoch": 4, "acc": 0.6}],
            "acc",
            ("epoch", [3, 4], [0.5, 0.6]),
        ),
        ({"run": "a", "log": [{"step": 3, "loss": 0.5}]}, "loss", ("step", [3], [0.5])),
        ({"1": {"loss": 0.5}, "2": {"loss": 0.4}}, "loss", ("epoch", [1, 2], [0.5, 0.4])),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_whole_json_document_is_read(
    value: object, tag: str, curve: Curve, indent: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps(value, indent=indent))
    if identify_kind(str(path)) == "jsonl":
        return
    assert read_file(path, "json")[tag] == curve


def test_a_json_document_is_read_in_parts_and_again_when_it_was_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"loss": [0.5, 0.4, 0.3]}))
    reader = open_reader("json", str(path))
    first = reader.read(limit=2)
    assert ([point.y for point in first.points], first.more, first.reset) == (
        [0.5, 0.4],
        True,
        False,
    )
    rest = reader.read(first.cursor)
    assert ([point.y for point in rest.points], rest.more, rest.reset) == ([0.3], False, False)
    assert reader.read(rest.cursor).points == []
    path.write_text('{"loss": [0.5, 0.4, ')
    broken = reader.read(rest.cursor)
    assert (broken.points, broken.reset, broken.problem_count) == ([], False, 0)
    path.write_text(json.dumps({"loss": [0.5, 0.4, 0.3, 0.2]}))
    again = reader.read(broken.cursor)
    assert ([point.y for point in again.points], again.reset) == ([0.5, 0.4, 0.3, 0.2], True)


@pytest.mark.parametrize(
    "text",
    [
        '{"loss_fn": "mse", "layers": [1, 2]}',
        '[{"id": 1, "label": 2}]',
        '{"loss": 0.5}',
        "[1, 2]",
        "loss",
    ],
)
def test_other_json_is_no_document_of_metrics(text: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    assert identify_kind(str(path), ("json",)) is None


@pytest.mark.parametrize("number", ["²", "9" * 30])
def test_a_row_whose_number_is_none_is_no_point(number: str, tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps({number: {"loss": 0.5}}))
    found = open_reader("json", str(path)).read()
    assert (found.points, found.problem_count) == ([], 0)


def test_a_document_beyond_the_limit_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"loss": [0.5] * 9}))
    monkeypatch.setattr("rgt_box.metrics.json_documents.MAX_BYTES", 20)
    found = open_reader("json", str(path)).read()
    assert (found.points, found.problem_count) == ([], 1)


@pytest.mark.parametrize(
    ("name", "text", "tag", "curve"),
    [
        ("loss.log", "1.5 0\n0.5 100\n0.4 200\n", "loss", ("step", [0, 100, 200], [1.5, 0.5, 0.4])),
        ("val_loss.txt", "1.5\n0.5\n0.4\n", "val_loss", ("row", [1, 2, 3], [1.5, 0.5, 0.4])),
        ("loss.csv", "0,1.5,9\n1,0.5,8\n2,nan,8\n", "loss/1", ("step", [0, 1], [1.5, 0.5])),
    ],
)
def test_rows_of_numbers_in_a_file_with_the_name_of_a_measure_are_read(
    name: str, text: str, tag: str, curve: Curve, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text)
    axis, xs, ys = read_file(path, "numbers")[tag]
    finite = [(x, y) for x, y in zip(xs, ys, strict=True) if y == y]
    assert (axis, [x for x, _ in finite], [y for _, y in finite]) == curve
    reader = open_reader("numbers", str(path))
    first = reader.read(limit=1)
    assert [point.x for point in reader.read(first.cursor).points if point.tag == tag] == xs[1:]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("data.txt", "1.5 0\n0.5 100\n0.4 200\n"),
        ("loss.txt", "1.5 0\n0.5 100\n"),
        ("loss.txt", "1.5 0\n0.5\n0.4 200\n"),
        ("loss.txt", "epoch 1\n0.5 100\n0.4 200\n"),
        ("loss.txt", "1 2 3 4 5 6 7 8 9\n" * 4),
    ],
)
def test_other_rows_of_numbers_are_no_metric_file(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert identify_kind(str(path), ("numbers",)) is None


def test_the_step_may_be_in_the_name_of_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "eval_results.csv"
    path.write_text(
        "checkpoint,MME,Avg.\ncheckpoint-2000,891.9,177.2\nout/step_4000.pt,984.3,201.9\nfinal,1,2\n"
    )
    assert read_file(path, "csv")["MME"] == ("step", [2000, 4000], [891.9, 984.3])


def test_blank_lines_and_words_between_rows_of_numbers_are_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "loss.txt"
    path.write_text("1.5\n0.5\n0.4\n" * 17 + "  \nresumed\n0.3\n")
    assert read_file(path, "numbers")["loss"][1][-1] == 52


@pytest.mark.parametrize(
    ("value", "curve"),
    [
        ({"step": [10, "x", 30], "loss": [0.5, 0.4, 0.3]}, ("step", [10, 30], [0.5, 0.3])),
        ({"log": [], "loss": [0.5]}, ("row", [1], [0.5])),
        ({"log": ["a"], "loss": [0.5, None, 0.3]}, ("row", [1, 3], [0.5, 0.3])),
    ],
)
def test_odd_members_of_a_json_document_do_no_harm(
    value: object, curve: Curve, tmp_path: Path
) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps(value))
    assert read_file(path, "json")["loss"] == curve


def test_a_row_of_numbers_without_its_step_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "loss.txt"
    path.write_text("1.5 0\n0.5 100\n" + "".join(f"0.4 {n}00\n" for n in range(2, 60)) + "0.3\n")
    axis, xs, ys = read_file(path, "numbers")["loss"]
    assert (axis, xs[:2], xs[-1], ys[-1]) == ("step", [0, 100], 5900, 0.4)


@pytest.mark.parametrize(
    ("name", "tag"), [("reward.csv", "reward"), ("run-a-b-tag-Loss_train.csv", "Loss_train")]
)
def test_what_tensorboards_page_downloads_has_the_files_name(
    name: str, tag: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text("Wall time,Step,Value\n1767107958.4,16384,260.5\n1767107979.7,32768,231.0\n")
    assert identify_kind(str(path)) == "csv"
    assert read_file(path, "csv") == {tag: ("step", [16384, 32768], [260.5, 231.0])}


def test_lists_of_a_json_document_end_with_their_positions(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text('{"step": [10, 20], "loss": [1, 2, 3, 4]}')
    assert read_file(path, "json")["loss"] == ("step", [10, 20], [1, 2])


def test_a_json_document_is_decoded_once_for_all_its_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"loss": [0.5] * 30}))
    decoded = []
    decode = json_documents.decode_document

    def count_decoded(text: str) -> Any:
        decoded.append(text)
        return decode(text)

    monkeypatch.setattr(json_documents, "decode_document", count_decoded)
    reader = open_reader("json", str(path))
    cursors = [reader.read(limit=10).cursor]
    for _ in range(3):
        cursors.append(reader.read(cursors[-1], limit=10).cursor)
    assert cursors[-1] is not None
    assert (cursors[-1]["done"], cursors[-1]["more"], len(decoded)) == (30, False, 1)
    # Another process goes on from the cursor.
    xs = [point.x for point in open_reader("json", str(path)).read(cursors[1]).points]
    assert (xs[0], xs[-1]) == (21, 30)


@pytest.mark.parametrize("name", ["out.txt", "run1", "first try.txt", "nohup2.txt"])
def test_a_directory_shows_what_its_only_log_shows(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("epoch 1 is slow\n")
    (tmp_path / name).write_text("".join(f"epoch {n} loss 0.{9 - n}5\n" for n in range(1, 6)))
    assert scalars_command.main([str(tmp_path), "--json"]) == 0
    of_directory = capsys.readouterr().out
    assert scalars_command.main([str(tmp_path / name), "--json"]) == 0
    assert of_directory == capsys.readouterr().out
