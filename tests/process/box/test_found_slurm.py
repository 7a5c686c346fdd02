"""How a training under Slurm ended: its job's word decides, for the exit code alone calls a lost node a success."""

from __future__ import annotations

from pathlib import Path

import pytest
from rgt_box.discovery.found_run import FoundRun, SlurmJobs, load_run

from tests.process.box.harness import until


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What ``scontrol show job`` prints, in its own words."""
    said = tmp_path / "said"
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\necho "JobId=7 JobName=x"\ncat "{said}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return said


def under_slurm() -> FoundRun:
    run = FoundRun("exp/train", 1, 999999, 5, 1000.0)
    run.session, run.place = "slurm", "7"
    return run


@pytest.mark.parametrize(
    ("state", "code", "known"),
    [
        ("COMPLETED", "0:0", 0),
        ("FAILED", "3:0", 3),
        ("FAILED", "0:9", None),
        ("TIMEOUT", "0:0", None),
        ("NODE_FAIL", "0:0", None),
        ("PREEMPTED", "0:0", None),
        ("CANCELLED", "0:0", None),
        ("OUT_OF_MEMORY", "0:125", None),
    ],
)
def test_only_a_completed_job_has_ended_well(
    scontrol: Path, state: str, code: str, known: int | None
) -> None:
    scontrol.write_text(
        f"   JobState={state} Reason=None Dependency=(null)\n   Requeue=0 ExitCode={code}\n"
    )
    jobs, run = SlurmJobs(), under_slurm()
    until(lambda: jobs.record_job_end(run), "Slurm's answer")
    assert (run.exit_code, run.outcome) == (known, state)
    kept = load_run(run.as_dict())
    assert kept is not None
    assert (kept.exit_code, kept.outcome) == (known, state)
    assert run.notes == [f"Slurm job 7: {state}"]


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "STAGE_OUT", "REQUEUE_HOLD"])
def test_a_job_that_goes_on_is_asked_about_again(scontrol: Path, state: str) -> None:
    scontrol.write_text(f"   JobState={state} Reason=None\n   ExitCode=0:0\n")
    jobs, run = SlurmJobs(), under_slurm()
    jobs.record_job_end(run)
    job = jobs._jobs["7"]
    until(lambda: job.poll(0.1)[0] is not None, "Slurm's answer")
    assert not jobs.record_job_end(run)
    assert (run.exit_code, run.outcome, run.notes) == (None, None, [])
