"""Which fleet file is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.fleet.config import find_place


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "project" / "deep" / "er").mkdir(parents=True)
    return tmp_path / "home"


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def find(home: Path, start: Path, named: str | None = None, **env: str) -> Path | None:
    place = find_place(named, {"HOME": str(home), **env}, start)
    return place and place.path


def test_what_is_named_counts_first_and_need_not_exist(home: Path) -> None:
    put(home / "project" / "rgt.toml")
    assert find(home, home / "project", "x.toml", RGT_FLEET="y.toml") == Path("x.toml")
    assert find(home, home / "project", None, RGT_FLEET="y.toml") == Path("y.toml")
    assert find(home, home / "project", None, RGT_FLEET="") == home / "project" / "rgt.toml"


def test_the_project_is_searched_upwards_to_the_root_of_its_git_tree(home: Path) -> None:
    deep = home / "project" / "deep" / "er"
    outer = put(home / "rgt.toml")
    assert find(home, deep) == outer
    (home / "project" / ".git").mkdir()
    assert find(home, deep) is None
    inner = put(home / "project" / "rgt.toml")
    assert find(home, deep) == inner
    nearest = put(deep / "rgt.toml")
    assert find(home, deep) == nearest


def test_a_stranger_s_file_above_the_working_directory_is_not_taken(
    home: Path, tmp_path: Path
) -> None:
    put(tmp_path / "rgt.toml")
    (tmp_path / "elsewhere").mkdir()
    assert find(home, tmp_path / "elsewhere") is None
    assert find(home, tmp_path) == tmp_path / "rgt.toml"


def test_the_person_s_own_file_comes_last(home: Path, tmp_path: Path) -> None:
    own = put(home / ".config" / "rgt" / "fleet.toml")
    assert find(home, home / "project") == own
    xdg = put(tmp_path / "xdg" / "rgt" / "fleet.toml")
    assert find(home, home / "project", None, XDG_CONFIG_HOME=str(tmp_path / "xdg")) == xdg
    project = put(home / "project" / "rgt.toml")
    assert find(home, home / "project") == project


def test_a_directory_of_that_name_is_no_file(home: Path) -> None:
    (home / "project" / "rgt.toml").mkdir()
    assert find(home, home / "project") is None


def test_a_relative_config_directory_would_be_another_one_everywhere(
    home: Path, tmp_path: Path
) -> None:
    put(tmp_path / "conf" / "rgt" / "fleet.toml")
    own = put(home / ".config" / "rgt" / "fleet.toml")
    assert find(home, tmp_path, None, XDG_CONFIG_HOME="conf") == own


def test_only_a_file_that_lies_there_may_be_anybody_s(home: Path) -> None:
    env = {"HOME": str(home)}
    put(home / ".config" / "rgt" / "fleet.toml")
    own = find_place(None, env, home / "project")
    assert own is not None
    assert not own.lies_there
    put(home / "project" / "rgt.toml")
    found, named = (
        find_place(None, env, home / "project"),
        find_place("project/rgt.toml", env, home),
    )
    assert found is not None
    assert named is not None
    assert (found.lies_there, named.lies_there) == (True, False)
