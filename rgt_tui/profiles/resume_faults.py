"""What frameworks are known to lose at a resume, by the versions on which that was seen: told before it bites."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple


class Fault(NamedTuple):
    """A way in which a framework is known to lose work."""

    frameworks: tuple[str, ...]
    has: tuple[str, ...]
    """Marks that the script has, all of them (`FoundRun.marks`)."""
    lacks: str
    """A mark that it does not have; empty = none is asked for."""
    page: str
    text: str
    source: str
    """Where it is known from."""
    verified: str
    """Month in which that was looked at."""
    first: str = ""
    """Oldest version on which it was seen; empty = it is said of every version."""
    last: str = ""
    """Newest version on which it was seen."""


HUGGING, LIGHTNING = ("transformers", "trl"), ("lightning", "pytorch-lightning")
HF_TRAINER = "https://huggingface.co/docs/transformers/main/en/main_classes/trainer"
LIGHTNING_SAVING = "https://lightning.ai/docs/pytorch/stable/common/checkpointing_basic.html"
TRIED = "tried, with the version named"
FAULTS = (
    Fault(HUGGING, ("train()",), "resume", "C9",
          "starts anew after a preemption: trainer.train(resume_from_checkpoint=True)", HF_TRAINER, "2026-11"),
    Fault(HUGGING, ("save_total_limit=1",), "", "C9",
          "save_total_limit=1 leaves nothing where a save is cut off: keep 2 or more",
          "https://github.com/huggingface/transformers/issues/25129", "2026-11"),
    Fault(("transformers",), ("newest",), "", "C9",
          "a save that was cut off is taken as the newest checkpoint: remove an incomplete checkpoint-* first",
          "https://github.com/huggingface/transformers/issues/35782", "2026-11", "5.23.0", "5.23.0"),
    Fault(LIGHTNING, ("fit",), "resume", "C11",
          'starts anew after a preemption: trainer.fit(model, ckpt_path="last")', LIGHTNING_SAVING, "2026-11"),
    Fault(LIGHTNING, ("ModelCheckpoint",), "save_last", "C11",
          "top-k alone may remove the newest checkpoint: ModelCheckpoint(save_last=True)", LIGHTNING_SAVING, "2026-11"),
    Fault(LIGHTNING, ("fit", "resume"), "", "C13",
          "a resumed run sees its data in the order of epoch 0 again", TRIED, "2026-11", "2.6.6", "2.6.6"),
    Fault(LIGHTNING, ("AsyncCheckpointIO", "save_top_k=1"), "", "C17",
          "no checkpoint is on the disk during each save: save_top_k=2 or more", TRIED, "2026-11", "2.6.6", "2.6.6"),
    Fault(("accelerate",), ("total_limit=1",), "", "C17",
          "the old checkpoint goes before the new one is written: total_limit=2 or more", TRIED, "2026-11",
          "1.15", "1.15"),
    Fault(("accelerate",), ("StatefulDataLoader", "resume"), "", "C13",
          "a stateful loader is reported to repeat samples under DDP: compare their ids once",
          "https://github.com/huggingface/accelerate/issues/4195", "2026-11"),
    Fault(("torchdata",), ("StatefulDataLoader",), "", "C13",
          "a resumed StatefulDataLoader is reported to repeat or drop samples: compare their ids once",
          "https://github.com/meta-pytorch/data/issues/1437", "2026-11"),
    Fault(("deepspeed",), ("DeepSpeed",), "", "C8",
          "a ZeRO checkpoint is refused by another number of ranks: rent the same number to resume",
          "https://github.com/deepspeedai/DeepSpeed/issues/2898", "2026-11"),
)  # fmt: skip
"""By framework. Nothing is told that no source says."""


def faults_of(uses: Iterable[str], marks: Collection[str]) -> Iterator[tuple[str, Fault]]:
    """Yield which framework of a script loses work in which way, with what its version says of that.

    Args:
        uses: Frameworks with their versions, as ``transformers 5.23.0``; without one where nobody knows.
        marks: What the script says of saving and resuming.
    """
    known = list(uses)
    for fault in FAULTS:
        used = next((use for use in known if use.split(" ")[0] in fault.frameworks), None)
        if used is None or not set(fault.has) <= set(marks) or (fault.lacks and fault.lacks in marks):
            continue
        yield f"{used}: {fault.text}{_doubt(used.partition(' ')[2], fault)}", fault


def _doubt(version: str, fault: Fault) -> str:
    """Say what is not known of a version: what was seen on another one may have been mended, or not yet be there."""
    if not fault.first:
        return ""
    seen = fault.first if fault.first == fault.last else f"{fault.first} to {fault.last}"
    if numbers(version) is None:
        return f" (seen on {seen}; which version is here nobody can tell: check it)"
    return (
        ""
        if within(version, fault.first, fault.last)
        else f" (seen on {seen}; of {version} not known: check it)"
    )


def within(version: str, first: str, last: str) -> bool:
    """Say whether a version lies in a range; what the ends do not say (``1.15``: which patch) counts as in it."""
    here, low, high = numbers(version), numbers(first), numbers(last)
    if here is None or low is None or high is None:
        return False
    return here[: len(low)] >= low and here[: len(high)] <= high


def numbers(version: str) -> tuple[int, ...] | None:
    """Return the numbers of a version; None where it has none, or is one before a release (``5.0.0rc1``)."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6}){0,4})(?:\.post\d+)?(?:\+[\w.]*)?", version.strip())
    return tuple(int(part) for part in match.group(1).split(".")) if match else None
