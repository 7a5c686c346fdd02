"""Checkpoints: collect, copy, write in another process, publish, keep, mirror and restore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgt_wire import imported_later

if TYPE_CHECKING:
    from rgt_train.checkpoint.async_saver import BEST, STEP, AsyncSaver, SaveOutcome, SaveRequest
    from rgt_train.checkpoint.diskio import (
        ALIGN,
        LineAppender,
        Unreadable,
        fsync_dir,
        make_dirs,
        remove_path,
        replace_file,
        round_up_to_block,
        write_all,
        write_file,
        write_region,
    )
    from rgt_train.checkpoint.lock import RunLock
    from rgt_train.checkpoint.manifest import NAME, CheckpointDamaged, UnknownFormat
    from rgt_train.checkpoint.mirror_places import (
        FolderPlace,
        best_items,
        fetch_directory,
        open_place,
        verify_copy,
    )
    from rgt_train.checkpoint.mirror_worker import (
        MirrorRequests,
        download_logs,
        download_newest,
        keep_logs,
    )
    from rgt_train.checkpoint.publish import (
        CheckpointDraft,
        SaveJob,
        SaveResult,
        TransientFailure,
        perform_job,
    )
    from rgt_train.checkpoint.receipt import environment, guarantee
    from rgt_train.checkpoint.resume import load_latest, reconcile_best
    from rgt_train.checkpoint.safetensors import (
        MODEL_FILE,
        TRAINER_FILE,
        ArenaLayout,
        Collected,
        LoadedCheckpoint,
        SharedArena,
        load_weights,
        read_tensors,
        spec_of,
    )
    from rgt_train.checkpoint.saver import CheckpointSaver, LossLimits
    from rgt_train.checkpoint.snapshot import PARANOID, TornSnapshot
    from rgt_train.checkpoint.state import RunState, counted_averages
    from rgt_train.checkpoint.store import (
        Checkpoint,
        CheckpointItem,
        CheckpointStore,
        KeepPolicy,
        read_space,
        verified_checkpoint,
    )

__all__ = [
    "ALIGN",
    "BEST",
    "MODEL_FILE",
    "NAME",
    "PARANOID",
    "STEP",
    "TRAINER_FILE",
    "ArenaLayout",
    "AsyncSaver",
    "Checkpoint",
    "CheckpointDamaged",
    "CheckpointDraft",
    "CheckpointItem",
    "CheckpointSaver",
    "CheckpointStore",
    "Collected",
    "FolderPlace",
    "KeepPolicy",
    "LineAppender",
    "LoadedCheckpoint",
    "LossLimits",
    "MirrorRequests",
    "RunLock",
    "RunState",
    "SaveJob",
    "SaveOutcome",
    "SaveRequest",
    "SaveResult",
    "SharedArena",
    "TornSnapshot",
    "TransientFailure",
    "UnknownFormat",
    "Unreadable",
    "async_saver",
    "best_items",
    "counted_averages",
    "diskio",
    "download_logs",
    "download_newest",
    "encoding",
    "environment",
    "fetch_directory",
    "fsync_dir",
    "guarantee",
    "keep_logs",
    "load_latest",
    "load_weights",
    "lock",
    "make_dirs",
    "manifest",
    "matching",
    "mirror",
    "mirror_places",
    "mirror_worker",
    "open_place",
    "perform_job",
    "publish",
    "read_space",
    "read_tensors",
    "receipt",
    "reconcile_best",
    "remove_path",
    "replace_file",
    "resume",
    "round_up_to_block",
    "safetensors",
    "saver",
    "snapshot",
    "spec_of",
    "state",
    "store",
    "verified_checkpoint",
    "verify_copy",
    "write_all",
    "write_file",
    "write_region",
]

__getattr__ = imported_later(
    __name__,
    {
        "async_saver": "AsyncSaver BEST SaveOutcome SaveRequest STEP",
        "diskio": (
            "ALIGN LineAppender Unreadable fsync_dir make_dirs round_up_to_block remove_path "
            "replace_file write_all write_file write_region"
        ),
        "lock": "RunLock",
        "manifest": "CheckpointDamaged UnknownFormat NAME",
        "mirror_places": "FolderPlace best_items verify_copy fetch_directory open_place",
        "mirror_worker": "MirrorRequests download_newest download_logs keep_logs",
        "publish": "SaveResult CheckpointDraft SaveJob TransientFailure perform_job",
        "receipt": "environment guarantee",
        "resume": "load_latest reconcile_best",
        "safetensors": "SharedArena Collected ArenaLayout LoadedCheckpoint MODEL_FILE "
        "TRAINER_FILE read_tensors spec_of load_weights",
        "saver": "LossLimits CheckpointSaver",
        "snapshot": "PARANOID TornSnapshot",
        "state": "RunState counted_averages",
        "store": (
            "Checkpoint CheckpointItem KeepPolicy CheckpointStore read_space verified_checkpoint"
        ),
    },
)
