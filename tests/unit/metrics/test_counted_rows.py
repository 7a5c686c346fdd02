"""Rows without a position are counted: they may be those of one evaluation, so a console comes first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rgt_box.discovery import found_run, run_sources
from rgt_box.metrics import identify_kind, preference
from rgt_box.streams import curve_followers

LOSSES = [2.0 + n / 1000 for n in range(500)]
COUNTED = {
    "sample_losses.txt": "".join(f"{y}\n" for y in LOSSES),
    "per_sample.csv": "loss,acc\n" + "".join(f"{y},1\n" for y in LOSSES),
    "index.csv": ",loss\n" + "".join(f"{n},{y}\n" for n, y in enumerate(LOSSES)),
    "per_sample.jsonl": "".join(f'{{"name": "a", "loss": {y}}}\n' for y in LOSSES),
    "eval_results.json": json.dumps({"loss": LOSSES}),
}
PLACED = {
    "loss.txt": "".join(f"{n} {y}\n" for n, y in enumerate(LOSSES)),
    "log.csv": "iteration,loss\n" + "".join(f"{n},{y}\n" for n, y in enumerate(LOSSES)),
    "ckpt.csv": "checkpoint,loss,acc\ncheckpoint-1,2.0,0.1\ncheckpoint-2,1.0,0.2\n",
    "log.jsonl": "".join(f'{{"iteration": {n}, "loss": {y}}}\n' for n, y in enumerate(LOSSES)),
    "history.json": json.dumps({"loss": LOSSES * 30, "step": list(range(15000))}),
    "results.json": json.dumps([{"epoch": n, "loss": y} for n, y in enumerate(LOSSES)]),
}
OF_SAMPLES = {
    "per_sample.csv": "id,label,loss\n" + "".join(f"{n},1,{y}\n" for n, y in enumerate(LOSSES)),
    "images.csv": "loss,image\n" + "".join(f"{y},{n}\n" for n, y in enumerate(LOSSES)),
    "per_sample.jsonl": "".join(f'{{"id": {n}, "loss": {y}}}\n' for n, y in enumerate(LOSSES)),
    "eval_results.json": json.dumps({"id": [str(y) for y in LOSSES], "loss": LOSSES}),
    "results.json": json.dumps([{"id": n, "loss": y} for n, y in enumerate(LOSSES)]),
}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / "eval" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", COUNTED)
def test_counted_rows_are_known_as_such(name: str, tmp_path: Path) -> None:
    kind = identify_kind(str(write(tmp_path, name, COUNTED[name])))
    assert kind is not None
    assert preference(kind) > preference("console")


@pytest.mark.parametrize("name", PLACED)
def test_rows_with_a_position_are_not(name: str, tmp_path: Path) -> None:
    kind = identify_kind(str(write(tmp_path, name, PLACED[name])))
    assert kind is not None
    assert preference(kind) < preference("console")


@pytest.mark.parametrize("name", OF_SAMPLES)
def test_rows_that_name_their_samples_are_no_curve(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name, OF_SAMPLES[name])
    assert identify_kind(str(path), ("csv", "jsonl", "json", "numbers")) is None


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("folder", ["", "eval"])
def test_the_console_gives_the_curve(name: str, folder: str, tmp_path: Path) -> None:
    console = tmp_path / "nohup.out"
    console.write_text("".join(f"epoch 1 step {n} loss {9 / n:.4f}\n" for n in range(10, 41)))
    path = write(tmp_path, name, COUNTED[name])
    run = found_run.FoundRun("one", 1, 1, 1, 100.0)
    run.cwd = str(tmp_path)
    claims = run_sources.FileClaims()
    claims.replace_runs([run], [])
    sources = run_sources.RunSources(run, claims)
    sources.update_run(run, [str(console)])
    assert [source.path for source in sources.scan()] == [str(path), str(console)]
    curves = curve_followers.FoundScalars("a", str(tmp_path / folder), str(console), {})
    points: dict[str, list[list[float]]] = {}
    for frame in curves.poll():
        points.setdefault(frame["run"], []).extend(frame.get("points", ()))
    assert list(points) == ["a"]
    assert [point[0] for point in points["a"]] == list(range(10, 41))
    assert not curves.is_read_exactly


@pytest.mark.parametrize("name", COUNTED)
def test_alone_they_are_a_curve_that_is_not_exact(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, name, COUNTED[name])
    curves = curve_followers.FoundScalars("a", str(path.parent), None, {})
    assert {len(frame["points"]) for frame in curves.poll()} == {500}
    assert curves.has_loss
    assert not curves.is_read_exactly
