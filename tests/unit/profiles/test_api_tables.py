"""Tables of a platform's API: how they are read, and when they are too old."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from rgt_tui.cli import main
from rgt_tui.profiles import (
    ApiField,
    ProfileError,
    load_api_tables,
    old_tables,
    parse_field,
    parse_table,
)

HEAD = 'platform = "x"\nsource = "https://x.example/docs"\nverified = "2026-08"\n'
CALL = '[[calls]]\nmethod = "GET"\npath = "/boxes/{id}"\nanswers = { 200 = "Box" }\n'
BOX = '[types.Box]\nid = "string"\n'


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("string", ApiField("string")),
        ("number in $/h", ApiField("number", unit="$/h")),
        (
            "integer in GB or null, optional",
            ApiField("integer", unit="GB", required=False, nullable=True),
        ),
        ("list of Pod", ApiField("list", ApiField("Pod"))),
        ("map of string, optional", ApiField("map", ApiField("string"), required=False)),
        ("one of A|B or null", ApiField("one of", choices=("A", "B"), nullable=True)),
        ("list of one of a|b", ApiField("list", ApiField("one of", choices=("a", "b")))),
    ],
)
def test_a_field_in_words(text: str, field: ApiField) -> None:
    assert parse_field(text) == field


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "missing required field `platform`"),
        ("platform =", "api/x.toml: Invalid value"),
        (HEAD + CALL, "calls.GET /boxes/{id}.answers.200: 'Box' is not one of string"),
        (
            HEAD + CALL + '[types.Box]\nid = "sting"\n',
            "types.Box.id: 'sting' is not one of .*did you mean 'string'",
        ),
        (
            HEAD + CALL + '[types.Box]\nid = "a number"\n',
            "'a number' is neither a scalar nor the name of a type",
        ),
        (HEAD + CALL + BOX + "odd = 1\n", "types.Box.odd|Expected `str`"),
        (HEAD.replace('"x"', '"y"') + CALL + BOX, "platform: 'y' is not the file's name 'x'"),
        (HEAD.replace("2026-08", "August") + CALL + BOX, "verified: 'August' is not a month"),
        (HEAD.replace("https://", "") + CALL + BOX, "source: 'x.example/docs' is not an address"),
        (HEAD + "speed = 1\n" + CALL + BOX, "unknown field `speed`"),
    ],
)
def test_a_mistake_is_named(text: str, words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        parse_table(text.encode(), "x")


def test_the_call_with_fewer_variables_counts() -> None:
    more = CALL.replace("{id}", "all").replace("200", "201")
    table = parse_table((HEAD + CALL + more + BOX).encode(), "x")
    found = [
        table.find_call("GET", path) for path in ("/boxes/all", "/boxes/7", "/boxes/7/8", "/boxes/")
    ]
    assert [call and list(call.answers) for call in found] == [["201"], ["200"], None, None]
    assert table.find_call("POST", "/boxes/7") is None


@pytest.mark.parametrize("head", [HEAD, HEAD + "any_slash = true\n"])
def test_a_slash_at_the_end_is_another_path_unless_the_table_says_otherwise(head: str) -> None:
    table = parse_table((head + CALL + BOX).encode(), "x")
    assert table.find_call("GET", "/boxes/7") is not None
    assert (table.find_call("GET", "/boxes/7/") is not None) == table.any_slash


def test_a_table_is_old_after_120_days_and_by_each_month_of_its_calls() -> None:
    table = load_api_tables()["runpod"]
    months = sorted({month for month, _ in table.iterate_verified_months()})
    assert len(months) > 1
    first = date.fromisoformat(f"{months[0]}-01")
    assert list(old_tables(["runpod", "slurm"], first + timedelta(days=120))) == []
    found = list(old_tables(["runpod"], first + timedelta(days=121)))
    assert all(
        not one.fails and months[0] in one.words and "121 days ago" in one.words for one in found
    )
    assert found


def test_the_check_of_profiles_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["profiles", "check", "runpod", "--as-of", "2027-06-01"])
    out = capsys.readouterr().out
    assert "warn  runpod: table of the API, " in out
    assert "in 2026-08: compare again (https://docs.runpod.io/api-reference-v2/overview)" in out


def test_the_check_of_all_profiles_names_every_old_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["profiles", "check", "--as-of", "2099-01-01"])
    out = capsys.readouterr().out
    assert len(load_api_tables()) >= 4
    assert [
        name for name in load_api_tables() if f"warn  {name}: table of the API, " not in out
    ] == []
