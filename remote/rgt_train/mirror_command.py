"""``python -m rgt_train mirror``: list, upload, download and load the checkpoints of a mirror by hand."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Sequence

from rgt_wire import size_text

from rgt_train import exits
from rgt_train.checkpoint import manifest, mirror_worker
from rgt_train.checkpoint.diskio import replace_file
from rgt_train.checkpoint.lock import RunLock
from rgt_train.checkpoint.manifest import CheckpointDamaged
from rgt_train.checkpoint.mirror_places import MirrorPlace, best_items, open_place, step_items
from rgt_train.checkpoint.store import CheckpointStore, KeepPolicy
from rgt_train.tracking.report import print_line


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    result = argparse.ArgumentParser(
        prog="python -m rgt_train mirror",
        description="What the option mirror does by itself, by hand. A mirror is an absolute path "
        "or an fsspec URL.",
        epilog="Exit codes: 0 done, 1 there is nothing good or a place failed, 2 not understood or "
        "another run's.",
        allow_abbrev=False,
    )
    verbs = result.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, places, text in (
        ("list", ("url",), "list the checkpoints in the mirror"),
        (
            "upload",
            ("out", "url"),
            "copy the newest good checkpoint, best and the logs, and read every byte back",
        ),
        ("download", ("url", "out"), "fetch the newest good checkpoint, best and missing logs"),
        (
            "load",
            ("url", "out"),
            "find the newest good one, here or in the mirror, as a launch would, and read it",
        ),
    ):
        verb = verbs.add_parser(name, help=text, description=text, allow_abbrev=False)
        for place in places:
            shown = {"url": "MIRROR", "out": "OUT"}[place]
            verb.add_argument(place, metavar=shown)
        if name == "upload":
            verb.add_argument(
                "--keep",
                type=int,
                default=2,
                help="checkpoints that stay in the mirror (default: 2)",
            )
    return result


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = build_parser().parse_args(argv)
    try:
        place = open_place(options.url)
        if options.verb == "list":
            lines = list_mirror(place)
        elif options.verb == "upload":
            lines = upload_newest(options.out, place, options.keep)
        else:
            lines = download_newest(place, options.out)
            if options.verb == "load":
                lines.append(describe_newest(options.out))
    except exits.UsageError as error:
        print(f"rgt_train: {error}", file=sys.stderr, flush=True)
        return exits.USAGE
    except (CheckpointDamaged, OSError) as error:
        print(f"rgt_train: mirror {options.verb} failed: {error}", file=sys.stderr, flush=True)
        return exits.FAILED
    for line in lines:
        print_line(line)
    return exits.DONE


def list_mirror(place: MirrorPlace) -> list[str]:
    """Return one line for each checkpoint in a mirror, the newest last, and its best.

    The manifests are read, not the content.

    Raises:
        OSError: The place does not answer.
    """
    names = place.list_names()
    lines: list[str] = []
    for item in [*step_items(names), *best_items(names)[-1:]]:
        try:
            body = mirror_worker.read_place_manifest(place, item.name)
            size = sum(int(facts["size"]) for facts in body["files"].values())
            written = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(float(body.get("time", 0))))
            lines.append(f"{item.name}  step {body['step']}  {size_text(size)}  {written}")
        except (CheckpointDamaged, exits.UsageError) as error:
            lines.append(f"{item.name}  damaged: {error}")
    return lines or [f"no checkpoints in {place.url}"]


def upload_newest(out: str, place: MirrorPlace, keep: int = 2) -> list[str]:
    """Copy the newest good checkpoint of the run in `out` to a mirror, its best, and its logs.

    Raises:
        UsageError: It is the mirror of another run, or `out` is no run directory.
        CheckpointDamaged: No checkpoint here is good, or the copy reads back differently.
        OSError: The place, or the local disk, failed.
    """
    if not os.path.isdir(out):
        raise exits.UsageError(f"{out} is not a run directory")
    store = CheckpointStore(os.path.abspath(out), 0)
    complaints: list[str] = []
    for _, path in reversed(store.list_paths()):
        try:
            manifest.verify_checkpoint(path)
            break
        except CheckpointDamaged as error:
            complaints.append(f"{path} is damaged: {error}")
    else:
        raise CheckpointDamaged("; ".join(complaints) or f"{out} has no checkpoint yet")
    copies = {os.path.basename(path): path}
    if os.path.isdir(store.best):
        try:
            body = manifest.verify_checkpoint(store.best)
            copies[f"best-{body['step']:08d}-a{body.get('attempt', 0)}"] = store.best
        except CheckpointDamaged as error:  # the newest one is worth more
            complaints.append(f"{store.best} is damaged: {error}")
    lines = [f"passed over: {text}" for text in complaints]
    _join_mirror(place, store.out)
    for name, source in copies.items():
        done = mirror_worker.copy_and_verify(place, source, name, KeepPolicy(keep), lines)
        if "bytes" in done:
            lines.append(f"mirrored {name} → {place.url}  {size_text(done['bytes'])}  read back")
        else:
            lines.append(f"{name} was deleted here meanwhile: not copied")
    mirror_worker.keep_logs(place, store.out)
    return lines


def download_newest(place: MirrorPlace, out: str) -> list[str]:
    """Fetch the newest good checkpoint that `out` lacks, the best and missing logs.

    Raises:
        UsageError: A trainer runs in `out`, or all checkpoints in the mirror are damaged.
        OSError: The place does not answer, or the local disk refuses.
    """
    os.makedirs(out, exist_ok=True)
    store = CheckpointStore(os.path.abspath(out), 0)
    # A trainer that runs here would not expect a newer checkpoint under its hands.
    lock = RunLock(store.out)
    try:
        # A mirror without an owner stays without one: it is only read here.
        if place.read_note():
            _join_mirror(place, store.out)
        here = _newest_step(store)
        path, lines = mirror_worker.download_newest(place, store, here)
        logs = mirror_worker.download_logs(place, store.out)
    finally:
        lock.close()
    if logs:
        lines.append(f"fetched {' and '.join(logs)}")
    if path is None:
        lines.append(f"nothing newer in {place.url}: here is step {here}")
    return lines


def _join_mirror(place: MirrorPlace, out: str) -> None:
    """Record that mirror and run belong together; a mirror with an owner keeps its launch.

    A training of this run may be running, whose copies must go on.

    Raises:
        UsageError: It is the mirror of another run.
        OSError: It could not be recorded.
    """
    owner = mirror_worker.check_owner(place, out, os.urandom(8).hex(), held=False)
    if owner is not None and place.read_note():
        replace_file(os.path.join(out, mirror_worker.ID_FILE), f"{owner.run}\n".encode())
    elif owner is not None:
        mirror_worker.record_owner(place, out, owner)


def describe_newest(out: str) -> str:
    """Return one line about the newest good checkpoint of the run in `out`, after reading all of it.

    Raises:
        CheckpointDamaged: None is good.
    """
    store = CheckpointStore(os.path.abspath(out), 0)
    for _, path in reversed(store.list_paths()):
        try:
            body = manifest.verify_checkpoint(path)
        except CheckpointDamaged:
            continue
        size = sum(int(facts["size"]) for facts in body["files"].values())
        return (
            f"good: step {body['step']} in {path}  {size_text(size)}, every byte verified; the "
            f"next launch resumes from it. Weights alone: python -m rgt_train export {out} --to "
            "model.safetensors"
        )
    raise CheckpointDamaged(f"{out} has no good checkpoint")


def _newest_step(store: CheckpointStore) -> "int | None":
    for step, path in reversed(store.list_paths()):
        try:
            manifest.verify_checkpoint(path)
            return step
        except CheckpointDamaged:
            continue
    return None
