"""Metric files of programs without a reader of their own: JSON lines and tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from rgt_box.metrics import BY_NAME, open_reader, read_all

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
