"""Lines of keys in TOML: against what the standard library reads, and against texts whose lines are known."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgt_tui.fleet.config.loading import KeyPath, Positions

TRICKY = '''\
# [boxes.not] a comment
title = "a # b [c] = 'd' \\" e"  # host = 1
"quoted key" = 1
'lit.eral' = 2
multi = """
[boxes.inside]
host = "no" \\""" still"""
literal = \'\'\'
key = [1, 2\'\'\'
site."google.com".x = true
when = 1979-05-27 07:32:00Z
numbers = [
  1, # one ]
  [2, 3],
  { a = 1, b.c = [4] },
]
empty = []
none = {}

[ boxes . lab ]
host = "x"
  port=3
tiers = { "/" = "system", "/data" = "data" }

[[sinks]]
kind = "a"
[sinks.deep]
x = 1
[[sinks]]
kind = "b"
[[sinks.more]]
y = 1
[[sinks.more]]
y = 2
[boxes.lab.provider]
kind = "k"
'''

KNOWN: dict[KeyPath, int] = {
    ("title",): 2,
    ("quoted key",): 3,
    ("lit.eral",): 4,
    ("multi",): 5,
    ("literal",): 8,
    ("site", "google.com", "x"): 10,
    ("when",): 11,
    ("numbers",): 12,
    ("numbers", 0): 13,
    ("numbers", 1): 14,
    ("numbers", 1, 1): 14,
    ("numbers", 2, "b", "c"): 15,
    ("empty",): 17,
    ("boxes", "lab"): 20,
    ("boxes", "lab", "host"): 21,
    ("boxes", "lab", "port"): 22,
    ("boxes", "lab", "tiers", "/data"): 23,
    ("sinks",): 25,
    ("sinks", 0): 25,
    ("sinks", 0, "kind"): 26,
    ("sinks", 0, "deep", "x"): 28,
    ("sinks", 1): 29,
    ("sinks", 1, "kind"): 30,
    ("sinks", 1, "more", 0, "y"): 32,
    ("sinks", 1, "more", 1): 33,
    ("sinks", 1, "more", 1, "y"): 34,
    ("boxes", "lab", "provider"): 35,
    ("boxes", "lab", "provider", "kind"): 36,
}


def flat(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    if path:
        yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, item in items:
        yield from flat(item, (*path, key))


def test_every_key_that_tomllib_reads_is_found_and_no_other() -> None:
    assert Positions(TRICKY).key_paths == set(flat(tomllib.loads(TRICKY)))


@pytest.mark.parametrize(("path", "line"), KNOWN.items(), ids=str)
def test_known_lines(path: KeyPath, line: int) -> None:
    assert Positions(TRICKY).line_number_of(path) == line


def test_what_is_not_there_has_the_line_of_what_is_around_it() -> None:
    positions = Positions(TRICKY)
    assert positions.line_number_of(("boxes", "lab", "mounts", 3)) == 20
    assert positions.line_number_of(("nothing",)) == 1


def test_windows_line_ends() -> None:
    assert (
        Positions(TRICKY.replace("\n", "\r\n")).line_number_of(("boxes", "lab", "provider", "kind"))
        == 36
    )


BARE = st.text("abcXYZ019-_", min_size=1, max_size=4)
KEYS = BARE | BARE.map(lambda key: f'"{key}.#[]="') | BARE.map(lambda key: f"'{key} \"'")
VALUES = st.recursive(
    st.sampled_from(
        ["1", "true", '"x # ] } \\" y"', "'[a] = \"b\"'", '"""\na = 1\n[b]\n"""', "'''''a\n'''''", "1979-05-27"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[\n " + ", # ]\n ".join(items) + "\n]" if items else "[ ]")
        | st.lists(st.tuples(BARE, inner), max_size=3, unique_by=lambda pair: pair[0]).map(
            lambda pairs: "{ " + ", ".join(f"{key} = {value}" for key, value in pairs) + " }"
        )
    ),
    max_leaves=6,
)  # fmt: skip
LINES = st.lists(
    st.tuples(KEYS, VALUES) | st.tuples(st.just("["), KEYS) | st.tuples(st.just("[["), KEYS),
    max_size=12,
)


@given(LINES)
def test_any_text_that_tomllib_reads(lines: list[tuple[str, str]]) -> None:
    text = ""
    for left, right in lines:
        more = {"[": f"[{right}]\n", "[[": f"[[ {right} ]] # x\n"}.get(
            left, f"  {left} = {right}\n"
        )
        try:
            tomllib.loads(text + more)
        except tomllib.TOMLDecodeError:
            continue
        text += more
    positions = Positions(text)
    assert positions.key_paths == set(flat(tomllib.loads(text)))
    lines_of_text = text.split("\n")
    for path in positions.key_paths:
        if isinstance(path[-1], str):
            assert path[-1].strip("\" '") in lines_of_text[positions.line_number_of(path) - 1]
