"""What the gate asks of a real box behind a real sshd: a reading of now, its address, its results, a seal."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from rgt_tui.fleet import BoxSession, box_evidence
from rgt_tui.gate import CollectedResults, Situation, gather_evidence
from rgt_tui.model import (
    BillingVerb,
    BoxSpec,
    CopyProof,
    LinkState,
    Meter,
    ProviderRef,
    steady_time,
)
from rgt_tui.profiles import load_profile
from tests.contract.fleet.test_sessions import Run, running
from tests.contract.ssh.conftest import RealSshd

replace = msgspec.structs.replace


@pytest.fixture
def job() -> Iterator[Path]:
    """Return the directory of a job, in the machine's temporary directory.

    Beside one of pytest's lie those of a thousand other tests: too many for the command line that leaves them out.
    """
    with tempfile.TemporaryDirectory(prefix="rgt-evidence-") as folder:
        yield Path(folder)


@pytest.fixture
def spec(real_sshd: RealSshd, job: Path) -> BoxSpec:
    provider = ProviderRef("runpod", "pod1")
    (job / "out").mkdir(parents=True)
    (job / "queue.txt").write_text("")
    (job / "out" / "last.pt").write_bytes(b"x" * 1000)
    return replace(
        real_sshd.spec,
        interval=0.2,
        profile="runpod",
        provider=provider,
        results=(str(job / "out"),),
    )


def session(run: Run) -> BoxSession:
    return run.fleet._sessions[run.name]


def situation(run: Run, told: CollectedResults, since: float) -> Situation:
    box = session(run)
    return Situation(
        state=box.state,
        meter=Meter(ssh_host="127.0.0.1", ssh_port=box.state.spec.port),
        meter_at=steady_time(),
        profile=load_profile("runpod"),
        action="terminate",
        told=told,
        unsealed=box_evidence.find_seal_problem(box),
        since=since,
        now=run.fleet.now(),
        ticks=steady_time(),
    )


async def test_a_live_box_is_looked_at_anew_listed_and_sealed(
    spec: BoxSpec, job: Path, tmp_path: Path
) -> None:
    async with running(spec, folder=tmp_path) as run:
        await run.more()
        box = session(run)
        before = box.state.counters.seq
        since = await box_evidence.wait_for_sample(box)
        assert box.state.seen.sample is not None and box.state.seen.sample >= since
        assert box.state.counters.seq > before
        wanted = box_evidence.build_results_request(
            situation(run, CollectedResults(), since), BillingVerb.DESTROY
        )
        wanted = replace(wanted, survives=around(job))  # this machine is large
        assert wanted.results == spec.results

        async def none(box: str, instance: str, groups: object) -> tuple[CopyProof, ...]:
            return ()

        asking = box_evidence.EvidenceQueries(copies=none)
        told = await box_evidence.collect_results(asking, box, "pod1", steady_time, wanted)
        assert told.results is not None, told.problem
        found = gather_evidence(situation(run, told, since), BillingVerb.DESTROY)
        kinds = {item.key: item.ok for item in found.items}
        assert kinds["identity"], "the address is the provider's"
        assert kinds["seal"]
        assert "quiet:unseen" not in kinds
        seal = await box_evidence.seal_box(box, wanted)
        assert seal.generation == told.results.generation
        await box_evidence.unseal_box(box, seal.nonce)


def around(folder: Path) -> tuple[str, ...]:
    """Return everything on this machine but a directory and those above it."""
    above = [folder, *folder.parents]
    return tuple(
        str(path)
        for one in above[1:]
        for path in one.iterdir()
        if path.is_dir() and path not in above
    )


async def test_a_box_that_is_away_tells_nothing_and_cannot_be_held_still(
    spec: BoxSpec, tmp_path: Path
) -> None:
    async with running(spec, folder=tmp_path) as run:
        await run.more()
        assert session(run).state.peer == ("127.0.0.1", spec.port)
        run.fleet.set_box_paused(spec.name, True)
        await run.until(lambda box: box.link is LinkState.PAUSED)
        box = session(run)
        assert box.state.peer is None
        assert "is not connected" in str(box_evidence.find_seal_problem(box))
        told = await box_evidence.collect_results(
            box_evidence.EvidenceQueries(),
            box,
            "pod1",
            steady_time,
            box_evidence.build_results_request(
                situation(run, CollectedResults(), 0.0), BillingVerb.PARK
            ),
        )
        assert told.results is None and "is not connected" in told.problem
        since = await box_evidence.wait_for_sample(box)
        keys = {
            item.key
            for item in gather_evidence(situation(run, told, since), BillingVerb.PARK).items
            if not item.ok
        }
        assert {"identity", "quiet:unseen", "results", "seal"} <= keys


async def test_a_box_that_stands_still_is_not_taken_for_quiet(
    spec: BoxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing comes any more, and nobody has noticed yet: what came before says nothing about now."""
    async with running(spec, folder=tmp_path) as run:
        await run.more()
        box = session(run)
        # Of samples one by one, and of several at a time, as they come on a busy machine.
        monkeypatch.setattr(box, "_record_samples", lambda state, count: state)
        begun = steady_time()
        since = await box.wait_for_sample(0.5)
        assert since >= begun
        found = gather_evidence(situation(run, CollectedResults(), since), BillingVerb.PARK)
        assert [item.text for item in found.items if item.key == "quiet:unseen"] == [
            "the box has not answered the request: unknown what runs on it now"
        ]


async def test_when_a_queue_was_told_is_kept_with_it(
    spec: BoxSpec, job: Path, tmp_path: Path
) -> None:
    (job / "queue.txt").write_text("configs/a.yaml lm 1\n")
    begun = steady_time()
    async with running(replace(spec, jobs=(str(job),)), folder=tmp_path) as run:
        state = await run.until(lambda box: bool(box.queues) and box.sample is not None)
        (queue,) = state.queues
        assert list(state.seen.queues) == [queue.path]
        told = state.seen.queues[queue.path]
        assert begun <= told <= steady_time()
        state = await run.more(4)
        assert state.seen.queues[queue.path] == told, "a sample makes no queue younger"
        found = [
            item
            for item in gather_evidence(
                situation(run, CollectedResults(), 0.0), BillingVerb.DESTROY
            ).items
            if item.kind == "queue"
        ]
        assert found and {item.at for item in found} == {told}
