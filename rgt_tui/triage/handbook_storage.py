"""Disks: no bytes, no inodes, copies that did not happen, checkpoints cut short."""

from __future__ import annotations

from rgt_tui.model.evidence import Fix, Severity
from rgt_tui.triage.entry import Entry, patterns

STORAGE: tuple[Entry, ...] = (
    Entry(
        id="U6",
        title="The disk was full while a checkpoint was being saved",
        severity=Severity.FATAL,
        resource="bytes",
        fixes=(),
        never="Do not just start it again: every cell of the queue fails the same way until there is room.",
        needles=(
            "iostream error",
            "inline_container.cc",
            "PytorchStreamWriter",
            "serialization.py",
            "DISK_GATE",
        ),
        patterns=patterns(
            r"basic_ios::clear: iostream error",
            r"enforce fail at inline_container\.cc:\d+\][^\n]*unexpected pos \d+ vs \d+",
            r"PytorchStreamWriter failed writing file",
            r"torch/serialization\.py[\s\S]{0,1500}?No space left on device",
            r"DISK_GATE_ABORT",
        ),
        beats=("U7",),
    ),
    Entry(
        id="U7",
        title="No space left: inodes or bytes of a mount are used up",
        severity=Severity.FATAL,
        resource="space",
        fixes=(),
        never="Do not remove on a guess: list it first, and never a directory that holds checkpoints.",
        needles=(
            "No space left on device",
            "quota exceeded",
            "Disk quota",
            "no inodes left",
            "no bytes left",
            " at step ",
        ),
        patterns=patterns(
            r"\[Errno 28\] No space left on device",
            r"\[Errno 122\] Disk quota exceeded",
            r"^(?:/\S*/)?(?:ba|z|da)?sh: [^\n]*No space left on device$",
            r"^(?:cp|mv|mkdir|touch|tar|dd|install|ln|unzip|tee|cat|gzip|zstd|git|rsync|scp|wget|curl|mktemp)\b"
            r"[^\n]*: No space left on device",
            r": Disk quota exceeded$",
            r"checkpoint save failed at step \d+: (?:no (?:inodes|bytes) left on|quota exceeded on) [^\n]*",
            r"^(?:holding|giving up) at step \d+: [^\n]*(?:not saved|could be saved)",
        ),
    ),
    Entry(
        id="CKPT1",
        title="A checkpoint could not be saved",
        severity=Severity.FATAL,
        resource="the checkpoint directory",
        fixes=(
            Fix("Is the file system read-only, or gone? The kernel's last words say", "dmesg | tail"),
            Fix(
                "Once it can be written again, the trainer saves by itself; else launch the same command again"
            ),
        ),
        never="Do not stop the process while its last good checkpoint is far behind: its memory holds the rest.",
        needles=("checkpoint save failed",),
        patterns=patterns(
            r"checkpoint save failed at step \d+: (?!no (?:inodes|bytes) left|quota exceeded)[^\n]*"
        ),
        cleared_by="saved",
        sources=("docs/jobs.md, the event checkpoint-failed",),
    ),
    Entry(
        id="U33",
        title="Reported as copied, but the copy failed",
        severity=Severity.SILENT_WRONG,
        resource="the durable copy",
        fixes=(
            Fix("Take the data disk for the only copy until a download has been verified"),
            Fix("Look at the durable side: is the file there, with the same size?", "ls -l -- {}"),
            Fix(
                "Let the runner go on with the cell: it copies again, reads back, and only then calls it done"
            ),
        ),
        never="Do not tear the box down because a line says 'synced'.",
        needles=("SYNC FAILED", "sync", "synced"),
        patterns=patterns(
            r"!! SYNC FAILED",
            r"^(?:mkdir|cp): [^\n]*(?:cannot create|error writing|failed)[^\n]*\n"
            r"(?:[^\n]*\n){0,2}?[^\n]*(?:auto-synced|sync(?:ed)? OK|synced )",
        ),
        beats=("U7",),
    ),
    Entry(
        id="C2",
        title="A checkpoint is cut short: it was being written when the process ended",
        severity=Severity.FATAL,
        resource="a checkpoint file",
        fixes=(
            Fix("Move the broken file aside and let the run go on from the checkpoint before it"),
            Fix(
                "Save to a temporary name, flush and fsync, then rename: a reader then never sees half a file"
            ),
        ),
        never="Do not start from zero before looking for an older one.",
        needles=(
            "PytorchStreamReader",
            "central directory",
            "EOFError",
            "Safetensor",
            "HeaderTooSmall",
            "MetadataIncomplete",
            "InvalidHeader",
            "UnpicklingError",
        ),
        patterns=patterns(
            r"PytorchStreamReader failed (?:reading zip archive|reading file|finding)",
            r"failed finding central directory",
            r"EOFError: Ran out of input",
            r"torch/serialization\.py[\s\S]{0,1200}?^EOFError",
            r"SafetensorError: Error while deserializing header",
            r"(?:MetadataIncompleteBuffer|HeaderTooSmall|InvalidHeaderDeserialization)",
            r"UnpicklingError: (?:pickle data was truncated|invalid load key)",
        ),
    ),
    Entry(
        id="DP15",
        title="Shared memory of the container is too small for the loader's workers",
        severity=Severity.FATAL,
        resource="/dev/shm",
        fixes=(
            Fix("See how large it is; a container gets 64 MB unless asked otherwise", "df -h /dev/shm"),
            Fix("Give the container more (--shm-size, --ipc=host), or use fewer workers"),
        ),
        never="Do not take it for a lack of host memory, nor for a deadlock.",
        needles=("Bus error", "bus error", "torch_", "ancdata", "allocate shared memory"),
        patterns=patterns(
            r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) is killed by signal:\s+Bus error",
            r"Unexpected bus error encountered in worker",
            r"unable to (?:write to file|open shared memory object|mmap \d+ bytes from file) </?torch_",
            r"received \d+ items of ancdata",
            r"unable to allocate shared memory\(shm\)",
        ),
        beats=("U9", "U7"),
    ),
)
