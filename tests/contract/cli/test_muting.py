"""`rgt mute`, and what a patrol calls for once: from a timer job, for every rgt of this machine."""

from __future__ import annotations

import json
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.contract.cli.conftest import PATIENCE, Rgt
from tests.contract.ssh.conftest import RealSshd, fresh_sshd
from tests.free_ports import free_port

replace = msgspec.structs.replace


def listed(rgt: Rgt, *words: str) -> list[dict[str, object]]:
    return [
        json.loads(line) for line in rgt.on("mute", "--list", "--json", *words).stdout.splitlines()
    ]


@pytest.fixture
def two(rgt: Rgt) -> Rgt:
    rgt.fleet.write_text('[boxes.lab]\nhost = "a.invalid"\n[boxes.other]\nhost = "b.invalid"\n')
    return rgt


def test_a_kind_a_box_and_an_alert_are_muted_for_a_time(two: Rgt) -> None:
    before = time.time()
    assert two.on("mute", "lab", "idle-gpu", "--for", "30m").returncode == 0
    assert two.on("mute", "lab", "inodes:/data", "--until-over").returncode == 0
    done = two.on("mute", "other")
    assert done.stdout.startswith("other: everything is muted for 1h00, until ")
    found = {(mute["box"], mute["what"]): mute["until"] for mute in listed(two)}
    assert set(found) == {("lab", "idle-gpu"), ("lab", "inodes:/data"), ("other", "*")}
    assert found["lab", "inodes:/data"] is None
    half = found["lab", "idle-gpu"]
    assert isinstance(half, float)
    assert 1800 <= half - before < 1800 + PATIENCE
    assert [mute["box"] for mute in listed(two, "other")] == ["other"]


def test_a_box_is_muted_until_a_time_of_day(two: Rgt) -> None:
    clock = f"{(time.localtime().tm_hour + 12) % 24:02}:00"  # which does not pass meanwhile
    assert two.on("mute", "lab", "idle-gpu", "--until", clock).returncode == 0
    (mute,) = listed(two)
    until = mute["until"]
    assert isinstance(until, float)
    assert time.strftime("%H:%M:%S", time.localtime(until)) == f"{clock}:00"
    assert 0 < until - time.time() <= 86400 + 7200
    done = two.on("mute", "lab", "idle-gpu", "--until", "2020-01-01 07:00")
    assert (done.returncode, "; give a time such as 07:00" in done.stderr) == (2, True)


def test_off_speaks_again(two: Rgt) -> None:
    for what in ("idle-gpu", "bytes:/"):
        two.on("mute", "lab", what)
    assert two.on("mute", "lab", "idle-gpu", "--off").stdout == "lab: idle-gpu unmuted\n"
    assert two.on("mute", "lab", "--off").stdout == "lab: bytes:/ unmuted\n"
    done = two.on("mute", "lab", "--off")
    assert (done.returncode, done.stdout) == (0, "lab: nothing was muted\n")
    assert listed(two) == []


def test_off_says_in_json_what_it_ended(two: Rgt) -> None:
    def off(*words: str) -> list[tuple[object, object, object]]:
        lines = two.on("mute", "lab", *words, "--off", "--json").stdout.splitlines()
        rows = [json.loads(line) for line in lines]
        return [(row["box"], row["what"], row["muted"]) for row in rows]

    for what in ("idle-gpu", "bytes:/", "stalled"):
        made = json.loads(two.on("mute", "lab", what, "--json").stdout)
        assert (made["what"], made["muted"]) == (what, True)
    assert off("idle-gpu") == [("lab", "idle-gpu", False)]
    assert sorted(off()) == [("lab", "bytes:/", False), ("lab", "stalled", False)]
    assert off("idle-gpu") == [("lab", "idle-gpu", False)], "also if it was not muted"
    assert listed(two) == []


@pytest.mark.parametrize("what", [(), ("done-billing",)])
def test_what_costs_money_speaks_again_after_a_day(two: Rgt, what: tuple[str, ...]) -> None:
    for how in (("--for", "9d"), ("--until-over",)):
        two.on("mute", "lab", *what, *how)
        (mute,) = listed(two)
        until, since = mute["until"], mute["since"]
        assert isinstance(until, float)
        assert isinstance(since, float)
        assert until - since == 86400


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which box?"),
        (("lob",), "did you mean 'lab'?"),
        (("lab", "idle-gpo"), "did you mean 'idle-gpu'?"),
        (("lab", "--for", "2 hours"), "90s, 30m, 2h, 1h30 or 1d"),
        (("lab", "--for", "-3"), "90s"),
        (("lab", "--for", "nan"), "90s"),
        (("lab", "--for", "1h", "--off"), "not allowed with"),
    ],
)
def test_mistakes_name_what_is_wrong(two: Rgt, words: tuple[str, ...], said: str) -> None:
    done = two.on("mute", *words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert listed(two) == []


def test_a_running_rgt_hears_of_it(rgt: Rgt) -> None:
    rgt.fleet.write_text(
        f'[boxes.lab]\nhost = "127.0.0.1"\nport = {free_port()}\nuser = "x"\nssh_config = "none"\n'
        "[alerts.unreachable]\nhold_s = 0\n"
    )
    watch = rgt.start("watch", "--json", "--no-history")
    timer = threading.Timer(4 * PATIENCE, watch.kill)
    timer.start()
    try:
        assert watch.stdout is not None
        lines = iter(watch.stdout)
        wait_for(lines, muted=False)
        assert rgt.on("mute", "lab", "unreachable", "--for", "1h").returncode == 0
        wait_for(lines, muted=True)
        assert rgt.on("mute", "lab", "--off").returncode == 0
        wait_for(lines, muted=False)
    finally:
        timer.cancel()
        watch.terminate()
        watch.communicate()


def wait_for(lines: Iterator[bytes], *, muted: bool) -> None:
    """Read until the one alert is (not) muted; the end of the lines is a failure."""
    for line in lines:
        if [alert["muted"] for alert in json.loads(line)["alerts"]] == [muted]:
            return
    raise AssertionError(f"it never became {'muted' if muted else 'loud'}")


@pytest.fixture
def own_sshd(tmp_path: Path) -> Iterator[RealSshd]:
    """A box of this test alone: what has ended on it is told of for a day."""
    (tmp_path / "box").mkdir()
    with fresh_sshd(tmp_path / "box") as running:
        yield running


def on_the_box(real_sshd: RealSshd, command: str) -> str:
    spec = real_sshd.spec
    words = ["ssh", "-F", "none", "-p", str(spec.port), "-i", str(spec.identity)]
    words += ["-o", f"UserKnownHostsFile={spec.known_hosts}", f"{spec.user}@127.0.0.1", command]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE)
    return done.stdout.strip()


TRAINING = """
import time
for step in range(10 ** 9):
    print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
    time.sleep(0.1)
"""


def test_a_training_that_has_ended_is_called_for_once_and_not_for_a_day(
    rgt: Rgt, own_sshd: RealSshd
) -> None:
    lab = replace(own_sshd.spec, name="lab", pattern="train_mine")
    folder = own_sshd.folder / "home" / "mine"
    folder.mkdir()
    (folder / "train_mine.py").write_text(TRAINING)
    rgt.describe([lab])
    python = shlex.quote(str(lab.python))
    start = (
        f"cd {folder} && (setsid nohup {python} train_mine.py > out.log 2>&1 < /dev/null & echo $!)"
    )

    def patrol() -> tuple[int, str]:
        """The first patrol that has the end in it: one that is early knows nothing of it yet."""
        deadline = time.monotonic() + PATIENCE
        while True:
            done = rgt.on("patrol", "--json")
            line = json.loads(done.stdout)
            if [alert["id"].partition(":")[0] for alert in line["alerts"]] == ["ended"]:
                return done.returncode, line["verdict"]
            assert (done.returncode, line["alerts"]) == (0, []), line
            assert time.monotonic() < deadline, line

    def until_seen(state: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            (box,) = map(json.loads, rgt.on("status", "--json").stdout.splitlines())
            if state in [run["state"] for run in box["runs"]]:
                return
            assert time.monotonic() < deadline, box["runs"]

    for _ in range(2):  # also when it is started again and ends again between two patrols
        on_the_box(own_sshd, start)
        until_seen("running")
        on_the_box(own_sshd, "pkill -f [t]rain_mine.py; true")
        until_seen("ended")
        assert patrol() == (1, "escalate")
        assert patrol() == (0, "healthy")
    (rgt.folder / ".local/state/rgt/alerts.json").unlink()
    assert patrol()[0] == 1
    assert Path(folder).exists()


def test_a_mute_stands_in_the_journal_although_no_rgt_runs(two: Rgt) -> None:
    assert two.on("mute", "lab", "inodes:/data", "--until-over").returncode == 0
    assert two.on("mute", "lab", "inodes:/data", "--off").returncode == 0
    found = [json.loads(line) for line in two.on("journal", "lab", "--json").stdout.splitlines()]
    assert [(row["box"], row["text"]) for row in found] == [
        ("lab", "muted until it is over: inodes:/data"),
        ("lab", "no longer muted: inodes:/data"),
    ]
