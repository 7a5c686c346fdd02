"""Fleet files that a person has reviewed and trusts, by path and content hash, like direnv.

A file found in the working tree may have come with a stranger's repository. It could run programs
(a sink, ``ProxyCommand`` of an ssh_config) and send keys anywhere. Until it is trusted, almost all
of it is ignored, see `restricted`.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from rgt_tui.files import find_fault, locked_file, open_regular, replace_file, state_directory
from rgt_tui.fleet.config.loading import FleetConfig, FleetFileError, FleetFileSource, parse_fleet
from rgt_tui.language import translate
from rgt_tui.model import AlertSettings, BoxSpec, FrozenStruct, SinkSettings
from rgt_tui.ssh import NO_AGENT, NO_FILE, expand_path

replace = msgspec.structs.replace

KEPT = ("name", "host", "per_hour", "currency")
"""Keys of a box that apply although the file is not trusted; all others are ignored."""
REVIEWED_ONCE = (
    "per_hour", "currency", "asked", "mounts", "jobs", "logs", "runs", "pattern", "interval",
)  # fmt: skip
"""Keys of a box that may change in a trusted file without another review: what to watch, and its
price. Every other key decides which programs run, where a key is sent, or which files a destroy may
delete."""
VERSION = 1
MAX_BYTES = 64 << 20
MAX_BESIDE = 1 << 20
"""A larger file is compared only by hash; its text is not stored."""


class SeenFile(FrozenStruct):
    """The content of one file when it was read."""

    sha256: str
    """Empty = it did not exist or could not be read."""
    text: str = ""
    """Stored for the next comparison; empty if it is not text."""


class TrustedEntry(FrozenStruct):
    """A trusted fleet file."""

    file: SeenFile
    at: float
    """Client clock when it was trusted."""
    beside: dict[str, SeenFile] = {}
    """Absolute path → content of the files in the same tree that the fleet file names. They
    also decide which programs run."""


class TrustBook(FrozenStruct):
    """All trusted files."""

    version: int = VERSION
    files: dict[str, TrustedEntry] = {}
    """Absolute path → entry."""


def default_path(env: Mapping[str, str]) -> Path:
    """Return the file that stores the trusted files."""
    return state_directory(env) / "trust.json"


def read_book(path: Path) -> TrustBook:
    """Read the list of trusted files.

    Raises:
        FleetFileError: it cannot be read or is damaged, or others may write it or its directory.
            Nothing is trusted then.
    """
    try:
        book_file = open_regular(path, follow=False)
    except FileNotFoundError:
        return TrustBook()
    except OSError as error:
        raise FleetFileError(
            translate(
                "cannot read {path}, the list of trusted files: {strerror}",
                path=path,
                strerror=error.strerror,
            )
        ) from error
    with book_file as file:
        # The directory, too: who may write it can replace the list.
        wrong = find_fault(path, os.fstat(file.fileno()), file.fileno()) or find_fault(
            path.parent, path.parent.stat()
        )
        if wrong is not None:
            raise FleetFileError(
                translate(
                    "{words}, so no file is trusted: {cure}", words=wrong.words, cure=wrong.cure
                )
            )
        data = file.read(MAX_BYTES)
    try:
        book = msgspec.json.decode(data, type=TrustBook)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FleetFileError(
            translate(
                "{path} is damaged ({error}), so no file is trusted: remove it",
                path=path,
                error=error,
            )
        ) from error
    # Not read in part: an unknown field could be a restriction.
    if book.version > VERSION:
        raise FleetFileError(
            translate("{path} was written by a newer rgt: update this one", path=path)
        )
    return book


def build_entry(
    source: FleetFileSource, config: FleetConfig, env: Mapping[str, str], now: float | None = None
) -> TrustedEntry:
    """Return an entry with the fleet file as read and the current files that it refers to."""
    beside = {str(path): _read_seen(path) for path in _list_named_files(source, config, env)}
    return TrustedEntry(
        SeenFile(_hash_data(source.data), source.text), time.time() if now is None else now, beside
    )


def describe_difference(known: TrustedEntry | None, now: TrustedEntry) -> str | None:
    """Return how a file differs from its trusted version, as text; None = it does not."""
    if known is None:
        return translate("is not trusted")
    if known.file.sha256 != now.file.sha256:
        acting = _acting_changes(known.file.text, now.file.text)
        if acting is None:
            return translate("has changed since it was trusted")
        if acting:
            return translate(
                "has changed since it was trusted ({acting}{more})",
                acting=", ".join(acting[:4]),
                more=", …" * (len(acting) > 4),
            )
    for path, seen in now.beside.items():
        # "?" is no hash, so a file that was not named before always differs.
        if known.beside.get(path, SeenFile("?")).sha256 != seen.sha256:
            return translate("names {path}, which has changed since it was trusted", path=path)
    return None


def _acting_changes(before: str, now: str) -> list[str] | None:
    """Return the changed keys of a trusted file that need another review; None = not comparable."""
    try:
        old, new = (parse_fleet(Path(), text) for text in (before, now))
    except FleetFileError:
        return None
    known = {spec.name: spec for spec in old.boxes}
    keys = [key for key in BoxSpec.__struct_fields__ if key not in REVIEWED_ONCE]
    changes = []
    for spec in new.boxes:
        was = known.get(spec.name)
        # A new box is a new host to log in to.
        if was is None:
            changes.append(translate("boxes.{name} is new", name=spec.name))
        else:
            changes += [
                f"boxes.{spec.name}.{key}"
                for key in keys
                if getattr(spec, key) != getattr(was, key)
            ]
    if old.alerts.sinks != new.alerts.sinks:
        changes.append("sinks")
    return changes


def trust_file(path: Path, real: Path, entry: TrustedEntry) -> None:
    """Trust a file with the content in `entry`. `path` is the list, see `default_path`.

    Raises:
        FleetFileError: the list cannot be used or written.
    """
    _update_book(path, lambda files: {**files, str(real): entry})


def revoke_trust(path: Path, real: Path) -> bool:
    """Stop trusting a file; return whether it was trusted.

    Raises:
        FleetFileError: the list cannot be used or written.
    """
    was = str(real) in read_book(path).files
    if was:
        _update_book(
            path, lambda files: {name: entry for name, entry in files.items() if name != str(real)}
        )
    return was


def _update_book(
    path: Path, change: Callable[[dict[str, TrustedEntry]], dict[str, TrustedEntry]]
) -> None:
    try:
        with locked_file(path):
            # Within the lock: another rgt may have trusted a file meanwhile.
            book = read_book(path)
            replace_file(path, msgspec.json.encode(replace(book, files=change(book.files))))
    except OSError as error:
        raise FleetFileError(
            translate(
                "cannot write {path}: {strerror}", path=path, strerror=error.strerror or error
            )
        ) from error


def apply_trust(
    source: FleetFileSource, config: FleetConfig, env: Mapping[str, str]
) -> FleetConfig:
    """Return what applies of a fleet file in the working tree: all if trusted, otherwise little."""
    advice = translate("review and trust it: rgt trust {path}", path=shlex.quote(str(source.path)))
    try:
        why = describe_difference(
            read_book(default_path(env)).files.get(str(source.real)),
            build_entry(source, config, env),
        )
    except FleetFileError as error:
        return restricted(config, str(error))
    if why is None:
        return config
    return restricted(config, f"{source.path} {why}; {advice}")


def restricted(config: FleetConfig, doubt: str) -> FleetConfig:
    """Return what applies of an untrusted fleet file: its boxes' names, hosts and prices.

    Only hosts in the person's own ssh_config can be reached, as it describes them. Sinks, keys,
    files, programs and alert limits are ignored.
    """
    # A list of keys that apply, not of keys that do not: a new key is ignored until it is added.
    boxes = tuple(
        BoxSpec(**{key: getattr(spec, key) for key in KEPT}, untrusted=True)
        for spec in config.boxes
    )
    return replace(config, boxes=boxes, alerts=AlertSettings(), doubt=doubt)


def with_absolute_paths(config: FleetConfig, folder: Path, env: Mapping[str, str]) -> FleetConfig:
    """Return the fleet file with its local relative paths resolved against `folder`.

    Resolved against the working directory, a trusted file would use files of any directory
    that rgt is started in.
    """
    boxes = tuple(
        replace(
            spec,
            identity=_anchor_path(spec.identity, folder),
            known_hosts=_anchor_path(spec.known_hosts, folder),
            ssh_config=_anchor_path(spec.ssh_config, folder),
        )
        for spec in config.boxes
    )
    sinks = tuple(
        replace(
            sink,
            url_file=_anchor_path(sink.url_file, folder),
            argv=tuple(
                _resolve_program(word, folder, first=not place)
                for place, word in enumerate(sink.argv)
            ),
        )
        for sink in config.alerts.sinks
    )
    return replace(config, boxes=boxes, alerts=replace(config.alerts, sinks=sinks))


def _anchor_path(path: str | None, folder: Path) -> str | None:
    # Expanded later, by the person's own home and environment.
    if path is None or path == NO_FILE or path.startswith(("/", "~", "%d", "${")):
        return path
    return str(folder / path)


def _resolve_program(word: str, folder: Path, *, first: bool) -> str:
    """Resolve a program with a slash, or an argument that is a file next to the fleet file."""
    if word.startswith(("/", "-", "~")) or not word:
        return word
    # A program without a slash is searched for in PATH, never next to the file.
    if first:
        if "/" in word:
            return str(folder / word)
        return word
    try:
        if (folder / word).exists():
            return str(folder / word)
        return word
    except (OSError, ValueError):
        return word


def list_local_actions(config: FleetConfig) -> tuple[str, ...]:
    """Return what a fleet file makes rgt do locally besides watching boxes, a line each."""
    found: dict[str, list[str]] = {}
    for spec in config.boxes:
        for line in _iterate_box_actions(spec):
            found.setdefault(line, []).append(spec.name)
    lines = [f"{line} ({', '.join(names)})" for line, names in found.items()]
    if config.alerts.kinds:
        lines.append(
            translate(
                "sets the limits of these alerts: {kinds}", kinds=", ".join(config.alerts.kinds)
            )
        )
    return (*lines, *(_describe_sink_action(sink) for sink in config.alerts.sinks))


def _iterate_box_actions(spec: BoxSpec) -> Iterator[str]:
    if spec.ssh_config not in (None, NO_FILE):
        yield translate(
            "uses the ssh_config {ssh_config}, which may run programs", ssh_config=spec.ssh_config
        )
    if spec.identity is not None:
        yield translate("logs in with the key {identity}", identity=spec.identity)
    if spec.known_hosts is not None:
        yield translate("trusts the host keys in {known_hosts}", known_hosts=spec.known_hosts)
    if spec.python is not None and spec.python != NO_AGENT:
        yield translate("runs {python} on the box", python=spec.python)
    if spec.provider is not None:
        ref = spec.provider
        if ref.key_env:
            key = f"${ref.key_env}"
        else:
            key = translate("your key")
        yield translate(
            "sends {key} to {base_url}, and can stop the instance {instance}",
            key=key,
            base_url=ref.base_url or ref.kind,
            instance=ref.instance,
        )


def _describe_sink_action(sink: SinkSettings) -> str:
    if sink.kind == "command":
        return translate("runs {argv} at an alert", argv=shlex.join(sink.argv))
    if sink.url_env is None and sink.url_file is None:
        return translate("sends alerts by {kind}", kind=sink.kind)
    where = f"${sink.url_env}" if sink.url_env else sink.url_file
    token = ""
    if sink.token_env:
        token = translate(", with ${name}", name=sink.token_env)
    return translate("sends alerts to the address in {where}{token}", where=where, token=token)


def _list_named_files(
    source: FleetFileSource, config: FleetConfig, env: Mapping[str, str]
) -> list[Path]:
    """Return the files in the fleet file's own tree that it names.

    Anyone who can change the tree can change them.
    """
    if env.get("HOME"):
        home = Path(env["HOME"])
    else:
        home = Path.home()
    chain = source.real.parents
    root = next((folder for folder in chain if (folder / ".git").exists()), source.real.parent)
    # A home directory under git is the person's own tree.
    if root == home.resolve():
        return []
    said = [path for spec in config.boxes for path in (spec.ssh_config, spec.known_hosts)]
    said += [path for sink in config.alerts.sinks for path in (sink.url_file, *sink.argv)]
    found: dict[Path, None] = {}
    for path in said:
        try:
            full = Path(expand_path(path or "", {"%": "%", "d": str(home)}, env))
            # Compare both the path as named and its target: a link in the tree can be pointed to
            # another file.
            inside = full.is_absolute() and (
                full.is_relative_to(root) or full.parent.resolve().is_relative_to(root)
            )
        except (OSError, RuntimeError, ValueError):
            continue
        if inside:
            found[full] = None
    return list(found)


def _read_seen(path: Path) -> SeenFile:
    """Read a file next to the fleet file; a pipe or a device is treated as missing."""
    try:
        with open_regular(path) as file:
            head = file.read(MAX_BESIDE + 1)
            digest = hashlib.sha256(head)
            while part := file.read(MAX_BESIDE):
                digest.update(part)
    except OSError:
        return SeenFile("")
    try:
        text = ""
        if len(head) <= MAX_BESIDE and b"\0" not in head:
            text = head.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    return SeenFile(digest.hexdigest(), text)


def _hash_data(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def renew_trust(
    path: Path, before: FleetFileSource | None, after: FleetFileSource, env: Mapping[str, str]
) -> bool:
    """Keep the trust in a file that rgt has just written: if it was trusted, or did not exist.

    Args:
        path: The list of trusted files.
        before: The previous content; None = no file.
        after: The new content.
        env: The environment.

    Returns:
        Whether it is trusted now.

    Raises:
        FleetFileError: the list cannot be used or written.
    """
    known = read_book(path).files.get(str(after.real))
    if before is not None:
        # Whether the files that it names have changed is checked when it is used.
        written = TrustedEntry(SeenFile(_hash_data(before.data), before.text), 0.0)
        if describe_difference(known, written) is not None:
            return False
    try:
        config = with_absolute_paths(parse_fleet(after.path, after.text), after.real.parent, env)
        entry = build_entry(after, config, env)
    except FleetFileError:  # it has no box yet
        entry = TrustedEntry(SeenFile(_hash_data(after.data), after.text), time.time())
    if before is not None and known is not None:
        # A trusted file next to it may have changed since: keep the content that was trusted.
        entry = replace(entry, beside={**entry.beside, **known.beside})
    trust_file(path, after.real, entry)
    return True
