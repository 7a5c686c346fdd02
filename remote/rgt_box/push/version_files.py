"""The files of a version that was pushed: its record, and which of them were edited later."""

from __future__ import annotations

import hashlib
import os

from rgt_box import files
from rgt_box.commands import hashing
from rgt_box.push import push_staging
from rgt_box.push.push_staging import FOLDER, PushManifest

TYPE_CHECKING = False

if TYPE_CHECKING:
    from rgt_wire import JsonObject


def read_version_records(place: str) -> dict[str, JsonObject]:
    """Return version → its record, for existing versions."""
    found = {}
    try:
        names = sorted(os.listdir(os.path.join(place, FOLDER)))
    except OSError:
        return {}
    for name in names:
        version = name[:-5]
        if name.endswith(".json") and os.path.isdir(os.path.join(place, version)):
            told = files.read_json(os.path.join(place, FOLDER, name), push_staging.MOST)
            if (
                told is not None
                and told.get("version") == version
                and isinstance(told.get("files"), list)
            ):
                found[version] = told
    return found


def find_changed_files(folder: str, manifest: PushManifest, cache: hashing.HashCache) -> list[str]:
    """Return the pushed files that have changed since the push."""
    found = [
        path
        for path, _, digest, _, _ in manifest.files
        if not push_staging.is_right(os.path.join(folder, path), digest, cache)
    ]
    return found + [
        path for path, target in manifest.links if link_target(os.path.join(folder, path)) != target
    ]


def list_edits(folder: str) -> list[str]:
    """Return the pushed files of a version's directory that were edited; empty without its record."""
    place, version = os.path.split(folder)
    told = read_version_records(place).get(version)
    if told is None:
        return []
    try:
        manifest = push_staging.PushManifest(told)
    except (push_staging.BadManifest, TypeError, ValueError):
        return []
    return find_changed_files(folder, manifest, hashing.HashCache(None))


def hash_files(folder: str, paths: list[str]) -> str:
    """Return one hash of some files, by their names, contents and links; some may be missing."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        whole = os.path.join(folder, path)
        try:
            content = hashing.hash_path(whole)
        except OSError:
            content = str(link_target(whole))
        digest.update(os.fsencode(f"{path}\0{content}\0"))
    return digest.hexdigest()


def link_target(path: str) -> str | None:
    """Return the target of a link; None without a link."""
    try:
        return os.readlink(path)
    except OSError:
        return None
