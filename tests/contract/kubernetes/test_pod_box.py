"""A pod as a box of the fleet: live with log and curve, across cut streams, and the commands about it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rgt_tui.fleet import Fleet
from rgt_tui.fleet.pulls import pulling
from rgt_tui.model import BoxState, FleetState, LinkState
from rgt_tui.ssh import connect_box, terminal_words
from tests import warm_rgt
from tests.contract.kubernetes.conftest import pod_spec
from tests.contract.providers.fakes.local_cluster import LocalCluster

FLEET = """
[boxes.lm]
python = "{python}"
[boxes.lm.kubectl]
context = "local"
namespace = "ml"
pod = "train-0"
"""


@pytest.fixture
def fleet_file(cluster: LocalCluster, tmp_path: Path) -> Iterator[Path]:
    """A fleet file with the pod; what rgt leaves running there ends with it."""
    path = tmp_path / "fleet.toml"
    path.write_text(FLEET.format(python=sys.executable))
    path.chmod(0o600)
    yield path
    for agent in cluster.home.glob(".cache/rgt/rgt-box-*.pyz"):
        words = [sys.executable, "-I", "-S", str(agent), "record", "--stop"]
        subprocess.run(
            words, env={"HOME": str(cluster.home), "PATH": os.environ["PATH"]}, check=False
        )


async def rgt(fleet: Path, *words: str, data: bytes = b"") -> tuple[int, str, str]:
    """Run a command; returns its status, output and errors."""
    state = fleet.parent / "state"
    env = {
        **os.environ,
        "RGT_FLEET": str(fleet),
        "HOME": str(fleet.parent),
        "XDG_STATE_HOME": str(state),
    }
    if not data:  # in a thread: the cluster runs in this one
        done = await asyncio.to_thread(warm_rgt.rgt, *words, cwd=fleet.parent, env=env)
        return done.returncode, done.stdout, done.stderr
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rgt_tui", *words, env=env, stdin=pipe, stdout=pipe, stderr=pipe
    )
    out, errors = await process.communicate(data)
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


async def wait_for(fleet: Fleet, condition: Callable[[BoxState], bool]) -> BoxState:
    """Wait for a state of the only box."""
    reached = asyncio.Event()

    def look(state: FleetState) -> None:
        if condition(state.boxes[0]):
            reached.set()

    unsubscribe = fleet.subscribe(look)
    try:
        if not condition(fleet.state.boxes[0]):
            async with asyncio.timeout(120):
                await reached.wait()
    finally:
        unsubscribe()
    return fleet.state.boxes[0]


async def test_it_is_watched_with_log_and_curve_and_again_after_a_cut(
    cluster: LocalCluster, fleet_file: Path, tmp_path: Path
) -> None:
    run = cluster.home / "out"
    run.mkdir()
    (run / "train.log").write_text("loading\nstep 1 loss 2.5\n")
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n')
    spec = pod_spec()
    keys = {"python": sys.executable, "logs": (str(run / "train.log"),), "runs": (str(run),)}
    spec = type(spec)(**{**{name: getattr(spec, name) for name in spec.__struct_fields__}, **keys})
    fleet = Fleet([spec], audit=tmp_path / "audit")
    await fleet.start()
    try:
        box = await wait_for(fleet, lambda box: box.counters.samples > 0 and bool(box.runs))
        assert box.link is LinkState.LIVE
        assert box.reason.startswith("kubectl: connected to ml/train-0")
        assert box.limited == ()
        fleet.follow_log("lm", str(run / "train.log"))
        await wait_for(fleet, lambda box: any("step 1 loss 2.5" in view.lines for view in box.logs))
        before = fleet.state.boxes[0].counters
        cluster.cut_streams()
        await wait_for(fleet, lambda box: box.counters.connects > before.connects)
        box = await wait_for(fleet, lambda box: box.counters.samples > before.samples + 1)
        assert box.counters.gaps == 0
    finally:
        await fleet.stop()


async def test_a_container_without_python_is_read_with_its_shell(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    spec = pod_spec()
    spec = type(spec)(
        **{**{name: getattr(spec, name) for name in spec.__struct_fields__}, "python": "none"}
    )
    fleet = Fleet([spec], audit=tmp_path / "audit")
    await fleet.start()
    try:
        box = await wait_for(fleet, lambda box: box.counters.samples > 0)
        assert box.link is LinkState.LIVE
        assert "these need the agent" in box.limited[0]
    finally:
        await fleet.stop()


async def test_run_starts_inside_a_pod_and_says_that_it_ends_with_it(
    cluster: LocalCluster, fleet_file: Path
) -> None:
    status, out, errors = await rgt(fleet_file, "run", "lm", "--no-smoke", "--", "echo inside")
    assert status == 0, out + errors
    assert "it runs inside the pod, and ends with it" in errors
    assert "DONE" in out
    assert any(path.read_text().startswith("inside") for path in cluster.home.rglob("logs/*.log"))


async def test_exec_has_the_commands_streams_and_status(fleet_file: Path) -> None:
    status, out, errors = await rgt(
        fleet_file, "exec", "lm", "--", "cat; echo bad >&2; exit 7", data=b"in"
    )
    assert (status, out, errors) == (7, "in", "bad\n")


async def test_what_is_pushed_arrives_in_the_pod(
    cluster: LocalCluster, fleet_file: Path, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("print('here')\n")
    status, _, errors = await rgt(fleet_file, "push", "lm", str(code))
    assert status == 0, errors
    assert any(path.read_text() == "print('here')\n" for path in cluster.home.rglob("train.py"))


async def test_what_is_pulled_from_the_pod_is_verified(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    out = cluster.home / "out"
    out.mkdir()
    (out / "curve.dat").write_bytes(os.urandom(3 << 20))
    fleet = Fleet([pod_spec()], audit=tmp_path / "audit", copies=tmp_path / "copies")
    end = await fleet.pull_directories(
        "lm", (str(out),), lambda _: None, lambda _: None, pulling.at_any_price
    )
    assert end.whole, end.text
    copy = tmp_path / "copies" / "lm" / str(out).lstrip("/") / "curve.dat"
    assert copy.read_bytes() == (out / "curve.dat").read_bytes()


async def test_ssh_opens_kubectl_exec_with_the_kubeconfig_of_this_process(
    cluster: LocalCluster, fleet_file: Path
) -> None:
    status, out, _ = await rgt(fleet_file, "ssh", "lm", "--", "echo", "a  b")
    assert (status, out) == (0, "a  b\n")
    connection = await connect_box(pod_spec())
    words = terminal_words(connection, "lm", "pwd")
    assert words[:3] == ("env", f"KUBECONFIG={os.environ['KUBECONFIG']}", "kubectl")
    assert words[-4:] == ("--", "sh", "-c", "pwd")
