"""`rgt profiles`, run as a person does: list, show, check, clocks, and the spellings that were there before."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rgt_tui.cli import main
from rgt_tui.profiles import all_profiles, data_dir, load_profile, seen_at

AS_OF = ("--as-of", "2026-11-22")


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    places = {name: str(tmp_path / name) for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME")}
    for name, place in places.items():
        monkeypatch.setenv(name, place)
    return places


@pytest.fixture
def rgt(env: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str) -> Done:
        try:
            code = main(["profiles", *words])
        except SystemExit as end:
            code = int(end.code or 0)
        return Done(code, *capsys.readouterr())

    return run


def test_list_and_the_bare_command_name_every_platform(rgt: Run) -> None:
    done = rgt("list", "--json")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == sorted(all_profiles())
    assert rgt().stdout == rgt("list").stdout
    assert done.returncode == 0


def test_show_prints_all_and_counts_as_read(rgt: Run, env: dict[str, str]) -> None:
    profile = load_profile("runpod")
    told = json.loads(rgt("show", "runpod", "--json").stdout)
    assert told["overrides"]["data_dir"] == "/workspace"
    assert seen_at(profile, env) is None, "JSON is for programs"
    done = rgt("show", "runpod")
    assert profile.top_danger in done.stdout
    assert profile.gotchas[-1].symptom in done.stdout
    assert seen_at(profile, env) is not None
    assert rgt("runpod").stdout == done.stdout, "as it was typed before"


def test_what_cannot_be_recorded_is_said_and_the_page_is_shown(
    rgt: Run, env: dict[str, str]
) -> None:
    Path(env["XDG_STATE_HOME"]).write_text("no directory")
    done = rgt("show", "runpod")
    assert "could not record" in done.stderr
    assert load_profile("runpod").top_danger in done.stdout
    assert done.returncode == 0


def test_clocks(rgt: Run) -> None:
    rows = [json.loads(line) for line in rgt("clocks", "--json").stdout.splitlines()]
    assert len(rows) == sum(len(profile.clocks) for profile in all_profiles().values())
    assert all(row["mode"] for row in rows)
    assert "auto-release of the stopped box" in rgt("clocks", "autodl").stdout


def test_check_passes_the_shipped_profiles_and_each_fact_is_dated(rgt: Run) -> None:
    done = rgt("check", *AS_OF)
    assert done.returncode == 0, done.stdout
    assert "never dated" not in done.stdout
    told = json.loads(rgt("check", "runpod", *AS_OF, "--json").stdout)
    assert (told["ok"], told["profiles"], told["as_of"], told["shortfalls"]) == (
        True,
        1,
        "2026-11-22",
        [],
    )


def test_check_fails_for_what_is_older_than_allowed(rgt: Run) -> None:
    done = rgt("check", "runpod", "--as-of", "2028-01-01", "--max-age", "12")
    assert done.returncode == 1
    assert "FAIL  runpod: billing.stop: last looked at 17 months ago, in 2026-08" in done.stdout
    assert rgt("check", "runpod", "--as-of", "2028-01-01").returncode == 0


def test_check_fails_for_ones_own_file_without_a_source(rgt: Run, env: dict[str, str]) -> None:
    folder = Path(env["XDG_CONFIG_HOME"]) / "rgt" / "profiles"
    folder.mkdir(parents=True)
    shipped = (data_dir() / "runpod.toml").read_text(encoding="utf-8")
    own = folder / "runpod.toml"
    own.write_text(shipped.replace('sources = ["storage-types", "billing', "").replace(
        'sources = ["pricing", "manage-pods", "rest-v2"]\n', ""), encoding="utf-8")  # fmt: skip
    own.chmod(0o600)
    done = rgt("check", *AS_OF)
    assert done.returncode == 1
    assert "FAIL  runpod: billing.stop: no source" in done.stdout
    assert "your own file" in rgt("list").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show",), "which platform?"),
        (("show", "runpood"), "did you mean 'runpod'"),
        (("runpood",), "did you mean 'runpod'"),
        (("list", *AS_OF), "are for rgt profiles check"),
        (("runpod", "--max-age", "3"), "are for rgt profiles check"),
        (("check", "--as-of", "2026-11"), "is not a day"),
        (("check", "--max-age", "-1"), "--max-age"),
    ],
)
def test_what_cannot_be_meant_is_refused(rgt: Run, words: tuple[str, ...], said: str) -> None:
    done = rgt(*words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
