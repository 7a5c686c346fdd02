"""Checkpoints: collect, copy, write in another process, publish, keep, mirror and restore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_train.checkpoint.async_saver import BEST, STEP, AsyncSaver, Outcome, Request
    from rgt_train.checkpoint.diskio import (
        ALIGN,
        Appender,
        Unreadable,
        fsync_dir,
        make_dirs,
        padded,
        remove,
        replace_file,
        write_all,
        write_file,
        write_region,
    )
    from rgt_train.checkpoint.lock import RunLock
    from rgt_train.checkpoint.manifest import NAME, Damaged, Foreign
    from rgt_train.checkpoint.mirror_places import Folder, bests, check, fetch, open_place
    from rgt_train.checkpoint.mirror_worker import Errands, download, download_logs, keep_logs
    from rgt_train.checkpoint.publish import Done, Draft, Job, Mishap, perform
    from rgt_train.checkpoint.receipt import environment, guarantee
    from rgt_train.checkpoint.resume import load_latest, mend_best
    from rgt_train.checkpoint.safetensors import (
        MODEL_FILE,
        TRAINER_FILE,
        Arena,
        Collected,
        Layout,
        Loaded,
        read,
        spec_of,
        weights,
    )
    from rgt_train.checkpoint.saver import Limits, Saver
    from rgt_train.checkpoint.snapshot import PARANOID, Torn
    from rgt_train.checkpoint.state import RunState, counted
    from rgt_train.checkpoint.store import Checkpoint, Item, Policy, Store, read_space, verified

__all__ = [
    "ALIGN",
    "BEST",
    "MODEL_FILE",
    "NAME",
    "PARANOID",
    "STEP",
    "TRAINER_FILE",
    "Appender",
    "Arena",
    "AsyncSaver",
    "Checkpoint",
    "Collected",
    "Damaged",
    "Done",
    "Draft",
    "Errands",
    "Folder",
    "Foreign",
    "Item",
    "Job",
    "Layout",
    "Limits",
    "Loaded",
    "Mishap",
    "Outcome",
    "Policy",
    "Request",
    "RunLock",
    "RunState",
    "Saver",
    "Store",
    "Torn",
    "Unreadable",
    "async_saver",
    "bests",
    "check",
    "counted",
    "diskio",
    "download",
    "download_logs",
    "encoding",
    "environment",
    "fetch",
    "fsync_dir",
    "guarantee",
    "keep_logs",
    "load_latest",
    "lock",
    "make_dirs",
    "manifest",
    "matching",
    "mend_best",
    "mirror",
    "mirror_places",
    "mirror_worker",
    "open_place",
    "padded",
    "perform",
    "publish",
    "read",
    "read_space",
    "receipt",
    "remove",
    "replace_file",
    "resume",
    "safetensors",
    "saver",
    "spec_of",
    "state",
    "store",
    "verified",
    "weights",
    "write_all",
    "write_file",
    "write_region",
]

__getattr__ = imported_later(
    __name__,
    {
        "async_saver": "AsyncSaver BEST Outcome Request STEP",
        "diskio": (
            "ALIGN Appender Unreadable fsync_dir make_dirs padded remove replace_file write_all "
            "write_file write_region"
        ),
        "lock": "RunLock",
        "manifest": "Damaged Foreign NAME",
        "mirror_places": "Folder bests check fetch open_place",
        "mirror_worker": "Errands download download_logs keep_logs",
        "publish": "Done Draft Job Mishap perform",
        "receipt": "environment guarantee",
        "resume": "load_latest mend_best",
        "safetensors": "Arena Collected Layout Loaded MODEL_FILE TRAINER_FILE read spec_of weights",
        "saver": "Limits Saver",
        "snapshot": "PARANOID Torn",
        "state": "RunState counted",
        "store": "Checkpoint Item Policy Store read_space verified",
    },
)
