"""The way home: what the mirror has and the local disk lacks; and the logs, there and back.

``ledger.jsonl`` and ``metrics.jsonl`` go with the checkpoints, whole: a wiped box keeps its failure count and curves.
"""

from __future__ import annotations

import os
from typing import List, Optional, Tuple

from rgt_train import ledger, manifest, reading, report, space
from rgt_train.durable import fsync_dir, make_dirs, remove, replace_file
from rgt_train.exits import UsageError
from rgt_train.manifest import Damaged
from rgt_train.mirror.place import Place, bests, fetch, steps
from rgt_train.reading import Unreadable
from rgt_train.retention import Item
from rgt_train.store import Store

LOGS = (ledger.NAME, report.METRICS)
"""What is kept beside the checkpoints."""


def bring(place: Place, store: Store, local: Optional[int]) -> Tuple[Optional[str], List[str]]:
    """Bring the newest good checkpoint of `place` here if it is newer than step `local`.

    ``best`` comes too where there is none here, or a damaged one, or one that is older than that checkpoint's.

    Returns:
        Where the checkpoint is now, None where nothing newer is there; and lines for a person.

    Raises:
        OSError: The place does not answer, or the local disk refuses.
        Unreadable: The disk does not say whether the ``best`` that is here is whole.
        UsageError: A checkpoint there is intact but of another format; or nothing is here, and all there are damaged.
    """
    says: List[str] = []
    names = place.names()
    newer = [item for item in steps(names) if local is None or item.step > local]
    if bests(names) and _wants_best(store, bests(names)[-1], stale=bool(newer)):
        _fetch_newest(place, store, bests(names), store.best, says)
    path = _fetch_newest(place, store, newer, None, says)
    if path is None and newer and local is None and not reading.is_dir(store.best):
        raise UsageError(
            f"no checkpoint in the mirror {place.url} is good, and none was deleted: {'; '.join(says)}. To start from "
            "step 0, give another --out and another mirror"
        )
    return path, says


def forget(place: Place, first: int) -> None:
    """Delete the checkpoints of step `first` and later ones: a rollback gives them up.

    Raises:
        OSError: The place does not answer.
    """
    for item in steps(place.names()):
        if item.step >= first:
            place.drop(item.name)


def keep_logs(place: Place, out: str) -> None:
    """Copy the logs of the run in `out` to `place`, up to the last full line: the trainer may be writing the next.

    Raises:
        OSError: The place does not take them; what it had of them is still there.
        Unreadable: The disk does not say what is in them.
    """
    for name in LOGS:
        try:
            content = reading.content(os.path.join(out, name))
        except OSError:
            continue  # there is none
        whole = content[: content.rfind(b"\n") + 1]
        if whole:
            place.mark(whole, name)


def bring_logs(place: Place, out: str) -> List[str]:
    """Fetch the logs that `place` has, where `out` has none; return their names.

    Raises:
        OSError: The place does not answer, or the local disk refuses.
    """
    found: List[str] = []
    for name in LOGS:
        path = os.path.join(out, name)
        if os.path.exists(path) and os.path.getsize(path):
            continue
        content = place.note(name)
        if content:
            make_dirs(out)
            replace_file(path, content)
            found.append(name)
    return found


def _fetch_newest(
    place: Place, store: Store, items: List[Item], target: Optional[str], says: List[str]
) -> Optional[str]:
    """Fetch the newest of `items` that is whole; return where it is now."""
    for item in reversed(items):
        temporary = store.temporary("step", item.step)
        try:
            os.makedirs(store.root, exist_ok=True)
            fetch(place, item.name, temporary)
        except Unreadable:
            raise
        except Damaged as error:
            says.append(f"{place.url}/{item.name} is damaged, not used: {error}")
            continue
        path = target or store.path_of(item)
        aside = store.aside(path)
        if target is None:
            store.set_aside(path)  # what is here under that name was looked at, and is damaged
        elif os.path.lexists(path):
            os.rename(path, aside)
        os.rename(temporary, path)
        for parent in (store.root, store.out):
            fsync_dir(parent)
        remove(aside)
        size = sum(facts["size"] for facts in manifest.read(path)["files"].values())
        says.append(f"fetched {item.name} from the mirror {place.url}  {space.human(size)}")
        return path
    return None


def _wants_best(store: Store, there: Item, *, stale: bool) -> bool:
    """Say whether the ``best`` of the mirror is to come here; what is damaged here is moved aside.

    Args:
        store: What is here.
        there: The best of the mirror.
        stale: Whether what is here is behind the mirror.
    """
    try:
        body = manifest.verify(store.best)
    except Unreadable:
        raise
    except (Damaged, UsageError):
        store.set_best_aside()
        return True
    return stale and (there.attempt, there.step) > (int(body.get("attempt", 0)), int(body["step"]))
