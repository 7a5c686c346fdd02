"""Keeps the catalogues of `rgt_tui/locale` in step with the texts in the code.

``translations.py update`` adds new texts to every catalogue, without a translation, and removes
those that are gone; ``compile`` writes the ``.mo`` files that rgt reads; ``check`` names what is
missing or cannot work. docs/translating.md is the guide.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import re
import string
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from rgt_tui.gate import ActionState, AuditEvent
from rgt_tui.language import AFTER_A_NUMBER
from rgt_tui.model import BillingVerb, BoxHealth, ClockMode, LinkState, Severity, StopPhase
from rgt_tui.profiles import change_texts, read_profile
from rgt_tui.profiles.readings import CARD_FIGURES
from rgt_tui.ui.plot.view import XAxis

ROOT = Path(__file__).resolve().parent.parent
LOCALE = ROOT / "rgt_tui" / "locale"

TEXTS_OF_CALLS: dict[str, tuple[int | str, ...]] = {
    "translate": (0,),
    "Command": (2, 3),
    "LegendRow": (1,),
    "StateLook": (2,),
    "FleetColumn": (1, 5),
    "Condition": (1, 2, "title", "word", "advice", "over"),
    "LifecycleCheck": (1,),
    "Choice": (1,),
    "ChoiceScreen": (0,),
    "FrameworkFault": (4,),
    "_choose_answer": (1, 2),
    "label_lines": (0,),
    "FilterValue": (2,),
    "percent_value": (1,),
    "amount_value": (1,),
    "_label_rows": (0,),
    "_text_lines": (0,),
    "_named_line": (0,),
    "PageRow": (0,),
    "CliCommand": (2, 3),
    "flag": (0,),
    "flag_choice": ("park", "ask", "destroy", "test", "status", "remove"),
    "text_option": (1,),
    "list_option": (1,),
    "option": (2,),
    "positional": (1,),
}
"""Function → which of its arguments a person reads. Only literals count: the rest is data."""

TEXTS_OF_TABLES = {
    "ACTION_WORDS": "values",
    "COMMUNITY_NOTE": "values",
    "DEARER": "values",
    "DISKS_IN_PRICE": "values",
    "LOADING": "values",
    "NODE_BILLS": "values",
    "NOTES": "values",
    "NOT_YET": "values",
    "MUTED": "values",
    "NO_PARK": "values",
    "NO_SPOT": "values",
    "NO_STOP": "values",
    "OFF_BILLS": "values",
    "RATE_UNIT": "values",
    "RESERVED": "values",
    "SPOT_NOTES": "values",
    "BY_CALL": "values",
    "BY_CLICK": "values",
    "FIRST_CONTACT": "values",
    "KNOWN": "values",
    "ADVICE": "values",
    "NO_DETACH": "values",
    "CANNOT": "values",
    "FLEETING": "values",
    "IN_POD": "values",
    "LOST_MACHINE": "values",
    "ARGPARSE_TEXTS": "values",
    "CANNOT_PROMPT": "values",
    "NONE_FOUND": "values",
    "NONE_KEPT": "values",
    "NOTICE": "values",
    "NOT_HERE": "values",
    "REPLAY": "values",
    "HINT": "values",
    "FAREWELL": "values",
    "SPANS": "values",
    "UNACCEPTED": "values",
    "UNSURE": "values",
    "UNUSED": "values",
    "UNTRUSTED": "values",
    "STATUS_WORDS": "values",
    "RECORDING_HINT": "values",
    "_KINDS": "values",
    "subcommand_brief": "values",
    "SPEED_NAMES": "values",
    "_LINE": "values",
    "_CONFIG": "values",
    "_TRUSTED": "values",
    "_WAY": "values",
    "_NO_BOX": "values",
    "_LOST": "values",
    "DASHBOARD": "values",
    "_WHEN": "values",
    "_WORD": "values",
    "_CONFIDENCE": "values",
    "_BEGINNINGS": "values",
    "NOT_MOUNTED": "values",
    "ON_ROOT": "values",
    "OURS": "values",
    "PLACE": "values",
    "QUESTION_WORDS": "values",
    "QUESTION_OVER": "values",
    "QUESTION_HINTS": "values",
    "WHY_NOT": "values",
    "NO_TRANSFERS": "values",
    "NO_PULL_KEPT": "values",
    "NO_MOMENTS": "values",
    "NO_HISTORY": "values",
    "ALL_BOXES": "values",
    "TOO_SOON": "values",
    "FLEET_GROUPS": "values",
    "NO_AXIS": "values",
    "PROCESS_STATES": "values",
    "NUMBER_KINDS": "values",
    "TAKEN_KEYS": "values",
    "KEPT_FILES": "values",
    "THROTTLE_WORDS": "values",
    "_PROTECTED": "values",
    "RESULT_FATES": "values",
    "STILL_BILLED": "values",
    "UNITS": "values",
    "page_parts": "values",
    "DONE": "values",
    "NEXT_STEPS": "values",
    "PHASES": "values",
    "READY": "values",
    "UNDO": "values",
    "_AS_ASKED": "values",
    "_BILLED": "values",
    "_ENDED": "values",
    "_FREE_AGAIN": "values",
    "_SHORT_OF": "values",
    "GROUPS": "keys",
    "STYLES": "keys",
    "NEARLY": "values",
    "FIGURE_NAMES": "values",
    "PLACE_WORDS": "values",
    "WEEKDAYS": "values",
    "READ_FROM": "values",
    "PHASE_WORDS": "values",
    "ELSEWHERE": "keys",
    "TITLES": "values",
}
"""Module-level table → which side of it a person reads; of a tuple, every text."""

EVIDENCE_KINDS = (
    *("identity", "quiet", "queue", "results", "provider", "seal", "pods", "protected"),
    *("readonly", "durable", "tiers", "open"),
)
"""Kinds of evidence: parts of keys, which the teardown dialog shows translated."""

TRANSFER_PHASES = (
    *("connecting", "listing", "comparing", "pulling", "pushing", "sending", "verifying", "done"),
)
"""Phases of a transfer, which are shown translated."""

TRANSFER_KINDS = ("pull", "push code", "push data", "push trainer", "on box")
LAYERS = ("session", "log", "curve", "cgroup")
"""Sources of data of a box, which a check names."""

CONTEXT_END = "\x04"
"""Between the context of a text and the text, as in gettext's own files."""

TEXTS_OF_PAGES = ("title", "symptom", "cause", "never", "resource")
"""Keys of a handbook page; its steps' ``text`` is the other one."""


def list_literals(node: ast.expr) -> Iterator[str]:
    """Yield the text of a literal, or those of a tuple or of both sides of a conditional expression."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from list_literals(node.body)
        yield from list_literals(node.orelse)
    elif isinstance(node, ast.Tuple):
        for one in node.elts:
            yield from list_literals(one)


def read_noun(call: ast.Call) -> Iterator[tuple[int, str]]:
    """Yield both forms of the noun of a call of ``how_many``, in the context of such nouns."""
    nouns = [text for one in call.args[1:3] for text in list_literals(one)]
    if len(nouns) == 1:
        nouns.append(nouns[0] + "s")
    for noun in nouns:
        yield call.lineno, f"{AFTER_A_NUMBER}{CONTEXT_END}{noun}"


def read_module(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of everything in a module that is translated."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name == "build_epilog":
                for one in node.args[1:]:
                    for literal in list_literals(one):
                        yield one.lineno, literal.partition("   ")[2]
            if name == "how_many":
                yield from read_noun(node)
            if name == "translate_in":
                for context in list_literals(node.args[0]):
                    for literal in list_literals(node.args[1]):
                        yield node.lineno, f"{context}{CONTEXT_END}{literal}"
            for place in TEXTS_OF_CALLS.get(name, ()):
                found = [one.value for one in node.keywords if one.arg == place]
                if isinstance(place, int):
                    found = node.args[place : place + 1]
                for one in found:
                    for literal in list_literals(one):
                        yield one.lineno, literal
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {one.id for one in targets if isinstance(one, ast.Name)}
            for table in names & TEXTS_OF_TABLES.keys():
                side: Iterable[ast.expr | None] = ()
                if isinstance(node.value, ast.Tuple | ast.Constant):
                    side = [node.value]
                elif isinstance(node.value, ast.Dict):
                    side = node.value.keys
                    if TEXTS_OF_TABLES[table] == "values":
                        side = node.value.values
                for one in filter(None, side):
                    for literal in list_literals(one):
                        yield one.lineno, literal
            if "examples" in names and node.value is not None:
                for literal in list_literals(node.value):
                    yield node.lineno, literal.partition("   ")[2]
            if "about" in names and node.value is not None:
                for literal in list_literals(node.value):
                    yield node.lineno, textwrap.dedent(literal).strip()


def read_pages(text: str) -> Iterator[str]:
    """Yield the texts of the pages of a handbook file."""
    found = tomllib.loads(text)
    if found.get("topic"):
        yield found["topic"]
    for page in found.get("pages", ()):
        yield from (page[key] for key in TEXTS_OF_PAGES if page.get(key))
        yield from (fix["text"] for fix in page.get("fixes", ()))


def read_profile_texts(path: Path) -> list[str]:
    """Return the texts of a profile that a person reads."""
    found: list[str] = []

    def keep_text(text: str) -> str:
        found.append(text)
        return text

    change_texts(read_profile(path), keep_text)
    return found


_WORD = re.compile(r"(?<![\w./=<{-])[A-Za-z][a-z']+(?![\w/=(}])")
CODE = re.compile(r"^\n|^trap |[\\<>|]|^rgt |%s|\(\?|^[a-z-]+ --?|^\S+\[|^Line Span|\{ width")
"""What is no sentence for a person, although it has some words."""
_NAMES = {"description", "name", "about", "fact", "key"}
"""Arguments that are names of workers, keys or facts."""


def list_sentences(tree: ast.Module, least_words: int = 3) -> Iterator[tuple[int, str]]:
    """Yield texts of some words that could be shown, with ``{v1}`` for the first value."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        inner: Iterable[ast.AST] = ()
        if isinstance(node, ast.JoinedStr):
            values = [each for each in node.values if isinstance(each, ast.FormattedValue)]
            inner = [each for each in node.values if isinstance(each, ast.Constant)]
            inner += [
                spec for each in values if each.format_spec for spec in ast.walk(each.format_spec)
            ]
        elif isinstance(node, ast.keyword) and node.arg in _NAMES:
            inner = ast.walk(node.value)
        elif isinstance(node, ast.Assert) and node.msg is not None:
            inner = ast.walk(node.msg)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inner = (node.value,)
        skipped.update(map(id, inner))
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            number = 0
            for each in node.values:
                if isinstance(each, ast.Constant):
                    text += str(each.value).replace("{", "{{").replace("}", "}}")
                else:
                    number += 1
                    text += f"{{v{number}}}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        if id(node) not in skipped and len(_WORD.findall(text)) >= least_words:
            yield getattr(node, "lineno", 0), text


RECORDED_IN = {
    "transfer": 2,
    "ssh": 3,
    "store": 3,
    "recordings": 3,
    "profiles/loader.py": 3,
    "profiles/profile_faults.py": 3,
    "handbook": 3,
}
"""Packages and modules whose sentences, f-strings included, stay in English in the code and are
shown by `show_recorded`; and of how many words such a sentence is at least."""
BOX_MESSAGES_IN = (
    *(f"queue/{name}.py" for name in ("cell_process", "runner", "durable_copy", "disk_budget")),
    *(f"queue/{name}.py" for name in ("queue_file", "queue_check", "job_making", "launch")),
    *(f"queue/{name}.py" for name in ("queue_command", "queue_edit", "queue_state", "detach")),
    *(f"autostop/{name}.py" for name in ("idle_clock", "work_signs", "progress_watch")),
    "sampling/xid.py",
    "recorder/preemption.py",
)
"""Modules of the agent whose messages a person sees most: why a cell ended, what keeps a box from
stopping itself, Xids. The agent has no catalogue; `show_recorded` translates them on arrival."""
NOT_SHOWN_IN = (
    "transfer/safe_names.py",
    "ssh/bundle.py",
    "ssh/login_shell.py",
    "handbook/envelopes.py",
    "handbook/line_search.py",
    "handbook/torn_tracebacks.py",
)
NOT_SENTENCES = re.compile(
    r"^(SELECT|DELETE|UPDATE|CREATE|INSERT)|\?$|= \?|:box\b|^import |^must be|not found$"
    r"|^cannot get"
    r"|^is not valid|^no such file|^Invalid enum|^missing required"
)
"""Queries of a database, programs, and words that other programs print."""


def read_recorded() -> Iterator[tuple[str, int, str]]:
    """Yield module, line and text of every sentence that `show_recorded` has to know."""
    for place, least_words in RECORDED_IN.items():
        found = ROOT / "rgt_tui" / place
        for path in sorted(found.rglob("*.py")) if found.is_dir() else [found]:
            name = str(path.relative_to(ROOT))
            if name.removeprefix("rgt_tui/") not in NOT_SHOWN_IN:
                for line, text in list_sentences(ast.parse(path.read_text("utf-8")), least_words):
                    if not CODE.search(text) and not NOT_SENTENCES.search(text):
                        yield name, line, text


_NO_MESSAGE = re.compile(
    r"%[dg.]|\{\}|^#!|^(?:boot awake|active unknown|path changed|at path mark|google compute|cell path|name state)"
)
"""A message that is filled in by position, which is not matched, or names of fields."""


def read_box_messages() -> Iterator[tuple[str, int, str]]:
    """Yield module, line and text of the agent's messages that are translated on arrival."""
    for name in BOX_MESSAGES_IN:
        path = ROOT / "remote" / "rgt_box" / name
        least_words = 2 if name == "sampling/xid.py" else 3
        for line, text in list_sentences(ast.parse(path.read_text("utf-8")), least_words):
            shown = " " in text.strip() and not NOT_SENTENCES.search(text)
            if shown and not CODE.search(text) and not _NO_MESSAGE.search(text):
                yield f"remote/rgt_box/{name}", line, text


def collect_texts() -> dict[str, list[tuple[str, int]]]:
    """Return every text that is translated, with the places that have it."""
    found: dict[str, list[tuple[str, int]]] = {}
    for path in sorted((ROOT / "rgt_tui").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for line, text in read_module(path.read_text("utf-8")):
            # A column's title has blanks before it, and a name without a letter needs no
            # translation.
            if any(one.isalpha() for one in text):
                found.setdefault(text.strip(" "), []).append((name, line))
    for name, line, text in (*read_recorded(), *read_box_messages()):
        found.setdefault(text.strip(" "), []).append((name, line))
    for word in (
        *(*BoxHealth, *ClockMode, *LinkState, *BillingVerb),
        *(*StopPhase, *ActionState, *AuditEvent, *XAxis, *Severity),
    ):
        found.setdefault(word.value, []).append(("rgt_tui/model", 1))
    for word in (*TRANSFER_PHASES, *TRANSFER_KINDS, *LAYERS, *CARD_FIGURES):
        found.setdefault(word, []).append(("rgt_tui", 1))
    for kind in EVIDENCE_KINDS:
        found.setdefault(kind, []).append(("rgt_tui/gate/evidence.py", 1))
    for path in sorted((ROOT / "handbook").glob("*.toml")):
        for text in read_pages(path.read_text("utf-8")):
            found.setdefault(text, []).append((f"handbook/{path.name}", 1))
    for path in sorted((ROOT / "profiles").glob("*.toml")):
        for text in read_profile_texts(path):
            if any(one.isalpha() for one in text):
                found.setdefault(text, []).append((f"profiles/{path.name}", 1))
    return found


def split_context(text: str) -> tuple[str, str | None]:
    """Return a text and its context, if it has one."""
    context, end, bare = text.rpartition(CONTEXT_END)
    return bare, context if end else None


def find_message(catalogue: Catalog, text: str) -> Message | None:
    """Return the entry of a text."""
    return catalogue.get(*split_context(text))


def fields_of(text: str) -> set[str]:
    """Return the names in braces.

    Raises:
        ValueError: A brace is not closed.
    """
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


SAME_IN_CHINESE = {
    "平台": "`provider` is the platform's API; the table of terms has one word for both",
    "关机": "`park` is the verb, `a stop` the same deed as a noun",
    "密钥": "a secret that is a key",
    "显存": "`video memory` explains the column, `memory of the GPU` is the same resource",
    "温度": "`temp` is short for `temperature`",
    "事件": "the journal is the list of the events",
    "没有响应": "`no answer` and `does not answer`",
    "只读": "a key of the evidence is written without the hyphen",
    "停止": "Lanrui's own label is Chinese",
}
"""A translation that several English texts may share although their words differ, and why."""

_FORM_WORDS = frozenset(
    (
        "a",
        "an",
        "the",
        "its",
        "it",
        "their",
        "this",
        "that",
        "of",
        "is",
        "are",
        "has",
        "one",
        "does",
        "do",
    )
)
_ENDINGS = re.compile(r"(?<=\w{3})(?:ies|ion|ing|ed|es|s|e|y)$")


def list_stems(text: str) -> list[str]:
    """Return the stems of the words of a text that carry meaning, in alphabetical order."""
    words = re.findall(r"\w+", text.casefold().replace("-", ""))
    stems = []
    for word in words:
        if word not in _FORM_WORDS:
            while (shorter := _ENDINGS.sub("", word)) != word:
                word = shorter
            stems.append(re.sub(r"(.)\1$", r"\1", word))
    return sorted(stems)


def find_merged_texts(texts: Iterable[str], catalogue: Catalog) -> list[str]:
    """Return a sentence for each group of English texts that are one text in the translation.

    A record that is read back would then depend on the language, and a person could not tell the
    two apart. Texts with values must differ. Texts without values may be forms of the same words
    ("the pod", "pods").
    """
    groups: dict[tuple[str | None, str], list[str]] = {}
    for text in texts:
        message = find_message(catalogue, text)
        if message is not None and message.string:
            bare, context = split_context(text)
            groups.setdefault((context, str(message.string)), []).append(bare)
    return [
        f"one translation for {', '.join(map(repr, group))}: {translation!r}"
        for (_, translation), group in groups.items()
        if len(group) > 1
        and translation not in SAME_IN_CHINESE
        and (
            any(find_fields(text) for text in group)
            or any(list_stems(text) != list_stems(group[0]) for text in group)
        )
    ]


def find_fields(text: str) -> set[str]:
    """Return the names in braces; none if a brace is not closed."""
    with contextlib.suppress(ValueError):
        return fields_of(text)
    return set()


def find_faults(texts: Iterable[str], catalogue: Catalog) -> list[str]:
    """Return a sentence for each text that is missing, or that cannot be filled in."""
    faults = []
    for text in texts:
        message = find_message(catalogue, text)
        if message is None or not message.string:
            faults.append(f"no translation: {text!r}")
            continue
        # Chinese is always shorter; a text of this length that is not was pasted twice.
        if len(text) > 200 and len(str(message.string)) > len(text):
            faults.append(f"longer than the English: {text[:80]!r}")
        if message.fuzzy:
            faults.append(f"not looked at since the English changed: {text!r}")
        try:
            wanted, given = fields_of(text), fields_of(str(message.string))
            # An ending of the plural: wait{v2}.
            same = wanted - set(re.findall(r"(?<=[a-z])\{(\w+)\}", text)) <= given <= wanted
        except ValueError:
            # A text with a brace that is no field, such as a command of a shell: it is never filled
            # in.
            same = True
        if not same:
            faults.append(f"other names in braces than the English: {message.string!r}")
    faults += find_merged_texts(texts, catalogue)
    known = {split_context(text) for text in texts}
    faults += [
        f"no longer used: {one.id!r}"
        for one in catalogue
        if one.id and (one.id, one.context) not in known
    ]
    return faults


def read_catalogue(path: Path) -> Catalog:
    """Read a ``.po`` file."""
    with path.open("rb") as file:
        return read_po(file, locale=path.parents[1].name)


def write_catalogue(path: Path, catalogue: Catalog) -> None:
    """Write a ``.po`` file: sorted by text, and without line numbers, which change with every commit."""
    with path.open("wb") as file:
        write_po(file, catalogue, width=0, no_location=True, sort_output=True, omit_header=False)


def compiled(catalogue: Catalog) -> bytes:
    """Return the bytes of the ``.mo`` file."""
    out = BytesIO()
    write_mo(out, catalogue)
    return out.getvalue()


def update_catalogue(path: Path, texts: Iterable[str]) -> int:
    """Add the new texts to a catalogue and drop the others; return how many lack a translation."""
    old = read_catalogue(path)
    new = Catalog(
        locale=old.locale,
        project="rgt",
        fuzzy=False,
        header_comment=old.header_comment,
        # The time of this run would change the file without a change of text.
        creation_date=old.creation_date,
        revision_date=old.revision_date,
        last_translator="rgt",
        language_team="rgt",
        msgid_bugs_address="",
        version="",
    )
    missing = 0
    for text in texts:
        known = find_message(old, text)
        found = str(known.string) if known is not None else ""
        bare, context = split_context(text)
        new.add(bare, found, context=context)
        missing += not found
    write_catalogue(path, new)
    return missing


def list_catalogues() -> list[Path]:
    """Return the ``.po`` files."""
    return sorted(LOCALE.glob("*/LC_MESSAGES/rgt.po"))


def list_faults() -> list[str]:
    """Return a sentence for everything that is wrong with a catalogue, the language first."""
    texts = collect_texts()
    out = []
    for path in list_catalogues():
        catalogue = read_catalogue(path)
        found = find_faults(texts, catalogue)
        if path.with_suffix(".mo").read_bytes() != compiled(catalogue):
            found.append("rgt.mo is older than rgt.po: scripts/translations.py compile")
        out += [f"{path.parents[1].name}: {one}" for one in found]
    return out


def main() -> int:
    """Run one of the three verbs on all catalogues."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("verb", choices=("update", "compile", "check"))
    verb = parser.parse_args().verb
    if verb == "check":
        faults = list_faults()
        print("\n".join(faults) or "complete")
        return min(len(faults), 1)
    texts = collect_texts()
    for path in list_catalogues():
        if verb == "update":
            missing = update_catalogue(path, texts)
            print(f"{path.parents[1].name}: {len(texts)} texts, {missing} without a translation")
        else:
            path.with_suffix(".mo").write_bytes(compiled(read_catalogue(path)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
