"""Whose the files are that appear in pushed code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rgt_box.commands import results


@pytest.mark.parametrize(
    ("queued", "known", "owner"),
    [(["a"], [], "cell a"), (["a"], ["a"], "cell a"), (["a"], ["a", "b"], "job")],
)
def test_pushed_code_is_a_cells_only_if_no_other_has_worked_in_it(
    tmp_path: Path, queued: list[str], known: list[str], owner: str
) -> None:
    """A cell's durable copy has what was written since it began, so it lacks what another one wrote before."""
    version, job = tmp_path / "code/v1", tmp_path / "job"
    for folder in (version, tmp_path / "code/.rgt-push", job):
        folder.mkdir(parents=True)
    record = {"version": "v1", "files": [], "links": []}
    (tmp_path / "code/.rgt-push/v1.json").write_text(json.dumps(record))
    (job / "job.json").write_text(json.dumps({"command": ["true"], "workdir": str(version)}))
    for name in queued:
        (job / f"{name}.toml").write_text("")
    (job / "queue.txt").write_text("".join(f"{name}.toml lm\n" for name in queued))
    cells = [{"name": name, "state": "done"} for name in known]
    (job / "state.json").write_text(json.dumps({"cells": cells}))
    owners = results.build_owners([str(job)], [], [])
    wanted = f"job {job}" if owner == "job" else owner
    assert owners.whole[bytes(version)] == wanted
