"""Everything on a box that a verb could delete, and what protects each part, if anything."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from rgt_tui.language import show_recorded, translate
from rgt_tui.model import (
    IGNORED_RULE,
    BillingVerb,
    BoxResults,
    BoxState,
    CopyProof,
    EvidenceItem,
    FrozenStruct,
    Profile,
    QueueCell,
    ResultGroup,
    how_many,
    join_names,
    quote_name,
    size,
)
from rgt_tui.profiles import copy_survives, path_survives, tiers_of

RESULTS = "results"
SHOWN = 60
"""Number of directories with an item of their own, the largest first; the rest share one item."""
LEFT_OUT_LIMIT_BYTES = 500_000_000
"""Limit for files that a rule excludes only because of their location: more bytes than this block a
verb until a person ignores the rule by name. Smaller results may hide among caches, so the newest
file is shown.
"""
MOST_NAMED = 20
"""Maximum number of directories named in a combined item, and of bad files named of a copy."""
SAID = ("ignored", "copy")
"""Reasons for safety that are shown anyway: a person decided it, or has just pulled the files."""


class CollectedResults(FrozenStruct, kw_only=True):
    """What was collected for an action: the box's results, and the local copies."""

    results: BoxResults | None = None
    problem: str = ""
    """Why there are no `results`."""
    at: float | None = None
    """When the box was queried, by the steady clock."""
    proofs: tuple[CopyProof, ...] = ()
    proofs_problem: str | None = None
    """Why the local copies could not be checked."""


class _DirectoryFate(FrozenStruct):
    safe: str = ""
    """What protects it: ``storage``, ``copy``, ``durable`` or ``ignored``; empty = nothing."""
    text: str = ""


def list_result_items(
    told: CollectedResults,
    state: BoxState,
    profile: Profile | None,
    verb: BillingVerb,
    known: Mapping[str, str],
    ignored: frozenset[str] = frozenset(),
) -> tuple[EvidenceItem, ...]:
    """Return for each directory with results whether the verb would delete the only copy.

    Args:
        told: The results that the box lists, and the local copies.
        state: The box: its cells, its clock, its description.
        profile: The platform; None = unknown, which refuses.
        verb: Park or destroy.
        known: Mount point → tier name.
        ignored: Keys of items whose files are not results, according to the person.
    """

    def build_item(
        ok: bool,
        text: str,
        fact: str = "",
        *,
        about: str = "",
        forfeitable: bool = True,
        doubt: bool = False,
    ) -> EvidenceItem:
        if about:
            key = f"{RESULTS}:{about}"
        else:
            key = RESULTS
        return EvidenceItem(
            key=key,
            ok=ok,
            text=text,
            at=told.at,
            fact=fact,
            forfeitable=forfeitable and not ok,
            doubt=doubt,
        )

    # Not forfeitable: without a profile the loss is unknown.
    if profile is None:
        why = translate("the platform's profile is unknown, so it is unknown what would be lost")
        return (build_item(False, why, forfeitable=False),)
    if told.results is None:
        text = translate(
            "the files on the box are unknown: {problem}",
            problem=told.problem or translate("nobody has asked the box"),
        )
        return (build_item(False, text, "unknown"), *_without_list(state, profile, verb, known))
    items = []
    if told.results.problems:
        text = translate(
            "the list of results is incomplete: {problems}",
            problems=join_names(list(told.results.problems), 3),
        )
        items.append(build_item(False, text, "incomplete", about="complete"))
    if told.proofs_problem is not None:
        text = translate(
            "the copies here cannot be used as proof: {proofs_problem}",
            proofs_problem=quote_name(show_recorded(told.proofs_problem)),
        )
        items.append(build_item(True, text, about="copies", doubt=True))
    if told.results.no_since:
        text = translate(
            "files of any age count: {no_since}", no_since=quote_name(told.results.no_since)
        )
        items.append(build_item(True, text, "any age", about="age"))
    items += _iterate_excluded(told, state, profile, verb, known, ignored)
    fates = [
        (group, _judge_directory(group, told, state, profile, verb, known, ignored))
        for group in told.results.groups
    ]
    # Lost files come first, the largest at the top; the path keeps the order the same between
    # readings.
    fates.sort(key=lambda pair: (bool(pair[1].safe), -pair[0].bytes, pair[0].path))
    lost = [(group, fate) for group, fate in fates if not fate.safe]
    skew = state.clock_skew or 0.0
    items += [_build_group_item(group, fate, told.at, skew) for group, fate in lost[:SHOWN]]
    if len(lost) > SHOWN:
        # One item for the rest, because a person cannot judge a thousand; its fact covers each of
        # them.
        items.append(_build_rest_item([group for group, _ in lost[SHOWN:]], told.at, skew))
    items += [
        _build_group_item(group, fate, told.at, skew) for group, fate in fates if fate.safe in SAID
    ][:SHOWN]
    if not lost and not told.results.problems:
        items.append(build_item(True, _summarize_fates(fates)))
    return tuple(items)


def _iterate_excluded(
    told: CollectedResults,
    state: BoxState,
    profile: Profile,
    verb: BillingVerb,
    known: Mapping[str, str],
    ignored: frozenset[str],
) -> Iterator[EvidenceItem]:
    """Report what the box's rules excluded.

    A rule by location alone may be wrong about large amounts.

    A rule applies to the whole box, so it can lose something only if some storage of the box is
    lost.
    """
    assert told.results is not None
    skew = state.clock_skew or 0.0
    mounts = {
        "/",
        *(disk.mount for disk in (state.sample.disks if state.sample is not None else ())),
    }
    is_safe = all(path_survives(mount, profile, known, verb) is True for mount in mounts)
    rules = sorted(told.results.skipped, key=lambda skipped: (-skipped.bytes, skipped.rule))
    proved = [
        f"{one.rule} ({how_many(one.files, 'file')}, {size(one.bytes)})"
        for one in rules
        if one.proved
    ]
    if proved:
        fact = " ".join(sorted(one.rule for one in rules if one.proved))
        text = translate("left out: {proved}", proved=join_names(proved, MOST_NAMED))
        yield EvidenceItem(key=f"{RESULTS}:left out", ok=True, text=text, at=told.at, fact=fact)
    for one in rules:
        if one.proved:
            continue
        name = f"{IGNORED_RULE}{one.rule}"
        key = f"{RESULTS}:{name}"
        newest = ""
        if one.newest_path:
            newest = translate(", newest {path}", path=quote_name(one.newest_path))
        text = translate(
            "left out by a rule: {rule} ({files}, {size}{newest})",
            rule=quote_name(one.rule),
            files=how_many(one.files, "file"),
            size=size(one.bytes),
            newest=newest,
        )
        is_much = one.bytes > LEFT_OUT_LIMIT_BYTES
        by_person = key in ignored or name in state.spec.ignore
        ok = is_safe or by_person or not is_much
        if is_much and by_person:
            by_file = translate(", ignored by the fleet file")
            text += translate(", ignored by you") if key in ignored else by_file
        elif not ok:
            text += translate(
                ": more than {size}, so confirm that none of it is a result",
                size=size(LEFT_OUT_LIMIT_BYTES),
            )
        yield EvidenceItem(
            key=key,
            ok=ok,
            text=text,
            at=told.at,
            # Without the size: caches grow while a person reads, and the digest must not change
            # with them.
            fact=f"{name} {'much' if is_much else ''}",
            forfeitable=not ok,
            ignorable=is_much and not is_safe,
            bytes=one.bytes,
            newest=one.newest - skew if one.newest else None,
        )


def directory_key(path: str) -> str:
    """Return the key of a directory's item."""
    return f"{RESULTS}:{path}"


def list_protections(
    told: CollectedResults,
    state: BoxState,
    profile: Profile,
    verb: BillingVerb,
    known: Mapping[str, str],
    ignored: frozenset[str] = frozenset(),
) -> tuple[tuple[ResultGroup, str], ...]:
    """Return each directory with what protects it.

    That is ``storage``, ``copy``, ``durable`` or ``ignored``; empty = nothing.
    """
    if told.results is not None:
        groups = told.results.groups
    else:
        groups = ()
    return tuple(
        (one, _judge_directory(one, told, state, profile, verb, known, ignored).safe)
        for one in groups
    )


def _judge_directory(
    group: ResultGroup,
    told: CollectedResults,
    state: BoxState,
    profile: Profile,
    verb: BillingVerb,
    known: Mapping[str, str],
    ignored: frozenset[str],
) -> _DirectoryFate:
    # Storage that stays is proof of its own; no copy is needed.
    stays = path_survives(group.path, profile, known, verb)
    if stays is True:
        return _DirectoryFate("storage")
    why = ""
    if group.problem is not None:
        why = translate("not all of it could be read: {problem}", problem=quote_name(group.problem))
    else:
        proof = next((proof for proof in told.proofs if proof.path == group.path), None)
        if proof is not None:
            why = _find_proof_problem(group, proof)
            if not why:
                return _DirectoryFate(
                    "copy",
                    translate("has a verified copy in {where}", where=quote_name(proof.where)),
                )
        cell = _owning_cell(group, state)
        if cell is not None and copy_survives(cell, profile, known, verb) is True:
            # The runner records the end of a cell right after its process exits, and then makes the
            # copy.
            copy_slack_s = 2.0
            if _is_mount_within(group, cell, told):
                why = why or translate(
                    "a separate mount, which the verified copy of the cell may lack"
                )
            elif cell.ended is not None and group.newest <= cell.ended + copy_slack_s:
                return _DirectoryFate("durable")
            newest = quote_name(group.newest_path)
            why = why or translate(
                "newer than its verified copy at {durable_path}: {newest}",
                durable_path=quote_name(str(cell.durable_path)),
                newest=newest,
            )
    # Only files without an owner can be ignored: a cell's output is a result by definition.
    if not group.owner:
        glob = next((glob for glob in state.spec.ignore if matches_glob(group.path, glob)), None)
        if glob is not None:
            return _DirectoryFate(
                "ignored", translate("ignored by the fleet file ({glob})", glob=quote_name(glob))
            )
        if directory_key(group.path) in ignored:
            return _DirectoryFate("ignored", translate("ignored by you"))
    if stays is False:
        fate = translate("is erased")
    else:
        fate = translate("may be erased (not in the profile)")
    return _DirectoryFate("", f"{fate}; {why or translate('not pulled')}")


def _is_mount_within(group: ResultGroup, cell: QueueCell, told: CollectedResults) -> bool:
    """Return whether a directory is a mount inside a cell's directories.

    The cell's copy may be older than such a mount.
    """
    if told.results is not None:
        table = told.results.mounts
    else:
        table = ()
    return group.path not in (cell.out, cell.durable_path) and any(
        row.path == group.path for row in table
    )


def matches_glob(path: str, glob: str) -> bool:
    """Return whether a path or glob matches a directory or a parent of it.

    ``*`` also matches slashes.
    """
    parts = path.split("/")
    return any(
        fnmatchcase("/".join(parts[:end]), glob.rstrip("/")) for end in range(2, len(parts) + 1)
    )


def _find_proof_problem(group: ResultGroup, proof: CopyProof) -> str:
    """Return why a copy proves nothing; empty = it does."""
    if proof.errors:
        bad = [
            f"{quote_name(path)}: {quote_name(show_recorded(reason))}"
            for path, reason in proof.errors[:MOST_NAMED]
        ]
        more = ""
        if len(proof.errors) > len(bad):
            more = translate("; and {count} more", count=len(proof.errors) - len(bad))
        return translate(
            "its copy in {where} is incomplete: {names}{more}",
            where=quote_name(proof.where),
            names="; ".join(bad),
            more=more,
        )
    # An empty fingerprint means that the box could not compute one; two of them prove nothing.
    if not group.fingerprint or proof.fingerprint != group.fingerprint:
        return translate(
            "it has changed since it was copied to {where} (newest: {newest_path})",
            where=quote_name(proof.where),
            newest_path=quote_name(group.newest_path),
        )
    return ""


def _owning_cell(group: ResultGroup, state: BoxState) -> QueueCell | None:
    """Return the one cell that owns a directory; None if two queues have a cell of that name."""
    if not group.owner.startswith("cell "):
        return None
    name = group.owner.removeprefix("cell ")
    found = [cell for queue in state.queues for cell in queue.cells if cell.name == name]
    # With two owners of one name, either cell's copy may be the other's.
    if len(found) == 1:
        return found[0]
    return None


def _build_group_item(
    group: ResultGroup, fate: _DirectoryFate, at: float | None, skew: float
) -> EvidenceItem:
    if group.owner:
        owner = quote_name(group.owner)
    else:
        owner = translate("nobody owns it")
    text = (
        f"{quote_name(group.path)} ({owner}, {how_many(group.files, 'file')}, "
        f"{size(group.bytes)}) {fate.text}"
    )
    return EvidenceItem(
        key=directory_key(group.path),
        ok=bool(fate.safe),
        text=text,
        at=at,
        fact=f"{group.path} {group.owner} {group.fingerprint} {fate.text}",
        forfeitable=not fate.safe,
        ignorable=not group.owner and fate.safe != "copy",
        path=group.path,
        bytes=group.bytes,
        newest=group.newest - skew if group.newest else None,
    )


def _build_rest_item(groups: list[ResultGroup], at: float | None, skew: float) -> EvidenceItem:
    total = sum(group.bytes for group in groups)
    # Hashed, because thousands of paths would not fit into the evidence.
    facts = "\n".join(sorted(f"{group.path} {group.fingerprint}" for group in groups))
    newest = max(group.newest for group in groups)
    smaller = how_many(len(groups), "smaller directory", "smaller directories")
    largest = sorted(groups, key=lambda group: (-group.bytes, group.path))
    named = join_names([quote_name(group.path) for group in largest], MOST_NAMED)
    return EvidenceItem(
        key=f"{RESULTS}:and {len(groups)} more",
        ok=False,
        text=translate(
            "{smaller} ({size}): not on durable storage, no complete copy: {named}",
            smaller=smaller,
            size=size(total),
            named=named,
        ),
        at=at,
        fact=hashlib.sha256(facts.encode(errors="surrogatepass")).hexdigest(),
        forfeitable=True,
        bytes=total,
        newest=newest - skew if newest else None,
    )


_PROTECTED = {
    "copy": "pulled and verified",
    "durable": "with a verified durable copy",
    "storage": "on storage that stays",
    "ignored": "ignored",
}


def _summarize_fates(fates: list[tuple[ResultGroup, _DirectoryFate]]) -> str:
    parts = []
    for safe, words in _PROTECTED.items():
        found = [group for group, fate in fates if fate.safe == safe]
        if found:
            held = size(sum(group.bytes for group in found))
            parts.append(
                translate(
                    "{count} {words} ({size})",
                    count=len(found),
                    words=translate(words),
                    size=held,
                )
            )
    if parts:
        return translate("directories: {names}", names=", ".join(parts))
    return translate("no result on the box is at stake")


def _without_list(
    state: BoxState, profile: Profile, verb: BillingVerb, known: Mapping[str, str]
) -> Iterator[EvidenceItem]:
    """Report the results known from cells and checkpoints if the box cannot list them."""
    cells = [(queue.path, cell) for queue in state.queues for cell in queue.cells]
    copied = {cell.name for _, cell in cells if copy_survives(cell, profile, known, verb) is True}
    problems: dict[str, str] = {}
    for _, cell in cells:
        if verb is BillingVerb.DESTROY and cell.state == "done" and cell.name not in copied:
            problems[cell.name] = _find_durable_problem(cell, profile, known)
    if state.left_out.checkpoints:
        lists = how_many(state.left_out.checkpoints, "list of checkpoints", "lists of checkpoints")
        problems["checkpoints, left out"] = translate(
            "not kept of this box: {lists}; unknown whether a copy of them exists", lists=lists
        )
    for name, path in _map_result_paths(state, copied | problems.keys()).items():
        answer = path_survives(path, profile, known, verb)
        if answer is not True:
            if answer is False:
                fate = translate("is erased by it")
            else:
                fate = translate("may be erased by it (not in the profile)")
            problems[name] = translate(
                "what {name} has at {path} {fate}",
                name=quote_name(name),
                path=quote_name(path),
                fate=fate,
            )
    for name, text in problems.items():
        yield EvidenceItem(
            key=f"durable:{name}", ok=False, text=text, at=state.seen.sample, forfeitable=True
        )


def _map_result_paths(state: BoxState, handled: set[str]) -> dict[str, str]:
    """Return the paths of cells and runs that are not `handled`, by name."""
    paths: dict[str, str] = {}
    for queue in state.queues:
        for cell in queue.cells:
            if cell.name not in handled and cell.out and cell.state != "waiting":
                paths[cell.name] = cell.out
    for group in state.checkpoints:
        if group.run not in handled and group.items:
            paths[group.run] = group.items[-1].path
    return paths


def _find_durable_problem(cell: QueueCell, profile: Profile, known: Mapping[str, str]) -> str:
    """Return why a done cell's result would not survive a destroy."""
    name = quote_name(cell.name)
    if cell.durable != "verified" or not cell.durable_path:
        return translate(
            "{name} has no verified durable copy ({durable})",
            name=name,
            durable=cell.durable or translate("the job names no durable directory"),
        )
    tiers = tiers_of(cell.durable_path, profile, known)
    kinds = translate(" or ").join(tier.name for tier in tiers) or translate(
        "no known storage tier"
    )
    where = f"{quote_name(cell.durable_path)} ({kinds})"
    if path_survives(cell.durable_path, profile, known, BillingVerb.DESTROY) is False:
        return translate(
            "the copy of {name} at {where} is erased with the box", name=name, where=where
        )
    return translate(
        "no proof that the copy of {name} at {where} outlives the box", name=name, where=where
    )
