"""What is asked for as asyncssh is imported: ruled out only where nothing can have it, and only for asyncssh."""

from __future__ import annotations

import ctypes.util
from pathlib import Path

import pytest

from rgt_tui.ssh import native_libraries
from rgt_tui.ssh.native_libraries import ImportsAsyncssh, fast_library_search, may_be_there

UNHEARD_OF = "rgt-unheard-of"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return a cache of the loader that names one library."""
    made = tmp_path / "ld.so.cache"
    made.write_bytes(b"glibc-ld.so.cache1.1\0libnettle.so.8\0/usr/lib/libnettle.so.8\0")
    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names that the standard library is asked for, which finds each of them."""
    names: list[str] = []

    def find(name: str) -> str:
        names.append(name)
        return f"lib{name}.so.1"

    monkeypatch.setattr(ctypes.util, "find_library", find)
    return names


def test_what_the_loader_knows_may_be_there(cache: Path) -> None:
    assert may_be_there("nettle", str(cache))
    assert not may_be_there(UNHEARD_OF, str(cache))


def test_without_a_cache_nothing_is_ruled_out(tmp_path: Path) -> None:
    assert may_be_there(UNHEARD_OF, str(tmp_path / "none"))


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LIBRARY_PATH"])
def test_what_lies_where_the_environment_says_may_be_there(
    variable: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"lib{UNHEARD_OF}.so").touch()
    monkeypatch.setenv(variable, f"/nowhere::{tmp_path}")
    assert may_be_there(UNHEARD_OF, str(cache))
    monkeypatch.setenv(variable, "/nowhere")
    assert not may_be_there(UNHEARD_OF, str(cache))


def test_what_is_not_there_is_ruled_out_and_what_may_be_is_looked_for(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_libraries, "may_be_there", lambda name: name == "nettle")
    with fast_library_search():
        assert ctypes.util.find_library("oqs") is None
        assert ctypes.util.find_library("nettle") == "libnettle.so.1"
    assert asked == ["nettle"]


def test_who_asks_for_anything_else_meanwhile_is_answered_as_ever(
    asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_libraries, "may_be_there", lambda name: False)
    with fast_library_search():
        assert ctypes.util.find_library("nvidia-ml") == "libnvidia-ml.so.1"


def test_the_way_to_ask_is_put_back_where_the_import_fails(asked: list[str]) -> None:
    find = ctypes.util.find_library
    with pytest.raises(ImportError), fast_library_search():
        assert ctypes.util.find_library is not find
        raise ImportError("broken")
    assert ctypes.util.find_library is find


def test_no_other_module_is_found_by_it() -> None:
    assert ImportsAsyncssh().find_spec("asyncssh.crypto.pq") is None
    assert ImportsAsyncssh().find_spec("json") is None
