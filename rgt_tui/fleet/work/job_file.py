"""``job.toml``: one request for a machine and the command on it, for every platform (docs/job.md)."""

from __future__ import annotations

import difflib
import enum
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from rgt_tui.files import read_bounded
from rgt_tui.fleet.work.queue_split import NoQueue, QueueLine, parse_lines
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, clean_text
from rgt_tui.model.gpu_names import (
    MEMORY_TOLERANCE,
    describe_gpu_mismatch,
    gpu_memory,
    read_gpu_name,
)
from rgt_tui.profiles import all_profiles
from rgt_tui.providers import KINDS

PLATFORM_GROUPS = {"china": ["gpushare", "matpool", "featurize", "lanrui"]}
"""Names of several platforms together, for ``candidates``."""


class JobFileError(Exception):
    """A job file cannot be used; the message names file, key and the next step."""


class GpuRequest(FrozenStruct, forbid_unknown_fields=True):
    """The card that a job needs."""

    name: str = ""
    """A model's common name, such as ``A100``; empty = any model."""
    count: int = 1
    memory: str = ""
    """Least memory of one card, such as ``24GB+``; a plain ``24GB`` means exactly that size."""

    @property
    def wish_text(self) -> str:
        """The request as one text, as ``rgt up --gpu`` takes it: ``A100 24GB+``."""
        return f"{self.name} {self.memory}".strip()

    @property
    def least_memory_gb(self) -> float | None:
        """Memory that one card must have, in GB.

        None = the request names a model whose memory is unknown.
        """
        name = read_gpu_name(self.wish_text)
        # A model of several sizes: the smallest is what the name promises.
        if name.memory_gb is None and name.model is not None:
            return min(name.model.memory_gb)
        return name.memory_gb


class ResourceRequest(FrozenStruct, forbid_unknown_fields=True):
    """The machine that a job needs."""

    gpu: GpuRequest
    disk: str = ""
    """Space for data and checkpoints, such as ``100GB``; empty = the default of ``rgt up``."""


class PortableJob(FrozenStruct, forbid_unknown_fields=True, kw_only=True):
    """The content of a job file."""

    run: str | list[str]
    """The command: a shell line, or words that are run without a shell."""
    resources: ResourceRequest | None = None
    name: str = ""
    candidates: list[str] = []
    """Providers in the order in which they are tried."""
    smoke: str | None = None
    push: str | None = None
    """Code to push, relative to the job file."""
    workdir: str | None = None
    env: dict[str, str | int | float | bool] = {}
    secrets: list[str] = []
    results: list[str] = []
    """Paths below ``$RGT_OUT`` to copy to durable storage; empty = all."""
    prune: Literal["keep-best"] | None = None
    """Of a sweep: which results finished cells may lose when the next one needs space."""
    cells: list[str] = []
    """Lines of the queue of a sweep: ``CONFIG [TASK] [EPOCHS]``."""

    @property
    def command_words(self) -> list[str]:
        """The command as words; a single one is a shell line."""
        if isinstance(self.run, str):
            return [self.run]
        return self.run

    @property
    def environment(self) -> list[str]:
        """The environment as ``NAME=VALUE``."""
        return [f"{name}={_text_of(value)}" for name, value in self.env.items()]

    @property
    def disk_gb(self) -> int | None:
        """Requested disk space in GB; None = not requested."""
        if self.resources is None:
            return None
        match = _SIZE.fullmatch(self.resources.disk)
        if match is None:
            return None
        scale = {"G": 1.0, "T": 1000.0}
        return round(float(match[1]) * scale[match[2].upper()])

    def queue_lines(self, names: Sequence[str] = ()) -> tuple[QueueLine, ...]:
        """Return the cells of the sweep, those of `names` or all.

        Raises:
            JobFileError: There are no cells, or not these.
        """
        # A cell without a task gets the one of programs without tasks.
        alone = r"^\s*([^\s#]+)\s*(?=#|$)"
        text = "\n".join(re.sub(alone, r"\1 run ", line) for line in self.cells)
        try:
            lines = parse_lines(text, "cells")
        except NoQueue as error:
            raise JobFileError(
                translate('{error}; cells = ["configs/a.yaml", …] in the job file', error=error)
            ) from None
        known = [line.name for line in lines]
        missing = [name for name in names if name not in known]
        if missing:
            raise JobFileError(
                translate(
                    "--names: no cell is called {missing}; there are: {known}",
                    missing=", ".join(missing),
                    known=", ".join(known),
                )
            )
        return tuple(line for line in lines if not names or line.name in names)


_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*([GT])B?", re.IGNORECASE)


def _text_of(value: str | float | bool) -> str:
    # Before str(): Python's "True" is not what a shell or another program expects.
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def read_job_file(path: Path) -> PortableJob:
    """Read a job file.

    Raises:
        JobFileError: It cannot be read, is not TOML, or has an unknown key or a wrong value.
    """
    try:
        body = tomllib.loads(read_bounded(path, 1 << 20).decode("utf-8"))
    except OSError as error:
        raise JobFileError(
            translate(
                "{path}: cannot be read: {strerror}", path=path, strerror=error.strerror or error
            )
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise JobFileError(
            translate(
                "{path}: not TOML: {error}; docs/job.md has an example", path=path, error=error
            )
        ) from None
    # The disk may be written at the top, too.
    resources = body.get("resources")
    if "disk" in body and isinstance(resources, dict):
        resources.setdefault("disk", body.pop("disk"))
    # Before msgspec, whose message does not suggest the key that was meant.
    _refuse_unknown_keys(path, body, PortableJob, "")
    # After the check of keys, which does not know the short form.
    if isinstance(resources, dict) and isinstance(resources.get("gpu"), str):
        resources["gpu"] = _parse_gpu(resources["gpu"])
    try:
        job = msgspec.convert(body, PortableJob)
    except msgspec.ValidationError as error:
        reason, _, key = str(error).partition(" - at `$")
        raise JobFileError(
            translate(
                "{path}: {strip}: {reason}; docs/job.md lists the keys",
                path=path,
                strip=key.strip("`.") or "job",
                reason=reason,
            )
        ) from None
    named = [kind for one in job.candidates for kind in PLATFORM_GROUPS.get(one, [one])]
    job = msgspec.structs.replace(job, candidates=named)
    _refuse_wrong_values(path, job)
    return job


def _parse_gpu(text: str) -> dict[str, Any]:
    """Return a GPU in the short form of ``rgt up --gpu``, ``A100:80GB:2``, as a table."""
    model, colon, number = text.rpartition(":")
    if colon and number.isdecimal():
        return {"name": model.replace(":", " "), "count": int(number)}
    return {"name": text.replace(":", " ")}


def _refuse_unknown_keys(path: Path, body: dict[str, Any], kind: Any, above: str) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    tables = {"resources": ResourceRequest, "gpu": GpuRequest}
    for key, value in body.items():
        where = f"{above}{clean_text(key)}"
        if key not in fields:
            near = difflib.get_close_matches(key, fields, 1)
            hint = translate("known keys: {fields}", fields=", ".join(fields))
            if near:
                hint = translate("did you mean {near}?", near=near[0])
            raise JobFileError(
                translate("{path}: {where}: unknown key; {hint}", path=path, where=where, hint=hint)
            )
        if key in tables and isinstance(value, dict):
            _refuse_unknown_keys(path, value, tables[key], f"{where}.")


def _refuse_wrong_values(path: Path, job: PortableJob) -> None:
    """Check what the types do not say.

    Raises:
        JobFileError: A value is wrong.
    """
    problems: list[tuple[bool, str, str]] = [
        (
            not any(word.strip() for word in job.command_words),
            "run",
            translate("write the command"),
        ),
        (
            job.name != "" and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", job.name),
            "name",
            translate("use letters, digits, '.', '_' and '-'"),
        ),
        (
            job.prune is not None and not job.cells,
            "prune",
            translate("only of a sweep, which has cells"),
        ),
    ]
    if job.resources is not None:
        gpu, disk = job.resources.gpu, job.resources.disk
        parsed = read_gpu_name(gpu.wish_text)
        problems += [
            (
                not (parsed.words or parsed.memory_gb),
                "resources.gpu",
                translate("name a model or a memory"),
            ),
            (not 1 <= gpu.count <= 64, "resources.gpu.count", "1 to 64"),
            (
                gpu.memory != "" and not re.fullmatch(r"\d{1,4} ?GB\+?", gpu.memory, re.IGNORECASE),
                "resources.gpu.memory",
                translate("write it as 24GB+ (at least) or 24GB"),
            ),
            (
                disk != "" and not _SIZE.fullmatch(disk),
                "resources.disk",
                translate("write it as 100GB or 2TB"),
            ),
        ]
    for wrong, key, hint in problems:
        if wrong:
            raise JobFileError(f"{path}: {key}: {hint}")
    for kind in job.candidates:
        # A platform without an API is no mistake, either: renting names it and leaves it out.
        if kind not in KINDS and kind not in all_profiles():
            raise JobFileError(
                translate(
                    "{path}: candidates: there is no platform {kind!r}; rgt rents at {kinds}",
                    path=path,
                    kind=clean_text(kind),
                    kinds=", ".join(KINDS),
                )
            )


class CardVerdict(enum.StrEnum):
    """Whether the cards of a box are those that a job needs."""

    FITS = "fits"
    OTHER = "other"
    """Another model, with enough memory."""
    SMALLER = "smaller"
    UNKNOWN = "unknown"


def judge_cards(
    gpu: GpuRequest, cards: Sequence[tuple[str, int | None]]
) -> tuple[CardVerdict, str]:
    """Return whether the cards of a box are enough for a job, with a text that says why.

    Args:
        gpu: The job's request.
        cards: Name and bytes of memory (None = unknown) of each card of the box.
    """
    if not cards:
        return CardVerdict.UNKNOWN, translate("no card of it can be read")
    mismatch = describe_gpu_mismatch(gpu.wish_text, gpu.count, cards)
    if mismatch is None:
        return CardVerdict.FITS, f"{len(cards)} × {cards[0][0]}"
    # Before the memory: more of it does not make up for a missing card.
    if len(cards) < gpu.count:
        return CardVerdict.SMALLER, mismatch
    known = []
    for name, total in cards:
        reported = total and total / 2**30
        memory = gpu_memory(read_gpu_name(name), reported)
        if memory is not None:
            known.append(memory)
    least = gpu.least_memory_gb
    # One unknown card is enough: the smallest decides.
    if least is None or len(known) < len(cards):
        return CardVerdict.UNKNOWN, translate(
            "{mismatch}, and which has more memory is unknown", mismatch=mismatch
        )
    if min(known) < least * (1 - MEMORY_TOLERANCE):
        return CardVerdict.SMALLER, translate(
            "{mismatch}; {most:g} GB are less than {least:g} GB",
            mismatch=mismatch,
            most=min(known),
            least=least,
        )
    return CardVerdict.OTHER, translate("{mismatch}; its memory is enough", mismatch=mismatch)
