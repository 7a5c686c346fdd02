"""`make` as a person uses it, in a directory with a space, with a pretended Python and apt-get."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import pytest

from tests.system.tree import ROOT

FAKE_PYTHON = r"""#!/usr/bin/env bash
# Pretends to be Python for set-up: makes a .venv of copies of itself, and notes what it was asked to install.
set -eu
self=$(readlink -f "$0")
case "${1-} ${2-}" in
    "-c "*process_time*) sed -n 's/^# takes //p' "$self" | grep . || echo 9000 ;;
    "-c "*ensurepip*) echo "${FAKE_VERSION:-3.11.99} $self" ;;
    "-c "*) echo "${FAKE_VERSION:-3.11.99}" ;;
    "-m venv")
        mkdir -p "$4/bin"
        cp "$self" "$4/bin/python"
        printf '#!/usr/bin/env bash\necho "rgt $*"\nexit "${FAKE_EXIT:-0}"\n' >"$4/bin/rgt"
        chmod +x "$4/bin/rgt"
        echo "venv" >>"$FAKE_LOG"
        ;;
    "-m pip")
        echo "pip ${*: -1}" >>"$FAKE_LOG"
        if [ "${FAKE_FAIL-}" = "${*: -1}" ]; then echo "$FAKE_SAYS"; exit 1; fi
        if [ "${FAKE_HANG-}" = "${*: -1}" ]; then sleep 60; fi
        ;;
    *) echo "unexpected: $*" >&2; exit 9 ;;
esac
"""

TORCH = next(
    line
    for line in (ROOT / "requirements/torch.in").read_text().split()
    if line.startswith("torch==")
)
PACKAGE_STEPS = ["pip requirements/base.lock", "pip requirements/torch.lock", f"pip {TORCH}"]
TOOLS_STEP = "pip requirements/dev.lock"
ALL_STEPS = ["venv", *PACKAGE_STEPS, TOOLS_STEP, "pip ."]


class Clone:
    """What `make` needs of the repository, copied to a directory with a space in its name."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a clone"
        self.log = folder / "steps"
        self.python = folder / "fake python"
        self.root.mkdir()
        self.log.touch()
        for name in ("Makefile", "pyproject.toml", "requirements", "scripts", ".ci"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(
                    source, self.root / name, ignore=shutil.ignore_patterns("__pycache__")
                )
            else:
                shutil.copy(source, self.root / name)
        self.write_program(self.python, FAKE_PYTHON)
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MAKE", "MFLAGS", "ARGS", "PYTHON", "PYTEST"))
        }
        self.environment |= {"PYTHON": str(self.python), "FAKE_LOG": str(self.log), "LC_ALL": "C"}

    @staticmethod
    def write_program(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def make(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", *arguments],
            cwd=self.root,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def steps(self) -> list[str]:
        """What was installed since the last call."""
        steps = self.log.read_text().splitlines()
        self.log.write_text("")
        return steps


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


CI_MAKE = r"""#!/usr/bin/env bash
# Pretends to be make: lint ends only once the tests have begun.
echo "made $1" >>"$FAKE_LOG"
case "$1" in
    setup) exit "${SETUP-0}" ;;
    lint) cat "$MEET" >/dev/null && echo "one fault" && echo "in one piece" >&2 && exit "$LINT" ;;
    test) echo "the tests begin" && echo go >"$MEET" && exit "$TESTS" ;;
    test-rest) test "$RGT_TESTS_UNTIL" -gt "$EPOCHSECONDS" && exit "$REST" ;;
esac
"""


@pytest.mark.parametrize(
    ("lint", "tests", "rest"), [(0, 0, 0), (2, 0, 0), (0, 2, 0), (2, 2, 0), (0, 0, 2)]
)
def test_ci_lints_while_it_tests_and_fails_for_either(
    clone: Clone, lint: int, tests: int, rest: int
) -> None:
    clone.write_program(clone.root / "bin/make", CI_MAKE)
    meet = clone.root / "meet"
    os.mkfifo(meet)
    answers = {"LINT": str(lint), "TESTS": str(tests), "REST": str(rest), "MEET": str(meet)}
    path = f"{clone.root / 'bin'}:{clone.environment['PATH']}"
    environment = clone.environment | answers | {"PATH": path, "TMPDIR": str(clone.root)}
    done = subprocess.run(
        ["bash", ".ci/run"],
        cwd=clone.root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode == 0) is (lint == tests == rest == 0), done
    steps = clone.steps()
    assert steps[0] == "made setup"
    assert ("made test-rest" in steps) is (tests == 0), "what has failed already takes no more time"
    assert "the tests begin\n" in done.stdout
    assert "one fault\nin one piece\n" in done.stdout
    assert not list(clone.root.glob("tmp.*"))


def test_ci_tests_nothing_where_set_up_fails(clone: Clone) -> None:
    clone.write_program(clone.root / "bin/make", CI_MAKE)
    path = f"{clone.root / 'bin'}:{clone.environment['PATH']}"
    environment = clone.environment | {"SETUP": "2", "PATH": path}
    done = subprocess.run(
        ["bash", ".ci/run"], cwd=clone.root, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert clone.steps() == ["made setup"]


def test_help_is_the_default_and_names_every_target(clone: Clone) -> None:
    done = clone.make()
    assert done.returncode == 0
    for target in ("setup", "demo", "test", "lint", "bench", "screenshots", "lock", "clean"):
        assert re.search(rf"^  make {target} +\S", done.stdout, re.MULTILINE), target
    assert clone.steps() == []


def test_setup_builds_once_and_then_does_nothing(clone: Clone) -> None:
    first = clone.make("setup")
    assert first.returncode == 0, first.stderr
    assert clone.steps() == ALL_STEPS
    second = clone.make("setup")
    assert second.returncode == 0
    assert clone.steps() == []
    assert first.stdout == second.stdout == ""


@pytest.mark.parametrize(
    ("lock", "steps"),
    [("base.lock", [*PACKAGE_STEPS, TOOLS_STEP, "pip ."]), ("dev.lock", [TOOLS_STEP])],
)
def test_a_changed_lock_is_installed_over_what_is_there(
    clone: Clone, lock: str, steps: list[str]
) -> None:
    clone.make("setup")
    clone.steps()
    with (clone.root / "requirements" / lock).open("a") as file:
        file.write("# changed\n")
    assert clone.make("setup").returncode == 0
    assert clone.steps() == steps
    assert clone.make("setup").returncode == 0
    assert clone.steps() == []


def test_a_changed_lock_that_fails_leaves_nothing_that_passes_for_complete(clone: Clone) -> None:
    clone.make("setup")
    with (clone.root / "requirements/base.lock").open("a") as file:
        file.write("# changed\n")
    assert clone.make("setup", FAKE_FAIL="requirements/torch.lock", FAKE_SAYS="no").returncode != 0
    clone.steps()
    done = clone.make("setup")
    assert (done.returncode, "incomplete" in done.stderr) == (0, True)
    assert clone.steps() == ALL_STEPS


def test_the_demo_needs_no_developers_tools(clone: Clone) -> None:
    assert clone.make("demo").returncode == 0
    assert clone.steps() == ["venv", *PACKAGE_STEPS, "pip ."]
    assert clone.make("setup").returncode == 0
    assert clone.steps() == [TOOLS_STEP]
    assert clone.make("demo").returncode == 0
    assert clone.steps() == []


def test_a_changed_project_file_only_installs_the_project_again(clone: Clone) -> None:
    clone.make("setup")
    clone.steps()
    with (clone.root / "pyproject.toml").open("a") as project:
        project.write("# changed\n")
    assert clone.make("setup").returncode == 0
    assert clone.steps() == ["pip ."]


def test_another_python_or_place_builds_the_environment_anew(clone: Clone) -> None:
    clone.make("setup")
    clone.steps()
    assert clone.make("setup", FAKE_VERSION="3.12.0").returncode == 0
    assert clone.steps() == ALL_STEPS
    clone.root = clone.root.rename(clone.root.with_name("moved away"))
    assert clone.make("setup", FAKE_VERSION="3.12.0").returncode == 0
    assert clone.steps() == ALL_STEPS


def test_an_environment_that_no_longer_runs_is_built_anew(clone: Clone) -> None:
    clone.make("setup")
    clone.steps()
    (clone.root / ".venv/bin/python").unlink()
    assert clone.make("setup").returncode == 0
    assert clone.steps() == ALL_STEPS


@pytest.mark.parametrize("step", ["requirements/base.lock", "requirements/torch.lock", TORCH])
def test_an_interrupted_setup_is_built_anew(clone: Clone, step: str) -> None:
    process = subprocess.Popen(
        ["make", "setup"],
        cwd=clone.root,
        env=clone.environment | {"FAKE_HANG": step},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        text=True,
    )
    wait_for(lambda: f"pip {step}" in clone.log.read_text())
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode != 0, output
    clone.steps()
    done = clone.make("setup")
    assert done.returncode == 0
    assert "incomplete" in done.stderr
    assert clone.steps() == ALL_STEPS


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def test_a_failing_project_step_keeps_the_packages(clone: Clone) -> None:
    assert clone.make("setup", FAKE_FAIL=".", FAKE_SAYS="no").returncode != 0
    assert clone.steps() == ALL_STEPS
    assert clone.make("setup").returncode == 0
    assert clone.steps() == ["pip ."]


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "disk is full",
        ),
        ("NewConnectionError: Temporary failure in name resolution", "index was not reached"),
        ("ERROR: No matching distribution found for torch==2.13.0", "no build for this Python"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES", "not the one that the lock names"),
    ],
)
def test_a_failed_step_is_named_and_explained(clone: Clone, says: str, told: str) -> None:
    done = clone.make("demo", FAKE_FAIL=TORCH, FAKE_SAYS=says)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "FAILED: installing torch" in done.stderr
    assert told in done.stderr
    assert str(clone.root / ".venv/setup.log") in done.stderr
    assert says in (clone.root / ".venv/setup.log").read_text()


def test_a_wrong_python_is_refused_by_name(clone: Clone) -> None:
    done = clone.make("setup", PYTHON="/nowhere/python3")
    assert done.returncode != 0
    assert "PYTHON=/nowhere/python3 is no Python 3.11 or later" in done.stderr
    assert not (clone.root / ".venv").exists()


def without_pythons(folder: Path) -> Path:
    """Make a directory with all programs of this machine but its Pythons."""
    folder.mkdir()
    for place in filter(Path.is_dir, map(Path, ("/bin", "/sbin", "/usr/sbin", "/usr/bin"))):
        for program in place.iterdir():
            if not program.name.startswith("python") and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return folder


@pytest.mark.parametrize(("second", "taken"), [(6000, "second"), (8800, "first"), (12000, "first")])
def test_of_two_builds_the_one_that_is_clearly_faster_is_taken(
    clone: Clone, tmp_path: Path, second: int, taken: str
) -> None:
    """What pyenv builds is not optimized, and stands before the system's Python on the PATH."""
    del clone.environment["PYTHON"]
    others = without_pythons(tmp_path / "others")
    for name, took in (("first", 9000), ("second", second)):
        clone.write_program(
            tmp_path / name / "python3.11", f"{FAKE_PYTHON}\n# {name}\n# takes {took}\n"
        )
    done = clone.make("setup", PATH=f"{tmp_path}/first:{tmp_path}/second:{others}")
    assert done.returncode == 0, done.stderr
    assert f"\n# {taken}\n" in (clone.root / ".venv/bin/python").read_text()


def test_a_broken_build_is_passed_over_and_one_that_greets_and_reads_is_taken_for_what_it_is(
    clone: Clone, tmp_path: Path
) -> None:
    """Wrappers of a machine's own greet, or read what stands on their input: the rest of the list of builds."""
    del clone.environment["PYTHON"]
    others = without_pythons(tmp_path / "others")
    clone.write_program(tmp_path / "broken" / "python3.11", "#!/bin/sh\nexit 134\n")
    first, rest = FAKE_PYTHON.split("\n", 1)
    greets = f"{first}\necho 'welcome to this machine'\ncat >/dev/null\n{rest}"
    for name, took in (("greets", 9000), ("quick", 6000)):
        clone.write_program(tmp_path / name / "python3.11", f"{greets}\n# {name}\n# takes {took}\n")
    path = ":".join(str(tmp_path / name) for name in ("broken", "greets", "quick"))
    done = clone.make("setup", PATH=f"{path}:{others}")
    assert done.returncode == 0, done.stderr
    assert "\n# quick\n" in (clone.root / ".venv/bin/python").read_text()
    assert clone.steps() == ALL_STEPS
    assert clone.make("setup", PATH=f"{path}:{others}").returncode == 0
    assert clone.steps() == [], "it is known again"


def test_demo_leaves_stdout_to_the_program(clone: Clone) -> None:
    done = clone.make("demo", 'ARGS=--for 45 --name "two words"')
    assert done.returncode == 0
    assert done.stdout == "rgt demo --for 45 --name two words\n"
    assert clone.make("-s", "-C", str(clone.root), "demo").stdout == "rgt demo\n"


def test_demo_fails_when_the_program_fails(clone: Clone) -> None:
    done = clone.make("demo", FAKE_EXIT="3")
    assert done.returncode != 0
    assert done.stdout == "rgt demo\n"


def test_two_setups_at_once_build_one_environment(clone: Clone) -> None:
    processes = [
        subprocess.Popen(
            ["make", "setup"],
            cwd=clone.root,
            env=clone.environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    for process in processes:
        assert process.stderr
        process.stderr.close()
    assert clone.steps() == ALL_STEPS


def test_clean_keeps_the_environment_and_distclean_does_not(clone: Clone) -> None:
    clone.make("setup")
    cache = clone.root / "rgt_tui/__pycache__"
    kept = clone.root / ".venv/lib/__pycache__"
    for folder in (cache, kept, clone.root / ".ruff_cache"):
        folder.mkdir(parents=True)
    assert clone.make("clean").returncode == 0
    assert not cache.exists()
    assert not (clone.root / ".ruff_cache").exists()
    assert kept.exists()
    assert clone.make("distclean").returncode == 0
    assert not (clone.root / ".venv").exists()


# System parts.


def parts_table() -> list[tuple[str, str, str]]:
    """Return (who uses it, command, package) of every part that the script knows."""
    text = (ROOT / "scripts/system_parts.sh").read_text()
    rows = text.partition("cat <<'TABLE'\n")[2].partition("\nTABLE")[0].splitlines()
    return [(row.split()[0], row.split()[1], row.split()[2]) for row in rows]


PARTS = parts_table()
PACKAGES = sorted({package for _, _, package in PARTS})
DEMO_PACKAGES = sorted({package for user, _, package in PARTS if user == "demo"})

TOOLS = (
    *(
        "awk",
        "bash",
        "cat",
        "chmod",
        "cp",
        "cut",
        "dirname",
        "env",
        "grep",
        "head",
        "make",
        "mkdir",
        "mv",
    ),
    *("printf", "readlink", "rm", "sed", "sha256sum", "sort", "tail", "tr"),
)


def bare_path(clone: Clone, **programs: str) -> str:
    """A PATH with the tools of every machine, some pretended programs, and none of the system parts."""
    folder = clone.root.parent / "bare bin"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        if found:
            (folder / tool).symlink_to(found)
    for name, text in programs.items():
        clone.write_program(folder / name.replace("_", "-"), text)
    return str(folder)


def test_without_root_missing_parts_are_told_once_and_setup_goes_on(clone: Clone) -> None:
    environment = {"PATH": bare_path(clone, id="#!/usr/bin/env bash\necho 1000\n"), "RGT_SBIN": ""}
    done = clone.make("setup", **environment)
    assert done.returncode == 0, done.stderr
    assert re.search(r"tmux +\(package tmux\)  without it: queues detached in tmux", done.stderr)
    told = re.search(r"apt-get install ([^\n]*)", done.stderr)
    assert told is not None
    assert sorted(told[1].split()) == PACKAGES
    assert {"munge", "openssh-server", "slurm-wlm", "tmux"} <= set(PACKAGES)
    assert clone.steps() == ALL_STEPS
    again = clone.make("setup", **environment)
    assert again.returncode == 0
    assert "still missing: ssh sshd tmux" in again.stderr
    assert len(again.stderr.splitlines()) < len(done.stderr.splitlines())


def test_the_demo_asks_for_its_own_parts_alone(clone: Clone) -> None:
    environment = {"PATH": bare_path(clone, id="#!/usr/bin/env bash\necho 1000\n"), "RGT_SBIN": ""}
    done = clone.make("demo", **environment)
    assert done.returncode == 0, done.stderr
    told = re.search(r"apt-get install ([^\n]*)", done.stderr)
    assert told is not None
    assert sorted(told[1].split()) == DEMO_PACKAGES
    assert {"util-linux"} <= set(DEMO_PACKAGES) < set(PACKAGES)


def test_the_tests_do_not_run_without_the_parts(clone: Clone) -> None:
    environment = {"PATH": bare_path(clone, id="#!/usr/bin/env bash\necho 1000\n"), "RGT_SBIN": ""}
    done = clone.make("test", **environment)
    assert done.returncode != 0
    assert "the tests need all of them" in done.stderr


FAKE_APT = """#!/usr/bin/env bash
echo "apt ${*: -1}" >>"$FAKE_LOG"
case " $* " in *" install "*)
    test -x "$RGT_POLICY_RC" && echo "no services" >>"$FAKE_LOG"
    here=$(dirname "$0")
    for name in PART_NAMES; do
        printf '#!/bin/sh\\n' >"$here/$name"
        chmod +x "$here/$name"
    done ;;
esac
""".replace("PART_NAMES", " ".join(command for _, command, _ in PARTS))


def test_root_on_debian_installs_the_parts_and_starts_no_service(clone: Clone) -> None:
    policy = clone.root.parent / "policy rc.d"
    path = bare_path(clone, id="#!/usr/bin/env bash\necho 0\n", apt_get=FAKE_APT)
    done = clone.make("setup", PATH=path, RGT_SBIN="", RGT_POLICY_RC=str(policy))
    assert done.returncode == 0, done.stderr
    assert clone.steps() == ["apt update", f"apt {PACKAGES[-1]}", "no services", *ALL_STEPS]
    assert not policy.exists()
    assert clone.make("parts", PATH=path, RGT_SBIN="", RGT_POLICY_RC=str(policy)).returncode == 0
    assert clone.steps() == []


def test_somebody_elses_service_policy_is_left_alone(clone: Clone) -> None:
    policy = clone.root.parent / "policy"
    policy.write_text("#!/bin/sh\nexit 101\n")
    path = bare_path(clone, id="#!/usr/bin/env bash\necho 0\n", apt_get=FAKE_APT)
    clone.make("setup", PATH=path, RGT_SBIN="", RGT_POLICY_RC=str(policy))
    assert policy.read_text() == "#!/bin/sh\nexit 101\n"


def test_a_failing_apt_get_does_not_fail_setup(clone: Clone) -> None:
    path = bare_path(
        clone, id="#!/usr/bin/env bash\necho 0\n", apt_get="#!/usr/bin/env bash\nexit 100\n"
    )
    policy = clone.root.parent / "policy"
    done = clone.make("setup", PATH=path, RGT_SBIN="", RGT_POLICY_RC=str(policy))
    assert done.returncode == 0, done.stderr
    assert "apt-get install failed" in done.stderr
    assert "missing on this machine" in done.stderr


def test_a_package_that_the_distribution_lacks_keeps_no_other_away(clone: Clone) -> None:
    without = FAKE_APT.replace(
        'case " $* " in', 'case " $* " in *" install "*chromium*) exit 100 ;; esac\ncase " $* " in'
    )
    path = bare_path(clone, id="#!/usr/bin/env bash\necho 0\n", apt_get=without)
    done = clone.make(
        "setup", PATH=path, RGT_SBIN="", RGT_POLICY_RC=str(clone.root.parent / "policy")
    )
    assert done.returncode == 0, done.stderr
    assert "apt-get install chromium-headless-shell failed" in done.stderr
    assert f"apt {PACKAGES[-1]}" in clone.steps()


# The two passes.


NO_HYPOTHESIS = """
class HealthCheck:
    too_slow = None

class settings:
    register_profile = load_profile = staticmethod(lambda *names, **values: None)
"""
"""What tests/conftest.py imports of hypothesis: the real one takes as long to import as pytest takes to start."""


def run_passes(
    folder: Path,
    ci: str = "",
    workers: str = "1",
    arguments: Sequence[str] = (),
    until: str = "",
    rest: str = "",
    **tests: str,
) -> subprocess.CompletedProcess[str]:
    """Runs the test runner on a small tree of its own, where PYTHONDONTWRITEBYTECODE and perhaps CI are set."""
    (folder / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/run_tests.py", folder / "scripts")
    shutil.copy(ROOT / "tests/conftest.py", folder)
    (folder / "hypothesis.py").write_text(NO_HYPOTHESIS)
    (folder / "rest.txt").write_text(rest)
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n serial: alone\n full: again\n full_matrix: each value\naddopts = -p xdist\n"
    )
    for name, text in tests.items():
        (folder / f"test_{name}.py").write_text(text)
    ours = ("PYTEST", "RGT_TESTS")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(
        [sys.executable, "scripts/run_tests.py", *arguments],
        cwd=folder,
        env=environment
        | {
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_XDIST_AUTO_NUM_WORKERS": workers,
            "PYTHONDONTWRITEBYTECODE": "1",
            "CI": ci,
            "RGT_TESTS_UNTIL": until,
        },
        capture_output=True,
        text=True,
        check=False,
    )


PASSES = "def test_a(): pass\n"
FAILS = "def test_b(): assert False\n"
SERIAL = "import pytest\n@pytest.mark.serial\ndef test_c(): pass\n"


OPENS = """
import os, sys
worker = "serial" if "serial" in sys.argv else os.environ.get("PYTEST_XDIST_WORKER", "")
open(f"opened-{worker}", "a").write(__name__ + " ")
def test_it(): pass
"""
Both = tuple[Path, subprocess.CompletedProcess[str]]
LOOKS_AT_BYTECODE = (
    "import os, sys\ndef test_it(): assert not sys.flags.dont_write_bytecode, os.environ\n"
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A tree of four files, and what came of its tests in two workers and the serial pass."""
    folder = tmp_path_factory.mktemp("both")
    tests = {"a_opens": OPENS, "b_opens": OPENS, "looks": LOOKS_AT_BYTECODE, "serial": SERIAL}
    return folder, run_passes(folder, workers="2", **tests)


def test_both_passes_add_up_to_one_closing_line(both: Both) -> None:
    _, done = both
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "total: 4 passed, 0 failed, 0 skipped", done.stdout


def test_the_tests_of_a_fresh_clone_are_compiled_before_the_workers_look_at_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "tests").mkdir()
    tells = "import sys\nopen('opened', 'a').write(f'{\"--collect-only\" in sys.argv} ')\ndef test_it(): pass\n"
    (tmp_path / "tests/test_deep.py").write_text(tells)
    done = run_passes(tmp_path, serial=SERIAL)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "opened").read_text().split()[:2] == ["True", "False"]
    assert list((tmp_path / "tests/__pycache__").glob("test_deep.*-pytest-*.pyc"))


def test_what_is_started_often_is_compiled_once(both: Both) -> None:
    folder, done = both
    assert done.returncode == 0, "who looks whether bytecode is written has passed"
    assert list((folder / "__pycache__").glob("test_looks*.pyc"))


def test_each_worker_begins_to_collect_elsewhere_and_they_agree_on_the_order(both: Both) -> None:
    """What one has compiled the others only load; pytest-xdist refuses workers that differ."""
    folder, _ = both
    assert (folder / "opened-gw0").read_text().split() == ["test_a_opens", "test_b_opens"]
    assert (folder / "opened-gw1").read_text().split() == ["test_b_opens", "test_a_opens"]


def test_the_serial_pass_opens_only_files_that_name_serial_tests(both: Both) -> None:
    folder, done = both
    assert done.returncode == 0
    assert not (folder / "opened-serial").exists()


def test_a_mark_that_the_file_of_its_test_does_not_name_is_an_error(tmp_path: Path) -> None:
    for start, end in (("ser", "ial"), ("fu", "ll")):
        hidden = f"import pytest\n@getattr(pytest.mark, '{start}' + '{end}')\ndef test_c(): pass\n"
        done = run_passes(tmp_path / end, one=PASSES, two=hidden)
        assert done.returncode != 0
        assert f"no mark.{start}{end} in the file" in done.stdout + done.stderr


MARKED = """
import pytest
def test_first(): pass
def test_slow(): __import__("time").sleep(0.5)
@pytest.mark.full
def test_again(): pass
@pytest.mark.full
@pytest.mark.serial
def test_alone(): pass
@pytest.mark.full_matrix
@pytest.mark.parametrize("letter", "abc")
@pytest.mark.parametrize("number", range(4))
def test_each(letter, number): print(f"seen {letter} {number}")
@pytest.mark.full_matrix(together=2)
@pytest.mark.parametrize("first", "abc")
@pytest.mark.parametrize("second", "de")
@pytest.mark.parametrize("third", "fg")
def test_pairs(first, second, third): print(f"pairs {first} {second} {third}")
"""


def test_what_repeats_runs_where_it_is_asked_for_and_while_there_is_time(tmp_path: Path) -> None:
    listed = "test_two.py::test_listed\n"
    files = {"one": MARKED, "two": "def test_listed(): print('listed')\n"}

    def run(name: str, *arguments: str, until: str = "") -> subprocess.CompletedProcess[str]:
        return run_passes(tmp_path / name, arguments=arguments, until=until, rest=listed, **files)

    runs = {
        "core": run("core", "--core", "-rP", until="0"),
        "rest": run("rest", "--rest", "-rP", until=str(time.time() + 3600)),
        "late": run("late", "--rest", until="0"),
        "chosen": run("chosen", "test_one.py", "test_two.py"),
    }
    assert {name: done.returncode for name, done in runs.items()} == dict.fromkeys(runs, 0), runs
    total = {
        name: int(re.findall(r"^total: (\d+) passed, 0 failed", done.stdout, re.MULTILINE)[0])
        for name, done in runs.items()
    }
    assert total["core"] + total["rest"] == total["chosen"] == 29
    assert total["late"] == 0
    late = f"not run, because the time was up: {total['rest']} tests"
    assert [name for name, done in runs.items() if late in done.stdout] == ["late"]
    assert f"{total['rest'] - 1:9}  test_one.py\n" in runs["late"].stdout
    assert ["\nlisted\n" in runs[name].stdout for name in ("core", "rest")] == [False, True]

    seen = {
        name: re.findall(r"^seen (\w \d)$", runs[name].stdout, re.MULTILINE)
        for name in ("core", "rest")
    }
    assert (len(seen["core"]), len(seen["rest"]), len({*seen["core"], *seen["rest"]})) == (4, 8, 12)
    assert {letter for pair in seen["core"] for letter in pair.split()} == set("abc0123")
    pairs = re.findall(r"^pairs (\w) (\w) (\w)$", runs["core"].stdout, re.MULTILINE)
    assert 6 <= len(pairs) < 12
    assert len({two for three in pairs for two in combinations(three, 2)}) == 3 * 2 + 3 * 2 + 2 * 2

    named = runs["chosen"].stdout.partition("the 10 slowest tests:\n")[2].splitlines()[:-1]
    assert len(named) == 10
    assert named[0].endswith(" s  test_one::test_slow")


def test_a_pass_without_tests_is_no_failure(tmp_path: Path) -> None:
    assert run_passes(tmp_path, one=PASSES).returncode == 0


def test_no_test_at_all_is_a_failure(tmp_path: Path) -> None:
    done = run_passes(tmp_path)
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1] == "total: 0 passed, 0 failed, 0 skipped"


def test_a_failure_in_the_first_pass_still_runs_the_second(tmp_path: Path) -> None:
    done = run_passes(tmp_path, one=FAILS, two=SERIAL)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "total: 1 passed, 1 failed, 0 skipped"


FAILS_ONCE = """
import pathlib
def test_{name}():
    ran = pathlib.Path(__file__).with_suffix(".ran")
    assert ran.exists() or ran.touch()
"""


def test_a_test_that_passes_only_alone_is_flaky_and_fails_no_run(tmp_path: Path) -> None:
    serial = SERIAL + FAILS_ONCE.format(name="d").replace("def ", "@pytest.mark.serial\ndef ")
    done = run_passes(tmp_path, one=PASSES, two=FAILS_ONCE.format(name="b"), three=serial)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-3:] == [
        "flaky: test_three.py::test_d failed, and passed when it ran alone",
        "flaky: test_two.py::test_b failed, and passed when it ran alone",
        "total: 4 passed, 0 failed, 0 skipped",
    ], done.stdout


def test_beside_a_flaky_test_a_failing_one_still_fails_the_run(tmp_path: Path) -> None:
    done = run_passes(tmp_path, one=FAILS, two=FAILS_ONCE.format(name="c"))
    assert done.returncode == 1
    assert done.stdout.splitlines()[-2:] == [
        "flaky: test_two.py::test_c failed, and passed when it ran alone",
        "total: 1 passed, 1 failed, 0 skipped",
    ], done.stdout


def test_a_file_that_cannot_be_imported_is_not_flaky(tmp_path: Path) -> None:
    done = run_passes(tmp_path, one=PASSES, two="assert False\n")
    assert done.returncode != 0
    assert "flaky" not in done.stdout


SKIPS = {
    "by_mark": "import pytest\n@pytest.mark.skipif(True, reason='lacks a')\ndef test_it(): pass\n",
    "by_itself": "import pytest\ndef test_it(): pytest.skip('lacks b')\n",
    "by_a_fixture": "import pytest\n@pytest.fixture\ndef part(): pytest.skip('lacks c')\ndef test_it(part): pass\n",
    "by_an_import": "import pytest\ndef test_it(): pytest.importorskip('lacks_d')\n",
    "as_a_whole": "import pytest\npytest.skip('lacks e', allow_module_level=True)\n",
    "as_a_whole_for_an_import": "import pytest\npytest.importorskip('lacks_f')\n",
}


def test_what_a_machine_lacks_is_a_failure_in_ci_and_a_skip_elsewhere(tmp_path: Path) -> None:
    for ci, counts, status in (("", "0 failed, 6 skipped", 0), ("true", "6 failed, 0 skipped", 1)):
        folder = tmp_path / f"ci-{ci}"
        folder.mkdir()
        done = run_passes(folder, ci, **SKIPS, passes=PASSES)
        assert (done.stdout.splitlines()[-1], done.returncode) == (
            f"total: 1 passed, {counts}",
            status,
        ), done.stdout
        if ci:
            assert all(
                f"lacks{sep}{letter}" in done.stdout
                for sep, letter in zip("   _ _", "abcdef", strict=True)
            )


LOOKS = """
import os, pathlib
def commands():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            yield pathlib.Path("/proc", pid, "cmdline").read_bytes()
        except OSError:
            pass
def test_what_is_seen():
    assert any(b"pytest" in command for command in commands())
    assert not any(b"{mark}" in command for command in commands())
"""
ORPHANS = """
import os, subprocess, sys, time
def test_an_orphan_is_waited_for():
    orphan = int(subprocess.run(["sh", "-c", "sleep 0.1 >/dev/null 2>&1 & echo $!"], capture_output=True).stdout)
    while os.path.exists(f"/proc/{orphan}"):
        time.sleep(0.01)
    code = "import time; time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", code, "{mark}"], start_new_session=True, stdout=2)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a process namespace")
def test_the_tests_see_no_other_process_and_leave_none(tmp_path: Path) -> None:
    mark = f"somebody-elses-{os.getpid()}"
    other = subprocess.Popen([sys.executable, "-c", "input()", mark], stdin=subprocess.PIPE)
    try:
        done = run_passes(
            tmp_path,
            looks=LOOKS.replace("{mark}", mark),
            orphans=ORPHANS.replace("{mark}", "left-" + mark),
        )
    finally:
        other.communicate(b"\n")
    assert done.stdout.splitlines()[-1] == "total: 2 passed, 0 failed, 0 skipped", done.stdout
    left = [pid for pid in filter(str.isdigit, os.listdir("/proc")) if names(pid, "left-" + mark)]
    assert not left


def names(pid: str, word: str) -> bool:
    try:
        return word.encode() in Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return False
