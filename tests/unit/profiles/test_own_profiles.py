"""A person's own file takes the place of the shipped one of its name, and only theirs does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rgt_tui.profiles import ProfileError, all_profiles, data_dir, load_profile, own_profile

SHIPPED = (data_dir() / "generic-ssh.toml").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    made = tmp_path / "rgt" / "profiles"
    made.mkdir(parents=True)
    return made


def write(path: Path, text: str = SHIPPED) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def test_without_one_the_shipped_one_counts(folder: Path) -> None:
    assert own_profile("generic-ssh") is None
    assert load_profile("generic-ssh").name == "Generic SSH box"


def test_ones_own_file_takes_its_place(folder: Path) -> None:
    path = write(folder / "generic-ssh.toml", SHIPPED.replace("Generic SSH box", "The lab"))
    assert load_profile("generic-ssh").name == all_profiles()["generic-ssh"].name == "The lab"
    assert own_profile("generic-ssh") == path
    assert load_profile("runpod").name == "RunPod"


def test_a_platform_that_is_not_shipped_is_known(folder: Path) -> None:
    write(folder / "lab.toml", SHIPPED.replace('id = "generic-ssh"', 'id = "lab"'))
    assert "lab" in all_profiles()
    assert load_profile("lab").id == "lab"
    with pytest.raises(ProfileError, match="did you mean 'lab'"):
        load_profile("labb")


def test_a_broken_one_is_named_and_harms_no_other(folder: Path) -> None:
    path = write(folder / "generic-ssh.toml", SHIPPED.replace("[overrides]", "[overides]"))
    with pytest.raises(
        ProfileError, match=f"{path}: overides: no such key; did you mean 'overrides'"
    ):
        load_profile("generic-ssh")
    assert load_profile("runpod").name == "RunPod"


def test_one_that_others_may_write_is_refused(folder: Path) -> None:
    path = write(folder / "generic-ssh.toml")
    path.chmod(0o666)
    with pytest.raises(ProfileError, match=r"can be written by everyone .* chmod go-w"):
        load_profile("generic-ssh")


def test_a_directory_that_others_may_write_is_refused(folder: Path) -> None:
    write(folder / "generic-ssh.toml")
    folder.chmod(0o777)
    with pytest.raises(ProfileError, match="can be written by everyone"):
        load_profile("generic-ssh")


@pytest.mark.parametrize("kind", ["fifo", "directory", "dangling"])
def test_what_is_no_file_is_refused_and_nothing_waits_for_it(folder: Path, kind: str) -> None:
    path = folder / "generic-ssh.toml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(folder / "nowhere")
    with pytest.raises(ProfileError, match=r"generic-ssh\.toml: cannot be read"):
        load_profile("generic-ssh")


def test_a_directory_that_is_none_is_said(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("no directory")
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile("generic-ssh")


def test_a_working_directory_brings_no_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative XDG_CONFIG_HOME would be another place in every repository."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "conf")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for place in ("conf/rgt/profiles", "rgt/profiles", "profiles"):
        (tmp_path / place).mkdir(parents=True)
        write(
            tmp_path / place / "generic-ssh.toml",
            SHIPPED.replace("Generic SSH box", "A stranger's"),
        )
    assert load_profile("generic-ssh").name == "Generic SSH box"
