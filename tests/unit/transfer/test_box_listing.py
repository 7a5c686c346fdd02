"""Which names of a box are taken, and which are refused."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rgt_tui.transfer.copying import (
    BoxListing,
    ListingError,
    ListingReader,
    destination_path,
    folds_case,
)
from rgt_tui.transfer.copying.box_listing import size_in_trainers_list

STAMP = [5, 1, 2, 3]


def read(
    *rows: dict[str, Any], root: str = "/w", folds: bool = False, most: int = 100
) -> BoxListing:
    reader = ListingReader(most_files=most)
    files = sum("stamp" in row for row in rows)
    for row in ({"root": root}, *rows, {"end": True, "files": files}):
        reader.accept_line(json.dumps(row).encode())
    return reader.build_listing(folds=folds)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/etc/passwd", "absolute"),
        ("../x", ".."),
        ("a/../../x", ".."),
        ("..", ".."),
        ("a//b", "empty part"),
        ("./a", "empty part"),
        ("", "empty part"),
        ("a\0b", "zero byte"),
        ("n" * 256, "255 bytes"),
        ("é" * 128, "255 bytes"),
    ],
)
def test_a_name_that_leads_elsewhere_is_refused_by_name(name: str, why: str) -> None:
    listing = read(
        {"path": name, "device": 1, "stamp": STAMP}, {"path": "good", "device": 1, "stamp": STAMP}
    )
    assert [file.path for file in listing.files] == ["/w/good"]
    (refused,) = listing.refused
    assert why in refused.reason


@pytest.mark.parametrize(
    "root", ["relative", "/w/../etc", "/w//x", "/w/./x", "/.rgt-parts/x", "/a\0"]
)
def test_a_root_that_leads_elsewhere_ends_the_pull(root: str) -> None:
    with pytest.raises(ListingError, match="the box lists"):
        read(root=root)


def test_links_are_named_and_never_files() -> None:
    listing = read({"path": "latest", "link": "/etc/passwd", "outside": True})
    assert listing.files == ()
    assert listing.links == (("/w/latest", "/etc/passwd"),)


def test_what_the_box_cannot_list_is_named() -> None:
    listing = read(
        {"path": "x", "error": "Permission denied"}, {"path": ".", "error": "No such file"}
    )
    assert [(row.path, row.reason) for row in listing.refused] == [
        ("/w/x", "Permission denied"), ("/w", "No such file"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["a.pt", "b/model.SAFETENSORS", "c.ckpt", "__0_0.distcp"])
def test_a_checkpoint_of_no_bytes_is_refused(name: str) -> None:
    empty = [0, 1, 2, 3]
    listing = read(
        {"path": name, "device": 1, "stamp": empty},
        {"path": "__init__.py", "device": 1, "stamp": empty},
    )
    assert [file.path for file in listing.files] == ["/w/__init__.py"]
    assert "0 bytes" in listing.refused[0].reason


def test_names_that_differ_in_case_only_are_all_refused_where_case_does_not_count() -> None:
    rows = [
        {"path": name, "device": 1, "stamp": STAMP}
        for name in ("Best.pt", "best.pt", "ﬁn", "other", "é", "e\u0301")
    ]
    assert len(read(*rows).files) == 6
    listing = read(*rows, folds=True)
    assert [file.path for file in listing.files] == ["/w/ﬁn", "/w/other"]
    assert sorted(row.path for row in listing.refused) == sorted(
        ["/w/Best.pt", "/w/best.pt", "/w/é", "/w/e\u0301"]
    )


def test_the_destination_is_asked_whether_case_counts(tmp_path: Path) -> None:
    assert folds_case(tmp_path) is False
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_no_utf8_is_carried_by_its_bytes() -> None:
    raw = b"caf\xe9"
    listing = read(
        {"path": "caf?", "path_b64": base64.b64encode(raw).decode(), "device": 1, "stamp": STAMP}
    )
    assert os.fsencode(listing.files[0].path) == b"/w/" + raw
    assert destination_path(Path("/d"), listing.files[0].path) == os.fsdecode(b"/d/w/caf\xe9")


@pytest.mark.parametrize("coded", ["***", "YQ=", "é"])
def test_a_coded_name_that_is_none_ends_the_pull(coded: str) -> None:
    with pytest.raises(ListingError, match="base64"):
        read({"path": "x", "path_b64": coded, "device": 1, "stamp": STAMP})


def test_a_coded_name_is_checked_as_every_other() -> None:
    listing = read(
        {"path": "x", "path_b64": base64.b64encode(b"../x").decode(), "device": 1, "stamp": STAMP}
    )
    assert listing.files == ()


def test_a_list_of_more_files_than_anyone_holds_is_bounded() -> None:
    with pytest.raises(ListingError, match="more than 3 files: pull it in parts"):
        read(*({"path": f"f{number}", "device": 1, "stamp": STAMP} for number in range(4)), most=3)


def test_a_list_that_never_ends_is_bounded() -> None:
    reader = ListingReader(most_bytes=1000)
    reader.accept_line(b'{"root":"/w"}')
    with pytest.raises(ListingError, match="is too long"):
        for _ in range(1000):
            reader.accept_line(b'{"path":"x","error":"again"}')


def test_a_flood_of_refusals_and_links_is_counted_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rgt_tui.transfer.copying.box_listing.MOST_REFUSED", 2)
    rows: list[dict[str, Any]] = [{"path": "x", "error": "no"}] * 3 + [
        {"path": "l", "link": "t"}
    ] * 4
    listing = read(*rows)
    assert (len(listing.refused), len(listing.links), listing.uncounted) == (2, 2, 3)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"[" * 100_000,
        b'{"path":"x","device":1,"stamp":[1]}',
        b'{"path":"x"}',
        b'{"path":"x","stamp":[1,2,3,4]}',
        b'{"path":"x","device":1,"stamp":[1,2,3,null]}',
    ],
)
def test_a_row_that_is_none_ends_the_pull(line: bytes) -> None:
    reader = ListingReader()
    reader.accept_line(b'{"root":"/w"}')
    with pytest.raises(ListingError):
        reader.accept_line(line)


def test_a_list_that_was_cut_off_is_not_taken_for_whole() -> None:
    reader = ListingReader()
    reader.accept_line(b'{"root":"/w"}')
    reader.accept_line(b'{"path":"a","device":1,"stamp":[5,1,2,3]}')
    with pytest.raises(ListingError, match="cut off"):
        reader.build_listing(folds=False)
    with pytest.raises(ListingError, match="2 files, but 1 came"):
        reader.accept_line(b'{"end":true,"files":2}')


def test_a_file_named_twice_is_one_file() -> None:
    listing = read(
        {"path": "a", "device": 1, "stamp": STAMP},
        {"path": "a", "device": 1, "stamp": [6, 1, 2, 3]},
    )
    assert len(listing.files) == 1


def test_a_path_that_is_too_long_here_is_refused() -> None:
    with pytest.raises(ListingError, match="4096"):
        destination_path(Path("/d"), "/" + "/".join(["n" * 200] * 21))


def test_the_trainers_list_tells_a_size() -> None:
    data = b'{"format":2,"files":{"model.safetensors":{"size":77,"crc32":[]}},"digest":"x"}'
    assert size_in_trainers_list(data, "model.safetensors") == 77
    assert size_in_trainers_list(data, "other") is None
    for broken in (b"", b"[]", b'{"files":[]}', b'{"files":{"a":{"size":"x"}}}', b"[" * 100_000):
        assert size_in_trainers_list(broken, "a") is None


def test_a_file_before_any_root_ends_the_pull() -> None:
    with pytest.raises(ListingError, match="without a name"):
        ListingReader().accept_line(b'{"path":"a","device":1,"stamp":[5,1,2,3]}')
