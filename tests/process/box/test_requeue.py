"""Which of Slurm's records is the runner's own, by what scontrol of Slurm 22.05 prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from rgt_box.queue import queue_command

ARRAY = """\
JobId=12 ArrayJobId=12 ArrayTaskId=2 ArrayTaskThrottle=2 JobName=rgt-job UserId=root(0) JobState=RUNNING Reason=None
JobId=14 ArrayJobId=12 ArrayTaskId=1 ArrayTaskThrottle=2 JobName=rgt-job UserId=root(0) JobState=CANCELLED Reason=None
JobId=13 ArrayJobId=12 ArrayTaskId=0 ArrayTaskThrottle=2 JobName=rgt-job UserId=root(0) JobState=COMPLETED Reason=None
"""
SCONTROL = """#!/bin/sh
echo "$*" >> $FAKE/calls
[ "$1" = --oneliner ] && cat $FAKE/listing
exit 0
"""


@pytest.mark.parametrize(
    ("number", "found"),
    [
        ("12", ("12_2", "RUNNING")),
        ("14", ("12_1", "CANCELLED")),
        ("13", ("12_0", "COMPLETED")),
        ("1", None),
    ],
)
def test_the_task_that_has_the_number_of_its_array_is_one_of_several(
    number: str, found: tuple[str, str] | None
) -> None:
    record = queue_command.slurm_record(number, ARRAY)
    assert (record and record[:2]) == found


def test_a_job_that_is_no_array() -> None:
    record = queue_command.slurm_record(
        "7", "JobId=7 JobName=JobState UserId=a(1) JobState=RUNNING"
    )
    assert record is not None
    assert record == ("7", "RUNNING", None, False, 0)
    assert (
        queue_command.slurm_record("7", "slurm_load_jobs error: Unable to contact slurm controller")
        is None
    )


def test_only_the_own_task_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    # The first line is that of a task which is over: it must not stand for the others.
    (tmp_path / "listing").write_text("".join(reversed(ARRAY.splitlines(keepends=True))))
    for name, value in (
        ("FAKE", str(tmp_path)),
        ("PATH", f"{tmp_path}:/usr/bin:/bin"),
        ("SLURM_JOB_ID", "12"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    assert queue_command.requeue_after(1) == 1  # a failure is none of Slurm's business
    assert not (tmp_path / "calls").exists()
    assert queue_command.requeue_after(75) == 75
    assert (tmp_path / "calls").read_text().splitlines()[1] == "requeue 12_2"
    assert capsys.readouterr().out == "requeued in Slurm\n"
    monkeypatch.setenv("SLURM_JOB_ID", "14")
    assert queue_command.requeue_after(75) == 75
    assert capsys.readouterr().out == "not requeued: job 12_1 is CANCELLED\n"
    (tmp_path / "listing").write_text("slurm_load_jobs error: no\n")
    assert queue_command.requeue_after(75) == 75
    assert "scontrol show job 14: slurm_load_jobs error: no" in capsys.readouterr().out
