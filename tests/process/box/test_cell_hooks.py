"""A platform's hooks in the shell of a cell, and its mirrors in login shells: set, and undone to the byte."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rgt_box.commands import mirrors
from rgt_box.queue import cell_command

from tests.process.box.harness import Agent, make_job

PROXY = "export http_proxy=http://far:1 https_proxy=http://far:1 no_proxy=modelscope.com"
SHOW = ["sh", "-c", 'echo "$MODULE|$http_proxy|$no_proxy|$NO_PROXY|$$"; exit 7']


def log_of(agent: Agent, job: Path, status: int = 1) -> str:
    done = agent.run("queue", "run", "--job", str(job))
    assert done.returncode == status, done.stderr
    return (job / "logs" / "a.log").read_text()


def test_a_cell_has_what_the_hooks_have_set_and_is_the_command_itself(
    agent: Agent, tmp_path: Path
) -> None:
    hooks = {"env": "MODULE=cuda; export MODULE", "proxy": PROXY, "no_proxy": ["modelscope.cn"]}
    agent.watch(interval=10, job_hooks=hooks).sync()
    job = make_job(
        tmp_path / "job", [*SHOW, "--master_addr=node7"], ["a"], env={"MASTER_ADDR": "10.0.0.9"}
    )
    module, proxy, near, upper, pid = log_of(agent, job).strip().split("|")
    assert (module, proxy) == ("cuda", "http://far:1") and near == upper
    for name in (
        "modelscope.com",
        "modelscope.cn",
        "localhost",
        "127.0.0.1",
        "::1",
        "10.0.0.9",
        "node7",
    ):
        assert name in near.split(",")
    status = json.loads(agent.run("queue", "status", "--job", str(job)).stdout)
    assert status["cells"][0]["exit_code"] == 7 and pid.isdigit()
    quiet = make_job(tmp_path / "quiet", SHOW, ["a"])
    agent.watch(interval=10).sync()  # who says nothing of it leaves it
    assert log_of(agent, quiet).startswith("cuda|")
    agent.watch(interval=10, job_hooks={}).sync()
    assert log_of(agent, make_job(tmp_path / "none", SHOW, ["a"])).startswith("|||")


def test_a_hook_that_fails_is_told_and_the_cell_runs(agent: Agent, tmp_path: Path) -> None:
    agent.watch(interval=10, job_hooks={"env": "module load no-such-module"}).sync()
    text = log_of(agent, make_job(tmp_path / "job", SHOW, ["a"]))
    assert (
        "rgt: the platform's hook failed: module load no-such-module" in text
        and "|" in text.splitlines()[-1]
    )


def test_a_signal_reaches_the_command(tmp_path: Path) -> None:
    words = cell_command.wrap_with_hooks(
        ["sh", "-c", "echo $$; kill -TERM $$"], {"env": "true"}, {}
    )
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    out, _ = child.communicate()
    assert int(out) == child.pid and child.returncode == -15
    missing = subprocess.run(
        cell_command.wrap_with_hooks(["/no/such"], {"env": "true"}, {}),
        capture_output=True,
        check=False,
    )
    assert missing.returncode == 127


def test_words_stay_words_and_no_hook_changes_nothing() -> None:
    words = ["printf", "%s|", "a b", "$HOME", "'", "--", ""]
    assert cell_command.wrap_with_hooks(words, {}, {}) is words
    done = subprocess.run(
        cell_command.wrap_with_hooks(words, {"env": "true"}, {}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "a b|$HOME|'|--||"


@pytest.mark.parametrize(
    ("words", "host"),
    [
        (["--master_addr", "n1"], "n1"), (["--master-addr=n2"], "n2"), (["--rdzv_endpoint=n3:29500"], "n3"),
        (["--rdzv-endpoint", "n4:1"], "n4"), (["--master_addr"], None), (["--master_addr", "a;b"], None),
    ],
)  # fmt: skip
def test_the_master_of_a_distributed_run_is_near(words: list[str], host: str | None) -> None:
    found = set(cell_command.no_proxy_hosts(words, {}, {})) - set(
        cell_command.no_proxy_hosts([], {}, {})
    )
    assert found == ({host} if host else set())


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {"env": 1},
        {"env": "a\nb"},
        {"proxy": ""},
        {"no_proxy": "x"},
        {"no_proxy": ["$(id)", 1]},
    ],
)
def test_what_is_no_hook_is_not_run(told: Any) -> None:
    assert not {key: value for key, value in cell_command.valid_hooks(told).items() if value}


TOLD = {
    "for": ["hf", "proxy"],
    "env": {"hf": {"HF_ENDPOINT": "https://hf-mirror.com"}},
    "hooks": {"proxy": PROXY, "no_proxy": ["modelscope.cn"]},
}


def turned(
    agent: Agent, home: Path, verb: str, told: dict[str, Any] | None = None, status: int = 0
) -> dict[str, Any]:
    done = agent.run(
        "mirrors", verb, stdin=json.dumps(told or {}).encode(), env={"HOME": str(home)}
    )
    assert done.returncode == status, done.stderr
    return dict(json.loads(done.stdout))


STARTS = {
    "usual": {".bashrc": b"alias a=b\n"},
    "no end": {".bashrc": b"alias a=b", ".zshrc": b"x\n\n"},
    "empty": {".bashrc": b""},
    "bytes": {".bashrc": b"\xff\r\n# >>> conda\r\n"},
    "none": {},
    "profile only": {".profile": b"PATH=x\n\n\n"},
}


@pytest.mark.parametrize("start", STARTS)
def test_login_shells_get_it_and_it_is_undone_to_the_byte(
    agent: Agent, tmp_path: Path, start: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name, data in STARTS[start].items():
        (home / name).write_bytes(data)
        (home / name).chmod(0o640)
    state = turned(agent, home, "on", TOLD)
    assert state["login"]["kinds"] == ["hf", "proxy"] and len(state["login"]["sourced_by"]) == max(
        1, len(STARTS[start])
    )
    first = {
        name: (home / name).read_bytes() for name in os.listdir(home) if (home / name).is_file()
    }
    assert turned(agent, home, "on", TOLD)["login"] == state["login"]
    assert first == {name: (home / name).read_bytes() for name in first}
    for path in state["login"]["sourced_by"]:
        if start != "bytes" and not path.endswith(".zshrc"):
            words = f'. {path}; echo "$HF_ENDPOINT|$no_proxy"'
            shown = subprocess.run(
                ["bash", "--norc", "-c", words], capture_output=True, text=True, check=True
            )
            assert shown.stdout.startswith("https://hf-mirror.com|modelscope.com,localhost,")
    assert turned(agent, home, "off", {"for": ["proxy"]})["login"]["kinds"] == ["hf"]
    state = turned(agent, home, "off", {"for": ["hf", "pip", "conda", "proxy"], "env": TOLD["env"]})
    assert state["login"] == {"file": None, "kinds": [], "sourced_by": []}
    left = {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}
    assert left == STARTS[start]
    assert all(stat.S_IMODE((home / name).stat().st_mode) == 0o640 for name in left)


def test_what_a_person_adds_around_the_block_stays(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").write_bytes(b"one")
    (tmp_path / ".bashrc").symlink_to("dotfiles")
    turned(agent, tmp_path, "on", TOLD)
    with (tmp_path / "dotfiles").open("ab") as file:
        file.write(b"two\n")
    turned(agent, tmp_path, "off", {"for": list(mirrors.KINDS)})
    assert (tmp_path / ".bashrc").is_symlink() and (
        tmp_path / "dotfiles"
    ).read_bytes() == b"onetwo\n"


def test_a_start_up_file_that_is_none_is_left_alone(agent: Agent, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".profile")
    state = turned(agent, tmp_path, "on", TOLD, status=1)
    assert "no start-up file" in state["problems"][0]
    assert "must name at least one" in agent.run("mirrors", "on", stdin=b"{}").stderr.decode()


def test_off_is_off_for_cells_too(agent: Agent, tmp_path: Path) -> None:
    agent.watch(
        interval=10, job_env={"HF_ENDPOINT": "m", "HF_HOME": "h"}, job_hooks={"proxy": PROXY}
    ).sync()
    turned(agent, tmp_path, "off", {"for": ["hf", "proxy"], "env": {"hf": {"HF_ENDPOINT": "m"}}})
    script = ["sh", "-c", 'echo "$HF_ENDPOINT|$HF_HOME|$http_proxy"']
    assert log_of(agent, make_job(tmp_path / "one", script, ["a"]), 0) == "|h|\n"
    agent.watch(
        interval=10, job_env={"HF_ENDPOINT": "m", "HF_HOME": "h"}, job_hooks={"proxy": PROXY}
    ).sync()
    assert log_of(agent, make_job(tmp_path / "two", script, ["a"]), 0) == "|h|\n"
    turned(agent, tmp_path, "on", TOLD)
    assert (
        log_of(agent, make_job(tmp_path / "three", script, ["a"]), 0)
        == "https://hf-mirror.com|h|http://far:1\n"
    )
    told = {"env": {"A": "b"}, "hooks": {"env": "B=c; export B"}}
    turned(agent, tmp_path, "tell", told)
    assert (
        log_of(agent, make_job(tmp_path / "four", ["sh", "-c", 'echo "$A$B"'], ["a"]), 0) == "bc\n"
    )
