"""A Slurm job as the machine of a box, on a real Slurm: listed, read, ended, never called off without a look."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rgt_tui.model import BillingVerb, Lifecycle, MeterKind, Permit, ProviderRef, StopPhase
from rgt_tui.providers import PermitRefused, Provider, ProviderError, Providers, carry_out
from rgt_tui.providers.command_line import CommandLine
from rgt_tui.providers.slurm import EPOCH, FIELDS, parse_line
from tests.contract.providers import rows_by_command
from tests.contract.providers.conftest import permit_for
from tests.contract.slurm.cluster import Cluster, eventually, running

SLEEP = "exec sleep 600\n"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of one node with two cores."""
    with running(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where batch scripts are written."""
    (tmp_path / "scripts").mkdir()
    return tmp_path / "scripts"


def control(cluster: Cluster, job: str, via: str | None = None) -> Provider:
    """Return the control plane of a job, as a fleet file with that instance has it."""
    return Providers(env=cluster.env).open_control_plane(
        ProviderRef(kind="slurm", instance=job, via=via)
    )


def permit(provider: Provider, verb: BillingVerb = BillingVerb.DESTROY) -> Permit:
    """Return what the gate would give out."""
    ref = provider.ref
    return permit_for(ref, verb)


async def ended(provider: Provider, timeout_s: float = 60.0) -> list[StopPhase]:
    """Carry a destroy out to its end, with real pauses."""
    import asyncio

    steps = carry_out(
        provider,
        permit(provider),
        clock=time.time,
        sleep=asyncio.sleep,
        timeout_s=timeout_s,
        poll_s=0.2,
    )
    return [step.phase async for step in steps]


async def test_a_job_runs_is_listed_and_ends_only_when_it_is_seen_to_be_gone(
    slurm: Cluster, folder: Path
) -> None:
    job = slurm.submit(folder, SLEEP, "--job-name=train a|b")
    eventually(lambda: slurm.states(job) == ["RUNNING"])
    provider = control(slurm, job)
    meter = await provider.read(job)
    assert (meter.kind, meter.lifecycle, meter.error) == (
        MeterKind.COMPUTE_AND_STORAGE,
        Lifecycle.RUNNING,
        None,
    )
    assert meter.per_hour is None, "Slurm has no prices, and unknown is not free"
    assert meter.started is not None and abs(meter.started - time.time()) < 3600
    assert meter.ends_at is not None and meter.ends_at > time.time(), "the end of its walltime"
    listed = {item.id: item for item in await provider.list()}
    assert listed[job].name == "train a|b"
    assert listed[job].region == "low"
    assert await ended(provider) == [StopPhase.REQUESTED, StopPhase.CONFIRMED, StopPhase.METER_OFF]
    assert slurm.states(job) == []


async def test_a_number_that_no_job_has_is_not_off(slurm: Cluster) -> None:
    provider = control(slurm, "99999999")
    meter = await provider.read("99999999")
    assert (meter.kind, meter.lifecycle) == (MeterKind.UNKNOWN, Lifecycle.GONE)
    assert "never seen" in meter.source
    phases = await ended(provider, timeout_s=0.5)
    assert StopPhase.METER_OFF not in phases, (
        "scancel is content with every number; that proves nothing"
    )
    assert phases[-1] is StopPhase.UNCONFIRMED


async def test_a_job_that_waits_holds_nothing(slurm: Cluster, folder: Path) -> None:
    job = slurm.submit(folder, SLEEP, "--hold")
    provider = control(slurm, job)
    meter = await provider.read(job)
    assert (meter.kind, meter.lifecycle) == (MeterKind.NONE, Lifecycle.STARTING)
    assert (await ended(provider))[-1] is StopPhase.METER_OFF


async def test_one_task_of_an_array_is_ended_and_the_others_go_on(
    slurm: Cluster, folder: Path
) -> None:
    job = slurm.submit(folder, SLEEP, "--array=0-1")
    eventually(lambda: slurm.states(job) == ["RUNNING", "RUNNING"])
    provider = control(slurm, f"{job}_1")
    meter = await provider.read(f"{job}_1")
    assert meter.names and meter.names[0] != f"{job}_1", (
        "the number by which the task's environment calls it"
    )
    assert {item.id for item in await provider.list()} == {f"{job}_0", f"{job}_1"}
    assert (await ended(provider))[-1] is StopPhase.METER_OFF
    assert slurm.states(job) == ["RUNNING"]
    whole = control(slurm, job)
    assert (await whole.read(job)).lifecycle is Lifecycle.RUNNING
    assert (await ended(whole))[-1] is StopPhase.METER_OFF


async def test_what_slurm_cannot_do_is_refused_before_anything_is_sent(slurm: Cluster) -> None:
    provider = control(slurm, "1")
    with pytest.raises(PermitRefused, match="no verb that parks"):
        await provider.stop(permit(provider, BillingVerb.PARK))
    with pytest.raises(ProviderError, match="submit it again"):
        await provider.start()
    odd = control(slurm, "1; scancel -u root")
    with pytest.raises(PermitRefused, match="is not a job of Slurm"):
        await odd.destroy(permit(odd))
    assert (await odd.read("1; scancel -u root")).error


async def test_on_a_login_node_the_same_words_arrive_and_a_lost_line_proves_nothing(
    slurm: Cluster, folder: Path, tmp_path: Path
) -> None:
    # The words that ssh would hand to the login shell, handed to a shell here.
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\nfor last; do :; done\nexec sh -c "$last"\n'
    )
    ssh.chmod(0o755)
    job = slurm.submit(folder, SLEEP, "--job-name=far")
    eventually(lambda: slurm.states(job) == ["RUNNING"])
    cluster = Cluster(dict(slurm.env, PATH=f"{ssh.parent}:{slurm.env['PATH']}"), slurm.log)
    provider = control(cluster, job, via="login.example")
    assert (await provider.read(job)).lifecycle is Lifecycle.RUNNING
    said = (tmp_path / "words").read_text().splitlines()
    assert said[:2] == ["-T", "-o"] and "login.example" in said and "BatchMode=yes" in said
    ssh.write_text("#!/bin/sh\necho 'connection timed out' >&2\nexit 255\n")
    meter = await provider.read(job)
    assert meter.kind is MeterKind.UNKNOWN and "connection timed out" in (meter.error or "")
    assert (await ended(provider, timeout_s=0.5))[-1] is StopPhase.UNCONFIRMED
    here = control(slurm, job)
    assert (await here.read(job)).lifecycle is Lifecycle.RUNNING
    assert (await ended(here))[-1] is StopPhase.METER_OFF


async def test_the_stand_in_of_the_contract_suite_says_what_slurm_says(
    slurm: Cluster, folder: Path
) -> None:
    """Words, status and shape; `rows_by_command` is what the suite believes of Slurm's commands."""
    job = slurm.submit(folder, SLEEP, "--job-name=train-a", "--time=1")
    eventually(lambda: slurm.states(job) == ["RUNNING"])
    made = rows_by_command.slurm()
    real, stand_in = (
        CommandLine(None, slurm.env, timeout_s=30),
        CommandLine(None, made.env, timeout_s=30),
    )
    asked = (*EPOCH, "squeue", "--noheader", "--array")
    form = "--format=" + "\t".join(FIELDS)
    accounts = ("sacct", "--noheader", "--parsable2", "--allocations", "--format=JobID,State")
    ours = rows_by_command.JOB
    for theirs, mine in (
        ((*asked, f"--jobs={job}", form), (*asked, f"--jobs={ours}", form)),
        ((*asked, "--jobs=99999999", form), (*asked, "--jobs=4717", form)),
        ((*accounts, f"--jobs={job}"), (*accounts, f"--jobs={ours}")),
        (("scancel", job), ("scancel", ours)),
        (("scancel", "99999999"), ("scancel", ours)),
    ):
        said, told = await real.run(*theirs), await stand_in.run(*mine)
        assert (told.status, told.err) == (said.status, said.err), theirs
        assert (told.out.count("\t"), told.out.count("\n")) == (
            said.out.count("\t"),
            said.out.count("\n"),
        )
        if said.out:
            (line,), (line_of_ours,) = (
                list(map(parse_line, one.out.splitlines())) for one in (said, told)
            )
            assert (line.state, line.name) == (line_of_ours.state, line_of_ours.name)
            assert line.start is not None and line.end is not None
    eventually(lambda: slurm.states(job) == [])
    ended = await real.run(*asked, f"--jobs={job}", form)
    assert (ended.status, ended.out) == (0, ""), "an ended job that it remembers is an empty list"
    assert (await stand_in.run(*asked, f"--jobs={ours}", form)) == ended
    await made.stop()


async def test_without_slurm_nothing_was_sent(tmp_path: Path) -> None:
    provider = Providers(env={"PATH": str(tmp_path)}).open_control_plane(
        ProviderRef(kind="slurm", instance="1")
    )
    assert "cannot be started" in ((await provider.read("1")).error or "")
    assert await ended(provider) == [StopPhase.FAILED]
