"""Workers that are forked after collecting run each test once, and report as one process does."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.system.tree import ROOT

MANY = """
import os, time, pytest
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
with open("collected", "a") as file:
    file.write(f"{WORKER} ")

@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    worker = os.environ["PYTEST_XDIST_WORKER"]
    yield folder
    open(f"torn-down-{worker}", "a").write("x")

@pytest.mark.parametrize("number", range(30))
def test_many(number, shared, capfd):
    print("hello", number)
    assert capfd.readouterr().out == f"hello {number}\\n"
    worker = os.environ["PYTEST_XDIST_WORKER"]
    assert f"popen-{worker}" in str(shared)
    with open(f"ran-{worker}", "a") as file:
        file.write(f"{number} ")
    time.sleep(0.3 if number < 3 else 0.01)
"""
ALL_RESULTS = """
import os, warnings, pytest
def test_passes(): pass
def test_fails():
    print("printed by it")
    assert {1: 2} == {1: 3}
def test_skips(): pytest.skip("the reason")
def test_warns(): warnings.warn("the warning")
def test_has_no_such_fixture(nothing): pass
@pytest.mark.xfail
def test_is_expected_to_fail(): assert False
@pytest.fixture
def fragile():
    yield
    raise ValueError("while it was torn down")
def test_whose_fixture_fails(fragile): pass
"""
CRASHES = """
import os, pytest
@pytest.mark.parametrize("number", range(12))
def test_it(number):
    if number in (2, 9):
        os._exit(3)
"""
LEAVES_A_CHILD = """
import os, time
def test_it():
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    os._exit(3)
"""
CHILDREN_COME_BACK = """
import os, pytest
@pytest.fixture(scope="module", autouse=True)
def torn_down_once():
    yield
    open("torn-down", "a").write("x")
@pytest.mark.parametrize("end", [None, ValueError, SystemExit, KeyboardInterrupt])
def test_it(end):
    child = os.fork()
    if child:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    elif end:
        raise end
"""
WAITS = """
import os, signal, time, pytest
@pytest.fixture
def part():
    yield
    open("torn-down", "a").write("x")
def test_first(part):
    open("running-1", "w").close()
    time.sleep(600)
def test_second(part):
    open("running-2", "w").close()
    time.sleep(600)
"""


PORTS = """
import os, time, pytest
from free_ports import free_port
@pytest.mark.parametrize("number", range(12))
def test_it(number):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    with open(f"ports-{worker}", "a") as file:
        file.write(f"{free_port()} ")
    time.sleep(0.1)
"""


def run(folder: Path, text: str, *arguments: str) -> subprocess.Popen[str]:
    """Start pytest with forked workers on one file of tests."""
    (folder / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/forked_workers.py", folder / "scripts")
    (folder / "pytest.ini").touch()
    (folder / "test_it.py").write_text(text)
    ours = ("PYTEST", "RGT_TESTS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    for name in ("CI", "BUILD_NUMBER"):  # with them, pytest cuts no lines of its summary
        environment.pop(name, None)
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "scripts.forked_workers", *arguments],
        cwd=folder,
        env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for its end; returns what it printed."""
    output, _ = process.communicate(timeout=300)
    return output


def test_each_test_runs_once_in_one_of_the_workers(tmp_path: Path) -> None:
    output = finish(run(tmp_path, MANY, "--forks", "3"))
    assert "30 passed" in output, output
    assert (tmp_path / "collected").read_text() == "None "
    ran = {path.name: path.read_text().split() for path in tmp_path.glob("ran-*")}
    assert sorted(number for numbers in ran.values() for number in numbers) == sorted(
        map(str, range(30))
    )
    assert set(ran) == {"ran-gw0", "ran-gw1", "ran-gw2"}
    assert len(ran["ran-gw0"]) < 10, "others take over what a slow worker has not begun"
    torn_down = {path.name: path.read_text() for path in tmp_path.glob("torn-down-*")}
    assert torn_down == {f"torn-down-gw{number}": "x" for number in range(3)}


def test_results_are_reported_as_without_workers(tmp_path: Path) -> None:
    outputs = []
    for forks in ("0", "4"):
        folder = tmp_path / forks
        folder.mkdir()
        outputs.append(finish(run(folder, ALL_RESULTS, "--forks", forks, "-ra")))
    alone, forked = (
        re.findall(r"^(?:SKIPPED|XFAIL|ERROR|FAILED|E |[>_]).*", output, re.MULTILINE)
        for output in outputs
    )
    assert len(alone) > 15
    without_paths = re.compile(r" - .*|pytest-of-.*")  # they are cut to the width of a line
    assert sorted(without_paths.sub("", line) for line in alone) == sorted(
        without_paths.sub("", line) for line in forked
    ), outputs[1]
    count = re.compile(r"=* (1 failed, .*) in [0-9.]+s")
    assert count.findall(outputs[0]) == count.findall(outputs[1]) != []
    for part in ("printed by it", "the reason", "the warning", "while it was torn down"):
        assert part in outputs[1]


def test_workers_take_different_ports(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests/free_ports.py", tmp_path)
    output = finish(run(tmp_path, PORTS, "--forks", "3"))
    assert "12 passed" in output, output
    files = list(tmp_path.glob("ports-*"))
    ports = [port for path in files for port in path.read_text().split()]
    assert (len(files), len(ports), len({*ports})) == (3, 12, 12)


def test_a_worker_that_ends_fails_its_test_and_the_others_run(tmp_path: Path) -> None:
    output = finish(run(tmp_path, CRASHES, "--forks", "2", "--junitxml=report.xml"))
    assert "2 failed, 10 passed" in output, output
    assert re.search(r"the worker gw\d ended with 3 in test_it.py::test_it\[2\]", output)
    assert 'failures="2"' in (tmp_path / "report.xml").read_text()


def test_a_worker_that_ends_is_noticed_while_a_child_of_its_test_goes_on(tmp_path: Path) -> None:
    process = run(tmp_path, LEAVES_A_CHILD, "--forks", "1")
    try:
        process.wait(30)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
    output = finish(process)
    assert "the worker gw0 ended with 3" in output
    assert process.returncode == pytest.ExitCode.TESTS_FAILED, output


def test_a_child_that_comes_back_from_a_test_is_not_a_second_worker(tmp_path: Path) -> None:
    output = finish(run(tmp_path, CHILDREN_COME_BACK, "--forks", "1"))
    assert "= 4 passed in" in output, output
    assert (tmp_path / "torn-down").read_text() == "x"


def test_a_test_without_a_result_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_runtest_protocol(item):\n    return item.name == 'test_lost' or None\n"
    )
    text = "def test_lost(): pass\ndef test_kept(): pass\n"
    process = run(tmp_path, text, "--forks", "2")
    output = finish(process)
    assert "1 failed, 1 passed" in output, output
    assert "no worker has reported the end of test_it.py::test_lost" in output
    assert process.returncode == pytest.ExitCode.TESTS_FAILED


def test_the_run_ends_with_the_first_failure_where_that_is_asked_for(tmp_path: Path) -> None:
    many = "import pytest\n@pytest.mark.parametrize('n', range(200))\ndef test_it(n): assert n\n"
    output = finish(run(tmp_path, many, "--forks", "2", "-x"))
    assert "stopping after 1 failures" in output, output


@pytest.mark.parametrize("whole_group", [True, False])
def test_ctrl_c_tears_the_fixtures_of_all_workers_down(tmp_path: Path, whole_group: bool) -> None:
    process = run(tmp_path, WAITS, "--forks", "2")
    deadline = time.monotonic() + 120
    while not all((tmp_path / f"running-{number}").exists() for number in (1, 2)):
        assert time.monotonic() < deadline
        assert process.poll() is None, finish(process)
        time.sleep(0.02)
    if whole_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    output = finish(process)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert (tmp_path / "torn-down").read_text() == "xx"
