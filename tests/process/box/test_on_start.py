"""A box continues its queues after a restart, by the hook that its platform runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rgt_box.commands import on_start
from rgt_box.queue import queue_file

from tests.process.box.harness import PATIENCE, Agent, make_job, private_mount, until

RESUMES = "echo start >> $0/starts; [ -e $0/go ] && exit 0; echo up; exec sleep 1000"
"""A cell that ends at once if it finds what an earlier attempt could not."""


@pytest.fixture
def box(agent: Agent, tmp_path: Path) -> Agent:
    agent.env["HOME"] = str(tmp_path)
    return agent


def interrupted_job(box: Agent, folder: Path) -> Path:
    """A queue that was launched, and that the machine's end has interrupted."""
    job = make_job(folder, ["/bin/sh", "-c", RESUMES, str(folder)], ["a"], detach="setsid")
    done = box.run("launch", "--job", str(job), "--seconds", "0")
    assert done.returncode == 0, done.stderr
    log = job / "logs" / "a.log"
    until(lambda: log.exists() and "up" in log.read_text(), "the cell's start")
    end_abruptly(job)
    return job


def end_abruptly(job: Path) -> None:
    state = json.loads((job / "state.json").read_text())
    pids = (state["runner_pid"], state["cell_pid"])
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(is_alive, pids)), "the end")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def starts(job: Path) -> int:
    return (job / "starts").read_text().count("start")


def is_done(job: Path) -> bool:
    return bool(json.loads((job / "state.json").read_text()).get("done"))


def plan(box: Agent, *words: str) -> dict[str, Any]:
    done = box.run("on-start", *words)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == bool(found["problems"])
    return found


def test_a_script_that_the_platform_runs_gets_and_loses_our_lines(
    box: Agent, tmp_path: Path
) -> None:
    hook = tmp_path / "onstart.sh"
    before = "#!/bin/bash\nenv >> /etc/environment\nexec sleep infinity"
    hook.write_text(before)
    hook.chmod(0o750)
    job = interrupted_job(box, tmp_path / "job")
    kinds = ("--kinds", "file", "--file", str(hook))
    shown = plan(box, *kinds)
    assert (shown["kind"], shown["where"], shown["installed"]) == ("file", str(hook), False)
    assert shown["jobs"] == [{"folder": str(job), "state": "continues"}]
    assert hook.read_text() == before, "showing it changes nothing"
    assert plan(box, *kinds, "--install")["installed"]
    once = hook.read_text()
    assert once.startswith("#!/bin/bash\n# >>> rgt on-start >>>\n")
    assert plan(box, *kinds, "--install")["installed"]
    assert hook.read_text() == once, "twice is once"
    kept = box.run("remove")
    assert kept.returncode == 1 and b"first rgt run BOX --on-start remove" in kept.stdout
    # As the platform does it; the rest of its script never ends.
    (job / "go").touch()
    with subprocess.Popen(["bash", str(hook)], env={"PATH": "/usr/bin:/bin"}) as started:
        until(lambda: is_done(job), "the queue's end")
        started.kill()
    assert starts(job) == 2
    gone = plan(box, *kinds, "--remove")
    assert not gone["installed"]
    assert (hook.read_text(), hook.stat().st_mode & 0o777) == (before, 0o750)
    assert not (tmp_path / ".config/rgt/on-start/on-start.sh").exists()
    assert not plan(box, *kinds, "--remove")["installed"], "removing nothing is no error"


def test_a_script_that_was_not_there_is_gone_again() -> None:
    made = on_start.add_block("", [on_start.BEGIN, "sh x &", on_start.END])
    assert made.startswith("#!/bin/bash\n")
    assert on_start.remove_block(made) == ""
    plain = on_start.add_block("echo hi", [on_start.BEGIN, "sh x &", on_start.END])
    assert on_start.remove_block(plain) == "echo hi"


def test_a_run_that_is_alive_or_was_stopped_by_a_person_is_not_started(
    box: Agent, tmp_path: Path
) -> None:
    job = make_job(
        tmp_path / "job", ["/bin/sh", "-c", RESUMES, str(tmp_path / "job")], ["a"], detach="setsid"
    )
    assert box.run("launch", "--job", str(job), "--seconds", "0").returncode == 0
    until(lambda: (job / "starts").exists(), "the start")
    again = box.run("on-start", "--run", "--wait", "0")
    assert (again.returncode, starts(job)) == (0, 1), again.stderr
    assert f"{job}: alive".encode() in again.stdout
    found = json.loads(box.run("stop", "--run", "job").stdout)
    assert box.run("stop", "--run", "job", "--end", found["end"]).returncode == 0
    after = box.run("on-start", "--run", "--wait", "0")
    assert f"{job}: stopped by a person".encode() in after.stdout
    assert starts(job) == 1
    # Launched again by a person, it counts as any other.
    assert box.run("launch", "--job", str(job), "--seconds", "0").returncode == 0
    until(lambda: starts(job) == 2, "the second start")
    end_abruptly(job)
    assert plan(box)["jobs"] == [{"folder": str(job), "state": "continues"}]


def test_a_disk_that_is_mounted_later_is_waited_for(box: Agent, tmp_path: Path) -> None:
    job = interrupted_job(box, tmp_path / "job")
    (job / "go").touch()
    away = tmp_path / "away"
    job.rename(away)
    hook = box.start("on-start", "--run")
    output = hook.stdout
    assert output is not None
    until(lambda: b"gone" in output.readline(), "the first look")
    away.rename(job)
    until(lambda: (job / "state.json").exists() and is_done(job), "the queue's end")
    assert hook.wait(PATIENCE) == 0
    output.close()


def test_a_start_command_continues_and_passes_the_signal_on(box: Agent, tmp_path: Path) -> None:
    """RunPod: only its console sets the command; the first process alone gets SIGTERM."""
    script = "trap 'echo saved; exit 75' TERM; echo up; while :; do sleep 0.05; done"
    job = make_job(
        tmp_path / "job", ["/bin/sh", "-c", script], ["a"], detach="setsid", on_sigterm="saves"
    )
    assert box.run("launch", "--job", str(job), "--seconds", "0").returncode == 0
    log = job / "logs" / "a.log"
    until(lambda: log.exists() and "up" in log.read_text(), "the start")
    end_abruptly(job)
    keep = tmp_path / "volume" / ".rgt"
    shown = plan(box, "--kinds", "command", "--keep-in", str(keep), "--install")
    assert shown["installed"] and shown["lines"] == []
    usual = " ".join(
        queue_file.quote_for_shell(word)
        for word in Path("/proc/1/cmdline").read_bytes().decode().split("\0")[:-1]
    )
    command = shown["by_hand"].replace(f"; {usual} &", "; sleep 1000 &")
    assert "sleep 1000" in command
    container = subprocess.Popen(["sh", "-c", f"exec {command}"], start_new_session=True)
    until(lambda: log.read_text().count("up") == 2, "the second start")
    container.send_signal(signal.SIGTERM)
    until(lambda: "saved" in log.read_text(), "the save")
    until(
        lambda: "RunPod takes this machine away" in (keep / "on-start.log").read_text(),
        "the announcement",
    )
    os.killpg(container.pid, signal.SIGKILL)
    container.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a crontab of its own")
def test_a_real_cron_continues_the_queue_at_its_reboot(box: Agent, tmp_path: Path) -> None:
    assert shutil.which("cron") is not None, "cron is missing: scripts/system_parts.sh"
    job = interrupted_job(box, tmp_path / "job")
    (job / "go").touch()
    tables = "/var/spool/cron/crontabs"
    script = f"""
        printf '5 4 * * * true\\n# mine\\n' | crontab -
        cron -f & cron=$!
        {" ".join(box.command("on-start", "--kinds", "systemd,cron", "--install"))} > $HOME/plan
        crontab -l > $HOME/with
        kill $cron
        wait $cron
        rm -f /run/crond.reboot /run/crond.pid
        cron -f & cron=$!
        while [ ! -e $HOME/ended ]; do sleep 0.1; done
        {" ".join(box.command("on-start", "--kinds", "systemd,cron", "--remove"))} > $HOME/removed
        crontab -l > $HOME/without
        kill $cron
    """
    inside = subprocess.Popen(
        [
            *private_mount(
                f"mount -t tmpfs none {tables}", f"chgrp crontab {tables}",
                f"chmod 1730 {tables}", "mount -t tmpfs none /run",
            ),
            "sh", "-c", script,
        ],
        env=box.env,
    )  # fmt: skip
    try:
        until(lambda: is_done(job), "the queue's end")
    finally:
        (tmp_path / "ended").touch()
        assert inside.wait(PATIENCE) == 0
    shown = json.loads((tmp_path / "plan").read_text())
    assert (shown["kind"], shown["installed"], shown["problems"]) == ("cron", True, [])
    script_path = tmp_path / ".config/rgt/on-start/on-start.sh"
    assert (tmp_path / "with").read_text().splitlines() == [
        "5 4 * * * true",
        "# mine",
        f"@reboot /bin/sh {script_path}  # rgt on-start",
    ]
    assert (tmp_path / "without").read_text() == "5 4 * * * true\n# mine\n"
    assert starts(job) == 2


@pytest.mark.parametrize("why", ["too large", "a directory"])
def test_a_script_that_cannot_be_read_is_left_alone(tmp_path: Path, why: str) -> None:
    """Not taken for an empty one, which the hook alone would replace."""
    script = tmp_path / "onstart.sh"
    if why == "too large":
        script.write_bytes(b"#" * ((8 << 20) + 1))
    else:
        script.mkdir()
    with pytest.raises(OSError, match=r"larger than|not a regular file"):
        on_start.change_file(str(script), lambda text: on_start.add_block(text, ["a", "b"]))
    assert script.is_dir() or script.stat().st_size == (8 << 20) + 1
