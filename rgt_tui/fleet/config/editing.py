"""Write fleet files, and edit them without changing what a person wrote."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rgt_tui import files
from rgt_tui.fleet.config.loading import (
    FleetConfig,
    FleetFileError,
    FleetFileSource,
    Positions,
    parse_fleet,
    read_source,
)
from rgt_tui.fleet.config.value_checks import NAME
from rgt_tui.language import translate
from rgt_tui.model import BoxSpec


def _parse_unchanged(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FleetFileError(
            translate(
                "{path} is not valid TOML and was not changed: {error}", path=path, error=error
            )
        ) from error


def dump_fleet(specs: Sequence[BoxSpec]) -> str:
    """Return a fleet file for these boxes."""
    tables = {
        spec.name: {
            key: value
            for key, value in msgspec.to_builtins(spec).items()
            if key not in ("name", "untrusted") and value not in (None, [], {}, ())
        }
        for spec in specs
    }
    for table in tables.values():
        if "kubectl" in table:
            del table["host"]  # follows from it
        for inner in ("provider", "asked", "kubectl"):
            if inner in table:
                table[inner] = {
                    key: value for key, value in table[inner].items() if value is not None
                }
    return _format_toml({"boxes": tables})


def box_table(name: str, values: Mapping[str, Any]) -> str:
    """Return the table of one box, with only the given keys."""
    return _format_toml({"boxes": {name: dict(values)}}).lstrip("\n")


def with_boxes(path: Path, text: str, tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of a fleet file with boxes appended; everything else stays byte for byte.

    Args:
        path: Named in error messages.
        text: The present text; empty for a new file.
        tables: Name → keys of each new box.

    Raises:
        FleetFileError: a name exists or is invalid, or the file or the result is broken.
    """
    before = _parse_unchanged(path, text)
    present = before.get("boxes", {})
    if not isinstance(present, dict):
        line = Positions(text).line_number_of(("boxes",))
        raise FleetFileError(
            translate(
                "{path}:{line}: boxes must be tables; write each box as [boxes.NAME]",
                path=path,
                line=line,
            )
        )
    for name in tables:
        if not NAME.fullmatch(name):
            raise FleetFileError(
                translate(
                    "{name!r} is not a valid box name; use letters, digits, '.', '_' and '-'",
                    name=name,
                )
            )
        if name in present:
            line = Positions(text).line_number_of(("boxes", name))
            raise FleetFileError(
                translate(
                    "{path}:{line}: boxes.{name} already exists; choose another name, or edit it",
                    path=path,
                    line=line,
                    name=name,
                )
            )
    newline = "\r\n" if "\r\n" in text else "\n"
    if not text or text.endswith("\n"):
        glue = ""
    else:
        glue = newline
    added = "".join(f"\n{box_table(name, values)}" for name, values in tables.items())
    if not text.strip():
        added = added.lstrip("\n")
    result = text + glue + added.replace("\n", newline)
    try:
        after = tomllib.loads(result)
    except tomllib.TOMLDecodeError as error:
        line = Positions(text).line_number_of(("boxes",))
        raise FleetFileError(
            translate(
                "{path}:{line}: a table cannot be added here ({error}); write each box as "
                "[boxes.NAME]",
                path=path,
                line=line,
                error=error,
            )
        ) from error
    assert {**present, **{name: after["boxes"][name] for name in tables}} == after["boxes"]
    parse_fleet(path, result)
    return result


def without_box(path: Path, text: str, name: str) -> str:
    """Return the text of a fleet file without the tables of one box; comments above them stay.

    Raises:
        FleetFileError: it has no such box, or the box is not written as tables of its own.
    """
    before = _parse_unchanged(path, text)
    if name not in before.get("boxes", {}):
        raise FleetFileError(translate("{path} has no box {name!r}", path=path, name=name))
    line = Positions(text).line_number_of(("boxes", name))
    quoted = "|".join(re.escape(form) for form in (name, f'"{name}"', f"'{name}'"))
    own = re.compile(rf"[ \t]*\[[ \t]*boxes[ \t]*\.[ \t]*(?:{quoted})[ \t]*[\].]")
    kept: list[str] = []
    tail: list[str] = []
    inside = False
    for row in text.splitlines(keepends=True):
        if own.match(row):
            inside, tail = True, []
        elif inside and re.match(r"[ \t]*\[", row):
            inside = False
            kept += tail
        if not inside:
            kept.append(row)
        elif row.strip() and not row.lstrip().startswith("#"):
            tail = []
        else:
            tail.append(row)  # comments that belong to the next table
    result = "".join(kept)
    del before["boxes"][name]
    try:
        same = tomllib.loads(result) in (
            before,
            {key: value for key, value in before.items() if key != "boxes"},
        )
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise FleetFileError(
            translate(
                "{path}:{line}: boxes.{name} is not a separate table; remove it by hand",
                path=path,
                line=line,
                name=name,
            )
        )
    return result


def add_boxes(
    path: Path,
    tables: Mapping[str, Mapping[str, Any]],
    written: Callable[[FleetFileSource | None, FleetFileSource], None] = lambda before, after: None,
) -> FleetConfig:
    """Add boxes to the fleet file at `path`, which need not exist: all of them or none.

    A lock excludes every other rgt meanwhile.

    Args:
        path: The file.
        tables: Name → keys of each new box.
        written: Called with the old content (None = no file) and the new one, while the lock is
            held.

    Raises:
        FleetFileError: as `with_boxes`, or the file cannot be read or written; it is then
            unchanged.
    """
    return parse_fleet(
        path, rewrite_file(path, lambda text: with_boxes(path, text, tables), written)
    )


def remove_box(
    path: Path,
    name: str,
    written: Callable[[FleetFileSource | None, FleetFileSource], None] = lambda before, after: None,
) -> None:
    """Remove a box from the fleet file at `path`; everything else stays byte for byte.

    Args:
        path: The file.
        name: The box.
        written: As for `add_boxes`.

    Raises:
        FleetFileError: as `without_box`, or the file cannot be read or written; it is then
            unchanged.
    """
    rewrite_file(path, lambda text: without_box(path, text, name), written)


def rewrite_file(
    path: Path,
    change: Callable[[str], str],
    written: Callable[[FleetFileSource | None, FleetFileSource], None],
) -> str:
    """Change the text of the file at `path`; return the new one.

    A lock excludes every other rgt meanwhile.

    Args:
        path: The file.
        change: Called with the present text, empty if there is no file; if it raises, the file is
            unchanged.
        written: Called with the old content (None = no file) and the new one, while the lock is
            held.

    Raises:
        FleetFileError: the file cannot be read or written; it is then unchanged.
    """
    try:
        with _locked_folder(path):
            if path.exists():
                before = read_source(path)
            else:
                before = None
            if before is None:
                text = ""
            else:
                text = before.data.decode("utf-8")
            # Some editors write a BOM; TOML has none.
            mark = ""
            if text.startswith("\ufeff"):
                mark = "\ufeff"
            result = change(text.removeprefix(mark))
            write_atomically(path, mark + result)
            written(before, FleetFileSource(path, path.resolve(), (mark + result).encode()))
    except OSError as error:
        raise FleetFileError(
            translate("cannot write {path}: {strerror}", path=path, strerror=error.strerror)
        ) from error
    except UnicodeDecodeError as error:
        raise FleetFileError(
            translate("{path} is not UTF-8 text (byte {start})", path=path, start=error.start)
        ) from error
    return result


@contextlib.contextmanager
def _locked_folder(path: Path) -> Iterator[None]:
    """Lock out every other rgt that would write in the directory of `path`.

    The lock is on the directory itself and leaves no file.
    """
    folder = Path(os.path.realpath(path)).parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            files.lock_file(handle, files.SECONDS)
        except TimeoutError:
            raise
        except OSError:
            pass  # some network file systems have no locks
        yield
    finally:
        os.close(handle)


def write_atomically(path: Path, text: str, *, exclusive: bool = False) -> None:
    """Write `text` to `path` atomically, with the permissions of the existing file.

    Args:
        path: The file; a symbolic link is followed, not replaced. Its directory is created.
        text: The complete content.
        exclusive: Fail if the file exists.

    Raises:
        OSError: it cannot be written, or is a dangling link; nothing has changed. A dangling link
            is refused because its owner would choose which file is created where.
    """
    target = Path(os.path.realpath(path))  # `resolve` raises another error for circular links
    if path.is_symlink() and not target.exists():
        raise FileExistsError(
            errno.EEXIST, translate("it is a link to {target}, which does not exist", target=target)
        )
    # Independent of the umask: write access to the directory means control of the file.
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    if target.exists():
        mode = target.stat().st_mode & 0o7777
    else:
        mode = 0o644
    # Not the pid: machines that share a home directory may have the same one.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        if exclusive:
            os.link(temporary, target)  # fails when the file exists, which a rename would not
        else:
            temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)


def _format_toml(value: Mapping[str, Any], prefix: str = "") -> str:
    lines = [
        f"{_format_key(key)} = {_format_value(item)}"
        for key, item in value.items()
        if not isinstance(item, dict)
    ]
    text = "\n".join(lines) + ("\n" if lines else "")
    for key, item in value.items():
        if isinstance(item, dict):
            path = f"{prefix}{_format_key(key)}"
            inner = _format_toml(item, path + ".")
            text += (
                f"\n[{path}]\n" if any(not isinstance(v, dict) for v in item.values()) else ""
            ) + inner
    return text


def _format_key(key: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_-]+", key):
        return key
    return msgspec.json.encode(key).decode()


def _format_value(value: Any) -> str:
    # JSON's strings, numbers, booleans and arrays of strings are valid TOML, except the character
    # DEL.
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_format_value(item) for item in value)}]"
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def with_entry(path: Path, text: str, name: str, key: str, entry: str) -> str:
    """Return the text of a fleet file with an entry in a list of a box; unchanged if it is there.

    Args:
        path: Named in error messages.
        text: The present text.
        name: The box.
        key: The list, such as ``jobs``.
        entry: What to add. It becomes the first entry; existing entries and comments stay.

    Raises:
        FleetFileError: the file is broken, or the box is not a table of its own; the message says
            what to write by hand.
    """
    before = _parse_unchanged(path, text)
    table = before.get("boxes", {}).get(name)
    if not isinstance(table, dict):
        raise FleetFileError(translate("{path} has no box {name!r}", path=path, name=name))
    shared = before.get("defaults", {}).get(key, [])
    present = table.get(key, shared)
    if entry in present:
        return text
    word = msgspec.json.encode(entry).decode()
    wanted: dict[str, Any] = {**table, key: [entry, *present]}
    rows = text.splitlines(keepends=True)
    places = Positions(text)
    if key in table:
        line = places.line_number_of(("boxes", name, key))
    else:
        line = places.line_number_of(("boxes", name))
    if key in table:
        opening = re.compile(rf"([ \t]*\"?{re.escape(key)}\"?[ \t]*=[ \t]*\[)")
        rows[line - 1] = opening.sub(lambda match: f"{match[1]}{word}, ", rows[line - 1], count=1)
    else:
        if rows[line - 1].endswith("\r\n"):
            end = "\r\n"
        else:
            end = "\n"
        if rows[line - 1].endswith("\n"):
            glue = ""
        else:
            glue = end
        entries = ", ".join(msgspec.json.encode(one).decode() for one in wanted[key])
        added = f"{key} = [{entries}]{end}"
        # A box whose only table is one of its keys, such as [boxes.lm.kubectl], has no header.
        inner = re.match(r"[ \t]*\[[ \t]*(.*\..*)\.[\w-]+[ \t]*\]", rows[line - 1])
        if inner is None:
            rows[line - 1] += glue + added
        else:
            rows[line - 1] = f"[{inner[1]}]{end}{added}{end}{rows[line - 1]}"
    result = "".join(rows)
    try:
        same = tomllib.loads(result) == {**before, "boxes": {**before["boxes"], name: wanted}}
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise FleetFileError(
            translate(
                "{path}:{line}: boxes.{name} is not a separate table: add {word} to its {key} by "
                "hand",
                path=path,
                line=line,
                name=name,
                word=word,
                key=key,
            )
        )
    parse_fleet(path, result)
    return result


def add_entry(
    path: Path,
    name: str,
    key: str,
    entry: str,
    written: Callable[[FleetFileSource | None, FleetFileSource], None] = lambda before, after: None,
) -> bool:
    """Add an entry to a list of a box in the fleet file at `path`, under the same lock.

    Args:
        path: The file.
        name: The box.
        key: The list.
        entry: What to add.
        written: As for `rgt_tui.fleet.config.editing.add_boxes`.

    Returns:
        Whether it was added: False = it was there already.

    Raises:
        FleetFileError: as `with_entry`, or the file cannot be read or written; it is then
            unchanged.
    """
    changed: list[bool] = []

    def insert_entry(text: str) -> str:
        result = with_entry(path, text, name, key, entry)
        changed.append(result != text)
        return result

    rewrite_file(path, insert_entry, written)
    return changed[-1]
