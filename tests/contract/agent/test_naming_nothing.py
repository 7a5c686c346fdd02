"""A training that was started without rgt: sample, log and curve by naming nothing but the host.

Through the real sshd, the real agent and the real engine, with real processes, tmux and pipes.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.agent.trainings import Place, plain_env, watching
from tests.contract.ssh.conftest import RealSshd
from tests.process.box.harness import until

FEW = "--stop 150 --until never"
"""Steps of a training that goes on: as many lines as a follower begins with, however late it comes, and fewer."""


def stop(pid: int) -> None:
    """Stop a process, and wait until it stands: what it is about to print it may print before."""
    os.kill(pid, signal.SIGSTOP)
    until(
        lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T",
        "it stands",
    )


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[list[str]]:
    """A tmux server of the test's own."""
    words = ["tmux", "-S", f"/tmp/rgt-{uuid.uuid4().hex[:12]}", "-f", "/dev/null"]
    yield words
    subprocess.run([*words, "kill-server"], check=False, stderr=subprocess.DEVNULL)
    Path(words[2]).unlink(missing_ok=True)


def in_tmux(tmux: list[str], exp: Place, line: str, name: str = "main") -> None:
    words = [*tmux, "new-session", "-d", "-s", name, "-c", str(exp.folder), "-x", "120", "-y", "30"]
    subprocess.run(
        [*words, line.replace("python", shlex.quote(sys.executable))], check=True, env=plain_env()
    )


async def test_nohup(lab: RealSshd, exp: Place) -> None:
    exp.sh(f"nohup python train.py --to history.jsonl {FEW} --api-key=hunter2 > run.log 2>&1 &")
    async with watching(lab.spec, exp) as client:
        await client.shows()
        history = str(exp.folder / "history.jsonl")
        await client.until(
            lambda: history in client.found()[0].sources[:1], "the file that it writes"
        )
        (run,) = client.found()
        assert (run.name, run.session, run.alive, run.exit_code) == (
            exp.named("train"),
            "nohup",
            True,
            None,
        )
        assert run.log == str(exp.folder / "run.log")
        assert client.steps(run.name)[:3] == [1, 2, 3]
        assert client.lines(run.log)[0].startswith("step 1 ")
        assert "hunter2" not in str(client.box)
        (proc,) = [
            proc
            for proc in (client.box.sample.procs if client.box.sample else ())
            if proc.pid == run.pid
        ]
        assert (proc.run, (proc.state or "?") in "RSD") == (run.name, True)
        os.kill(run.pid, signal.SIGKILL)
        await client.until(lambda: not client.found()[0].alive, "the end")
        (run,) = client.found()
        assert (run.exit_code, run.ended is not None) == (None, True)
        ended = client.run(run.name)
        assert ended is not None
        assert (ended.alive, ended.ended) == (False, run.ended)
        kinds = [event.kind for event in client.box.events if event.text.startswith(run.name + ":")]
        assert kinds == ["training-found", "training-ended"]


async def test_tee(lab: RealSshd, exp: Place) -> None:
    exp.sh("(python train.py --to out/metrics.csv 2>&1 | tee out.log) &")
    async with watching(lab.spec, exp) as client:
        (run,) = await client.shows()
        assert run.log == str(exp.folder / "out.log")
        metrics = str(exp.folder / "out" / "metrics.csv")
        await client.until(lambda: metrics in client.found()[0].sources, "the file that it writes")


async def test_a_script_that_names_nothing_is_known_by_what_it_writes(
    lab: RealSshd, exp: Place
) -> None:
    exp.sh(
        "cd / && nohup python %s/main.py --to %s/tb/events.out.tfevents.1.host.1.0 > %s/odd_name 2>&1 &"
        % ((exp.folder,) * 3)
    )
    async with watching(lab.spec, exp) as client:
        await client.until(
            lambda: any("odd_name" in (run.log or "") for run in client.box.found), "the run"
        )
        run = next(run for run in client.box.found if "odd_name" in (run.log or ""))
        await client.until(
            lambda: len(client.steps(run.name)) > 2 and len(client.lines(run.log)) > 2, "its curve"
        )
        assert run.why == "it writes events.out.tfevents.1.host.1.0"
        os.kill(run.pid, signal.SIGKILL)


async def test_tmux_with_a_file(lab: RealSshd, exp: Place, tmux: list[str]) -> None:
    in_tmux(tmux, exp, "python train.py --to history.jsonl > run.log 2>&1", name="my run")
    async with watching(lab.spec, exp) as client:
        (run,) = await client.shows()
        assert (run.session, run.place, run.log) == (
            "tmux",
            "my run:0.0",
            str(exp.folder / "run.log"),
        )


async def test_tmux_without_a_file_shows_the_pane_until_it_is_piped(
    lab: RealSshd, exp: Place, tmux: list[str]
) -> None:
    in_tmux(tmux, exp, "python train.py")
    async with watching(lab.spec, exp) as client:
        (run,) = await client.shows()  # also the curve: from nothing but the screen
        assert run.log == "tmux:main:0.0"
        assert any("tmux pipe-pane" in note for note in run.notes)
        assert [
            event.level
            for event in client.box.events
            if event.kind == "no-log" and event.text.startswith(run.name + ":")
        ] == ["warn"]
        piping = [*tmux, "pipe-pane", "-t", "main", f"cat >> {exp.folder}/pane.log"]
        await asyncio.to_thread(subprocess.run, piping, check=True)
        piped = str(exp.folder / "pane.log")
        await client.until(
            lambda: client.found()[0].log == piped and client.lines(piped), "the piped pane"
        )
        assert not client.found()[0].notes


async def test_a_training_that_was_stopped_is_as_old_as_its_log(lab: RealSshd, exp: Place) -> None:
    exp.sh("nohup python train.py > run.log 2>&1 &")
    async with watching(lab.spec, exp) as client:
        (run,) = await client.shows()
    await asyncio.to_thread(stop, run.pid)
    long_ago = time.time() - 540
    os.utime(exp.folder / "run.log", (long_ago, long_ago))
    async with watching(lab.spec, exp) as client:
        await client.until(lambda: client.box.looked, "the end of the first look")
        seen = client.run(run.name)
        assert seen is not None and seen.progressed_at == pytest.approx(long_ago, abs=5)
        assert [proc.state for proc in client.box.sample.procs if proc.pid == run.pid] == ["T"]  # type: ignore[union-attr]
        await client.until(
            lambda: any(f"kill -CONT {run.pid}" in each.text for each in client.box.alerts), "alert"
        )


async def test_a_look_is_over_when_the_pane_was_read_and_no_sooner(
    lab: RealSshd, exp: Place, tmux: list[str]
) -> None:
    in_tmux(tmux, exp, "python train.py; true")  # tmux itself wakes what it has started up
    async with watching(lab.spec, exp) as client:
        (run,) = await client.shows()
    await asyncio.to_thread(stop, run.pid)
    asked = [*tmux, "display-message", "-p", "-t", "main", "#{window_activity}"]
    printed = int(await asyncio.to_thread(subprocess.check_output, asked))
    await asyncio.to_thread(until, lambda: time.time() > printed + 4)
    async with watching(lab.spec, exp) as client:
        await client.until(lambda: client.box.looked, "the end of the first look")
        seen = client.run(run.name)
        assert seen is not None and seen.step, "the screen was read before"
        assert seen.progressed_at == pytest.approx(printed, abs=2)


async def test_a_tree_as_torchrun_makes_it_is_one_run(lab: RealSshd, exp: Place) -> None:
    exp.sh(
        "nohup python torchrun --ranks 2 --workers 3 --to runs/a/events.out.tfevents.1.h.2.0 main.py > run.log 2>&1 &"
    )
    async with watching(lab.spec, exp) as client:
        (run,) = await client.shows()
        assert run.name == exp.named("main")
        await client.until(lambda: len(client.found()[0].pids) == 1 + 2 + 2 * 3, "the whole tree")
        await client.until(
            lambda: (
                client.box.sample
                and sum(proc.run == run.name for proc in client.box.sample.procs) == 3
            ),
            "the rows of those that compute",
        )
        assert client.steps(run.name)[:3] == [1, 2, 3]


async def test_two_in_one_directory_do_not_mix(lab: RealSshd, exp: Place) -> None:
    exp.sh(f"nohup python train.py --to a.jsonl --scale 1 {FEW} --run_name a > a.log 2>&1 &")
    exp.sh(
        f"nohup python train.py --to b.jsonl --scale 100 --first_step 5000 {FEW} --run_name b > b.log 2>&1 &"
    )
    exp.sh(
        f"nohup python train.py --closing --output_dir outs/c --first_step 9000 {FEW} > c.log 2>&1 &"
    )
    async with watching(lab.spec, exp) as client:
        runs = await client.shows(3)
        logs = {Path(run.log or "").stem: run.name for run in runs}
        assert set(logs) == {"a", "b", "c"}
        assert len(set(logs.values())) == 3
        assert {stem: client.steps(name)[0] for stem, name in logs.items()} == {
            "a": 1,
            "b": 5000,
            "c": 9000,
        }
        for run in runs:
            values = client.run(run.name).series["loss"]  # type: ignore[union-attr]
            assert all((value >= 100) == (step >= 5000 and step < 9000) for step, value in values)
            assert client.lines(run.log)[0].startswith(f"step {client.steps(run.name)[0]} ")


async def test_a_log_that_was_deleted_is_read_on(lab: RealSshd, exp: Place) -> None:
    exp.sh("nohup python train.py --to history.jsonl > run.log 2>&1 &")
    log = exp.folder / "run.log"
    await asyncio.to_thread(until, lambda: log.exists() and log.stat().st_size > 100, "the log")
    log.unlink()
    async with watching(lab.spec, exp) as client:
        (run,) = await client.shows()
        assert run.log == f"{log} (deleted)"
        assert any("was deleted" in note for note in run.notes)


async def test_a_log_that_is_renamed_goes_on_under_its_name(lab: RealSshd, exp: Place) -> None:
    exp.sh("nohup python train.py --to history.jsonl > run.log 2>&1 &")
    log = exp.folder / "run.log"
    async with watching(lab.spec, exp) as client:
        (run,) = await client.shows()
        log.rename(log.with_name("run.log.1"))
        await client.until(lambda: client.found()[0].log == f"{log}.1", "the new name")
        seen = len(client.lines(str(log)))
        await client.until(
            lambda: len(client.lines(str(log))) > seen + 5, "lines behind the rename"
        )
        numbers = [int(line.split()[1]) for line in client.lines(run.log)]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert not client.lines(f"{log}.1")


@pytest.mark.serial  # of runs that have ended the newest are told, and others' tests end hundreds
async def test_a_restart_that_resumes_goes_on_under_its_name_also_for_a_new_client(
    lab: RealSshd, exp: Place
) -> None:
    name = exp.named("train")
    async with watching(lab.spec, exp) as client:
        exp.sh("nohup python train.py --to history.jsonl --stop 60 --until seen > run.log 2>&1 &")
        await client.shows()
        (exp.folder / "seen").touch()
        await client.until(
            lambda: not client.found()[0].alive and client.steps(name)[-1:] == [60], "the end"
        )
    (exp.folder / "seen").unlink()
    resumed = "--stop 60 --until seen --resume_from x --first_step 41"
    exp.sh(f"nohup python train.py --to history.jsonl {resumed} >> run.log 2>&1 &")
    async with watching(lab.spec, exp) as client:
        await client.until(lambda: client.steps(name)[-1:] == [100], "the whole curve")
        await client.until(lambda: any(run.alive for run in client.found()), "the second life")
        (exp.folder / "seen").touch()
        await client.until(
            lambda: [run.alive for run in client.found()] == [False], "the second end"
        )
        assert [run.name for run in client.found()] == [name]
        assert client.steps(name) == list(range(1, 101))
    # It ended: a client that comes only now still has its curve and its log.
    async with watching(lab.spec, exp) as client:
        await client.until(
            lambda: client.steps(name) == list(range(1, 101)), "the curve of what has ended"
        )
        (run,) = client.found()
        assert (run.alive, run.log, run.exit_code) == (False, str(exp.folder / "run.log"), None)
        await client.until(lambda: client.lines(run.log), "its log")
