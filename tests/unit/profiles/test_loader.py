"""A broken profile is refused with the file, the key and the nearest known name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rgt_tui.profiles.loader import ProfileError, data_dir, read_profile

GOOD = """
id = "box"
name = "Box"
kind = "ssh"
confidence = "from-docs"
top_danger = "nothing"
detach = "tmux"

[[tiers]]
name = "disk"
mounts = ["/"]

[[billing]]
verb = "stop"
native_label = "Stop"
kind = "park"
keeps = ["disk"]

[[clocks]]
what = "release"
consequence = "gone"
applies_when = "stopped"
mode = "countdown"
counts_from = "stop"

[[clocks.claims]]
after_s = 60
cited_as = "a page"

[[sources]]
fact = "all of it"
verified = "2026-06"
"""


def read(folder: Path, text: str) -> None:
    path = folder / "box.toml"
    path.write_text(text, encoding="utf-8")
    read_profile(path)


def test_a_good_file_is_read(tmp_path: Path) -> None:
    read(tmp_path, GOOD)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('detach = "tmux"', 'detatch = "tmux"', r"box\.toml: detatch: no such key; did you mean 'detach'"),
        ('top_danger = "nothing"', "", r"box\.toml: top_danger: the key is missing"),
        ('mounts = ["/"]', 'mount = ["/"]', r"tiers\[0\]\.mount: no such key; did you mean 'mounts'"),
        ('mounts = ["/"]', 'mounts = "/"', r"tiers\[0\]\.mounts: Expected `array`"),
        ('mounts = ["/"]', 'mounts = ["data"]', r"tiers\[0\]\.mounts: 'data' is not absolute"),
        ('mounts = ["/"]', 'role = "durabel"', r"tiers\[0\]\.role: 'durabel' .* did you mean 'durable'"),
        ('kind = "park"', 'kind = "prak"', r"billing\[0\]\.kind: 'prak' .* did you mean 'park'"),
        ('keeps = ["disk"]', 'keeps = ["disc"]', r"billing\[0\]\.keeps: no tier .* did you mean 'disk'"),
        ('keeps = ["disk"]', 'keeps = ["disk"]\nloses = ["disk"]', r"'disk' is both kept and lost"),
        ('mode = "countdown"', "", r"clocks\[0\]\.mode: the key is missing"),
        (
            'mode = "countdown"',
            'mode = "countdwn"',
            r"clocks\[0\]\.mode: 'countdwn' .* did you mean 'countdown'",
        ),
        (
            'counts_from = "stop"',
            "",
            r"clocks\[0\]\.counts_from: the key is missing: a countdown .* beginning",
        ),
        ('counts_from = "stop"', 'counts_from = "stopp"', r"counts_from: 'stopp' .* did you mean 'stop'"),
        ('counts_from = "stop"', 'counts_from = "stop"\nruns = "always"', r"\.runs: only a charge has it"),
        (
            'mode = "countdown"',
            'mode = "tripwire"',
            r"counts_from: only a countdown.*watched_by: the key is missing",
        ),
        ('mode = "countdown"\ncounts_from = "stop"', 'mode = "charge"', r"runs: the key is missing"),
        (
            'mode = "countdown"\ncounts_from = "stop"',
            'mode = "charge"\nruns = "stoped"',
            r"clocks\[0\]\.runs: 'stoped' .* did you mean 'stopped'",
        ),
        ("after_s = 60", "", r"clocks\[0\]\.claims: a countdown from the stop needs after_s"),
        ("after_s = 60", "after_s = -1", r"clocks\[0\]\.claims\[0\]\.after_s: -1 is no number"),
        ("after_s = 60", "after_s = inf", r"clocks\[0\]\.claims\[0\]\.after_s: inf is no number"),
        ("after_s = 60", 'after_s = "60s"', r"clocks\[0\]\.claims\[0\]\.after_s: Expected"),
        ("after_s = 60", "after = 60", r"claims\[0\]\.after: no such key; did you mean 'after_s'"),
        ('cited_as = "a page"', "", r"claims\[0\]: neither url nor cited_as"),
        (
            'cited_as = "a page"',
            'cited_as = "a page"\nverified = "June"',
            r"claims\[0\]\.verified: 'June' is not",
        ),
        ('verified = "2026-06"', 'verified = "2026-13"', r"sources\[0\]\.verified: '2026-13' is not a month"),
        ('id = "box"', 'id = "bax"', r"id: 'bax' is not the file's name 'box'"),
        ('id = "box"', 'id = "box', r"box\.toml: not TOML"),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(ProfileError, match=said):
        read(tmp_path, GOOD.replace(old, new, 1))


def test_two_tiers_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"tiers\.name: 'disk' is there twice"):
        read(tmp_path, GOOD + '\n[[tiers]]\nname = "disk"\n')


def test_sources_that_disagree_need_their_words(tmp_path: Path) -> None:
    other = '\n[[clocks.claims]]\nafter_s = 90\ncited_as = "another page"\n'
    with pytest.raises(ProfileError, match=r"clocks\[0\]\.claims: the sources disagree"):
        read(tmp_path, GOOD.replace("\n[[sources]]", f"{other}\n[[sources]]", 1))


def test_a_clock_without_a_source_is_refused(tmp_path: Path) -> None:
    claim = '\n[[clocks.claims]]\nafter_s = 60\ncited_as = "a page"\n'
    notice = GOOD.replace(claim, "").replace(
        'mode = "countdown"\ncounts_from = "stop"', 'mode = "notice"\nclaims = []'
    )
    with pytest.raises(ProfileError, match=r"clocks\[0\]\.claims: at least one source"):
        read(tmp_path, notice)


def test_a_missing_file_is_said_by_name(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.toml: cannot be read"):
        read_profile(tmp_path / "none.toml")


def test_the_data_stand_beside_the_package_or_at_the_root() -> None:
    assert data_dir().name == "profiles"
    assert (data_dir() / "autodl.toml").is_file()
