"""The text of a line between its numbers: what names them, and which of them are positions and measures."""

from __future__ import annotations

import re

from rgt_wire.metric_roles import (
    COUNT,
    EVALUATION,
    FILLER,
    MEASURES,
    NO_VALUES,
    OTHER,
    RATE,
    SCORE,
    SPEED,
    TIME,
    position_of,
    role_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class NumberSlot(NamedTuple):
        """One number of a line, as the text around it names it."""

        tag: str
        """The name of a value; "" for a position and for a number without a name."""
        kind: str
        """``step``, ``epoch``, ``samples``, ``within`` (n of a total), ``hits`` (the same, after a
        score), ``bare``, ``edge``, ``listed``, or "".
        """
        rank: int
        """How reliable a position of this name is; 0 is best."""

    class LinePlan(NamedTuple):
        """What the text of a line says about its numbers."""

        slots: tuple[NumberSlot, ...]
        split: str
        """``val`` or another word for an evaluation; "" for training."""
        measures: bool
        """One of the values is a measure."""
        is_row: bool
        """A row of a table: ``| name | 1.0 |``."""
        is_pair: bool = False
        """It is ``name: 1.0``, and nothing else."""
else:
    from collections import namedtuple

    NumberSlot = namedtuple("NumberSlot", "tag kind rank")
    LinePlan = namedtuple("LinePlan", "slots split measures is_row is_pair", defaults=(False,))

# Not from within such a run: it would be tried from each of its characters.
_OPENS = re.compile(
    r"(?<![#\[({'\"+\s-])(?:#|\[|\(|\{|'|\"|tensor\(|array\(|np\.\w{1,20}\(|[-+]|\s)+$"
)
_CUT = re.compile(r"[,;|{}\[\]\t<>!?()\"':=]|\s{2,}|\s[-–—•*>#]+\s|[-=*]{4,99}|(?<=\w)\.\s")
_ABBREVIATION = re.compile(r"[,|] ?[A-Z][\w-]{1,8}$")
"""Before the point in ``, Mel-Spec. Error : 0.4``."""
UNIT_END = re.compile(r"\s?\([^()]{1,12}\)$")
_UNIT = re.compile(r"([A-Za-z][\w/]{0,15})| ([A-Za-z][\w/]{0,15})(?!\s*[\w:=])")
"""The word after a number: attached to it, or with nothing else before the next number."""
_ATTACHED = re.compile(r"^[A-Za-z%µ][\w%/]{0,15}(?![\w%/]|\s?[:=])")
"""Such a word at the beginning of a text; "idx: 3loss: 0.5" is no unit, but a name."""
_INDEXED = re.compile(r"[\])]\s?[:=]")
"""What follows the number in ``loss[3] = 0.5``."""
_PHRASE = re.compile(r" ([A-Za-z_]{1,40}(?: [A-Za-z_]{1,40}){0,2} ?)(?=[,;|)\]]|\s{2}|$)")
"""A name that follows its number: ``2.31 avg loss,``."""
_WORD = re.compile(r"(?:\d[a-z]_)?[^\W\d][\w./@%+\-]*$")
_EDGE = re.compile(r"\]?\s?[|:]|\]\s")
"""After a number with which a line begins: ``1600:``, ``490 |``, ``[12]``."""
_BRACKETED = re.compile(r"\[([A-Za-z][\w .-]{0,40})\]$")
"""A name in brackets of its own: ``[loss]: 4.99``."""
_LEVELS = ("SUCCESS", "DEBUG", "WARNING", "TRACE", "NOTICE")
_SET = frozenset((*EVALUATION, "set", "split", "subset", "dataset"))
_AT = frozenset(["at", "for", "from", "in", "of", "on", "after", "to"])
_IS = (":", "is", "was", "is:", "=")
"""The words between a position and the number that the words before it name."""
_COUNTED = frozenset(["every", "each", "per", "episode", "last", "next", "has", "for", "after"])
"""Words before ``200 steps`` that make it a length, and no position."""
USUAL_NAMES = {
    "trn": "train",
    "tst": "test",
    "learning rate": "learning_rate",
    "grad norm": "grad_norm",
    "gradnorm": "grad_norm",
    "tok/s": "tok/sec",
    "tokens/s": "tok/sec",
    "tokens/sec": "tok/sec",
    "samples/s": "samples/sec",
    "training loss": "train_loss",
    "train loss": "train_loss",
    "val loss": "val_loss",
    "valid loss": "valid_loss",
    "validation loss": "val_loss",
    "eval loss": "eval_loss",
    "total loss": "total_loss",
    "validation bpb": "val/bpb",
}
PATH = 20
"""Added to the rank of ``time/total_timesteps``: a position only where no line has a plain one."""
_OPENS_LIST = re.compile(r"(?:^\s*|\t|:|INFO:?\s*|[\]>|-] ?)\[$")
"""A list without a name: at the beginning of the line, or after what a logger prints there."""
_ONLY_NAME = re.compile(r"\s*[A-Za-z_][\w/.\-]{0,80}\s?:\s+$")
"""The name of a pair that has a line of its own, as in YAML."""
_PAIR = re.compile(r"\s*\[\s*0,\s*0\s*\]")
"""Two numbers in brackets at the beginning of a line."""


def _cut_name(text: str) -> tuple[str, str, bool]:
    """Return (name, text before it, whether a separator follows it) of the number after `text`."""
    # "training's auc" (LightGBM) becomes "training/auc": the word of the split stays a prefix.
    text = _OPENS.sub("", text).replace("'s ", "/")
    marked = text[-1:] in (":", "=", "|")
    if marked:
        text = _BRACKETED.sub(r"\1", text[:-1].rstrip())
    text = text.rstrip("'\"\\ ")
    unit = UNIT_END.search(text)
    if unit:
        base = text[: unit.start()]
    else:
        base = text
    start = 0
    for cut in _CUT.finditer(base):
        if (
            cut.group() != ". "
            or _ABBREVIATION.match(base[max(0, start - 1) : cut.start()]) is None
        ):
            start = cut.end()
    if base.endswith("..."):
        base = base.rstrip(".")  # "Epoch... (3/116"
    words = base[start:].replace("/global_step", "global_step").lstrip("/").split()
    if len(words) > 2 and words[-2].lower() in _AT and position_of(words[-1]) is not None:
        return words[-1], base[: base.rfind(words[-1])], marked  # "Average loss from batch 50"
    while words and (words[0].lower() in FILLER or words[0] in _LEVELS):
        words.pop(0)
    while words and words[-1].lower() in FILLER:
        words.pop()
    most_words = 4
    if marked:
        most_words = 5
    if len(words) > most_words:
        known = " ".join(words[-2:])
        if role_of(known) in MEASURES or not marked:
            words = words[-2:]
        else:
            words = words[-3:]
        if not marked and role_of(known) not in MEASURES and position_of(words[-1]) is None:
            words = []
    if not words or not all(_WORD.match(word.strip("'\"")) for word in words):
        words = [word for word in words[-1:] if _WORD.match(word)]
    name = " ".join(words)
    # "train.py:128" is where a logger was called: neither a value nor a bare position.
    if name.endswith((".py", ".cc", ".cpp", ".rs", ".go", ".h", ".c")):
        name = ""
        marked = True
    return name, base[:start], marked


_LISTED = r"[A-Za-z](?:[\w@.%+\-]| (?=[\w@.%+\-])){0,30}"
"""A name in a list; it does not end with a blank, so a text is divided into names in one way only.
"""
_LIST = re.compile(
    rf"(?P<names>{_LISTED}(?:\s{{0,2}}[,/|]\s?{_LISTED}){{1,15}})\s{{0,4}}[)\]}}]?"
    r"\s{0,4}(?:=+>|-+>|[=:/|]){1,2}\s{0,4}[(\[{]?\s?$"
)
"""Several names before as many numbers: ``P/R/F1: ``, ``Loss:(pitch, yaw)/(``, ``loss, acc ===> ``.
"""
_BETWEEN = re.compile(r"\s{0,3}[,/|;]?\s{0,3}$")
_COMMA_NAME = re.compile(
    r"(?:[^\n]{0,200}[\s({\[:;'\"])?\W{0,9}([A-Za-z_][\w/ .\-]{0,40}?)\s?[:=]?['\"]?\s?,\s{0,2}['\"(\[]?$"
)
"""A name that a comma divides from its number, as ``print("loss", loss, sep=",")`` writes it."""


def _find_comma_name(text: str) -> re.Match[str] | None:
    # Only the end of a text counts, so that a long one takes no time.
    return _COMMA_NAME.match(text[-100:])


def name_each_number(texts: list[str]) -> list[str]:
    """Return the texts between the numbers of a line with a name right before each number.

    Several names may precede as many numbers, or a comma may divide a name from its number.
    """
    texts = list(texts)
    if len(texts) > 2 and all("," in text for text in texts[1:-1]):
        names = [found.group(1) for found in map(_find_comma_name, texts[:-1]) if found]
        if len(names) == len(texts) - 1:
            return [*(f", {name}: " for name in names), texts[-1]]
    place = 0
    while place < len(texts) - 2:
        found = _LIST.search(texts[place])
        if found is not None:
            end = place + 1
            while end < len(texts) - 1 and _BETWEEN.match(texts[end]):
                end += 1
            names = _split_names(found.group("names"), end - place)
            if names:
                before = texts[place][: found.start()]
                group = ""
                if texts[place][found.start() - 1 : found.start()] in ("(", "["):
                    group = _cut_name(before)[0]
                if group:
                    names = [name if position_of(name) else f"{group}/{name}" for name in names]
                    before = before.rpartition(group)[0]
                texts[place:end] = [
                    f"{before}, {names[0]}: ",
                    *(f", {name}: " for name in names[1:]),
                ]
                place = end - 1
        place += 1
    return texts


def _split_names(text: str, count: int) -> list[str]:
    """Return the names of a list for `count` numbers; [] if it has others.

    A word for the set may come first ("val, round, loss"), and the last one may have a word
    that all of them share ("train/val loss").
    """
    names = [name.strip() for name in re.split(r"[,/|]", text)]
    if len(names) == count + 1 and names[0].lower() in (*EVALUATION, "train", "training"):
        names = [names[1], *(f"{names[0]}/{name}" for name in names[2:])]
        if position_of(names[0]) is None:
            return []
    if len(names) != count or count < 2:
        return []
    *first, last = names[-1].split()
    sets = (*EVALUATION, "train", "training")
    if first and all(name.lower() in sets for name in names[:-1]) and first[0].lower() in sets:
        names = [*(f"{name} {' '.join([*first[1:], last])}" for name in names[:-1]), names[-1]]
    return names


_SETTING = re.compile(
    r"[=:]\s?(?:True|False|None|'[^'\d\s][^']{0,200}'|\"[^\"\d\s][^\"]{0,200}\")(?=[,)}\s]|$)"
)
"""A setting: ``use_amp=False``, ``'model': 'SSCNN'``. Figures are numbers, or numbers in quotes."""
_CHANGE = re.compile(r"\b(?:decreased|increased|improved|dropped)\b", re.I)
"""A name with such a word is that of two numbers, the old and the new one: ``(0.71 --> 0.70)``."""


def plan_line(texts: list[str], totals: list[str | None]) -> LinePlan:
    """Understand the texts between the numbers of a line."""
    slots: list[NumberSlot] = []
    # A word such as "val" counts only before the first value: after it, it is part of another
    # name.
    split = ""
    measured = False
    measures = False
    tuple_name = ""
    indexed = ""
    # "1600: 1.68, 2.13 avg, 0.001 rate, 5.54 seconds": each name follows its number.
    edge = texts[0].strip() in ("", "[") and _EDGE.match(texts[1]) is not None
    listed = edge and sum(1 for text in texts[1:] if _PHRASE.match(text)) >= 3
    for place, total in enumerate(totals):
        text = texts[place]
        after = texts[place + 1]
        if place:
            text = _ATTACHED.sub("", text)  # the unit of the number before
        name, before, marked = _cut_name(text)
        if not split and not any(slot.tag for slot in slots):
            split = split_word(before if name else text)
        if name:
            position = position_of(name)
        else:
            position = None
        unit = _UNIT.match(after)
        if text.endswith((" has ", " had ", " took ")):
            position = None  # "Episode has 151 steps"
        if (
            position is None
            and name
            and total is None
            and text[-1:] in ("[", "(")
            and text[-2:-1].isalnum()
            and _INDEXED.match(after)
            and place + 2 < len(texts)
        ):
            slots.append(NumberSlot("", "edge", 9))  # "loss[3] = 0.5"
            indexed = name
            continue
        if indexed and not name:
            name, indexed = indexed, ""
        if position is not None:
            split = split or split_word(name)
        if unit is not None and unit.group(1) and position_of(unit.group(1)):
            position = position_of(unit.group(1))  # "1epoch:train:683-1364batch:"
        elif position is None and not name and not marked and unit is not None:
            word = unit.group(1) or unit.group(2)
            position = position_of(word)
            if position is None and "/s" in word:
                name = word
        counted = position is not None and unit is not None and unit.group(2) and not name
        if counted and not _COUNTED.isdisjoint(re.findall(r"[a-z]+", text.lower())):
            position = None
        if position is None and not name and not marked:
            phrase = _PHRASE.match(after)
            # " loss " right before another number is the name of that one.
            if phrase is not None and place + 1 < len(totals) and phrase.end() == len(after):
                phrase = None
            if phrase is not None and (listed or role_of(phrase.group(1)) in (*MEASURES, RATE)):
                name = phrase.group(1).strip()
        if not name and place and text.strip().lower() in _IS:
            name = _leading_measure(texts[0])
        if not name and text == ", " and len(slots) and slots[-1].kind == "bare":
            name = tuple_name
        tag = ""
        kind = ""
        rank = 9
        if (after == ":" and place + 1 < len(totals)) or text == ":":
            pass  # a time of day
        elif position is not None and after[:1] != "%":
            kind, rank = position
            if "/" in name and position_of(name.partition("/")[0]) is None:
                rank += PATH
        elif not name:
            if total is not None:
                # PyTorch's MNIST example and open_clip count samples within "Train Epoch: 3".
                by_samples = place == 1 and "train epoch" in texts[0].lower()
                kind = "within"
                if slots and text.strip("%, ") == "(" and role_of(slots[-1].tag) == SCORE:
                    kind = "hits"  # "accuracy: 93.5%, (935/1000)"; their ratio has to agree
                elif by_samples:
                    kind = "samples_within"
            elif edge and not place:
                kind = "edge"
            elif not marked and unit is None and after[:1] not in ("%", ".") and not measured:
                kind = "bare"
            elif len(slots) == 1 and measured and text == " " and not after:
                kind = "edge"  # "losses/q1_loss 65.36 193000"
        elif text.endswith("[") and after.strip() == ",":
            pass  # the first of a list
        elif text.endswith("(") and after.strip() == "," and role_of(name) not in MEASURES:
            kind = "bare"  # "fit progress: (3, 0.41, {'accuracy': 0.87})"
            tuple_name = name
        elif not measured and _SET.issuperset(name.lower().split()):
            split = split or split_word(name)  # "VALID SET 0 LOSS:0.17"
        elif name.lower() not in NO_VALUES and _CHANGE.search(name) is None:
            tag = USUAL_NAMES.get(name.lower(), name)
            if tag.lower() in ("loss", "lr"):
                tag = tag.lower()
            measured = True
            measures = measures or role_of(tag) in MEASURES
        slots.append(NumberSlot(tag, kind, rank))
    slots = _tell_apart(slots, texts)
    word = texts[1].strip().lower() if len(slots) == 2 else ""
    if word in ("train", *EVALUATION) and texts == ["", f" {texts[1].strip()} ", ""]:
        # "250 val 3.2921": build-nanogpt's log.txt has a step, a word and a loss in each line.
        slots = [NumberSlot("", "bare", 9), NumberSlot(texts[1].strip(), "", 9)]
        split, measures = "", True
    first = next((place for place, slot in enumerate(slots) if slot.kind), 0)
    for place in range(first):
        # "olmo.train:908  INFO": where a logger was called
        if role_of(slots[place].tag) == OTHER and texts[place].endswith(":"):
            slots[place] = NumberSlot("", "", 9)
    for place in range(1, len(slots)):
        # "[train: 120, 121 / 125]": an epoch without that name
        if slots[place].kind == "within" and slots[place - 1].tag.lower() in (
            "train",
            "training",
            *EVALUATION,
        ):
            slots[place - 1] = NumberSlot("", "epoch", 6)
    bracketed = [slot.kind for slot in slots[:2]] == ["bare", "bare"] and _PAIR.match(
        "0".join(texts[:3])
    )
    if measures and bracketed and not any(slot.kind not in ("", "hits") for slot in slots[2:]):
        # "[2,  4000] loss: 1.9": epoch and batch, as PyTorch's tutorials print them
        slots[:2] = [NumberSlot("", "epoch", 6), NumberSlot("", "step", 5)]
    if not measures and all(slot.kind in ("", "bare") for slot in slots):
        opened = next((at for at, text in enumerate(texts) if _OPENS_LIST.search(text)), len(texts))
        between = [text.strip() for text in texts[opened + 1 :]]
        if len(between) > 1 and between.pop() == "]" and set(between) == {","}:
            # Below "Train Epoch: 1": "[200, 9.99e-05]", a step and a rate (VITS).
            members = [NumberSlot("", "listed", 6)] * (len(slots) - opened)
            slots = [NumberSlot("", "", 9)] * opened + members
    kinds = {slot.kind for slot in slots} - {"hits"}
    if measures and kinds <= {"", "bare"}:
        found = next(
            (place for place, slot in enumerate(slots) if _last_word_position(slot.tag)), None
        )
        if found is not None:
            slots[found] = NumberSlot("", *(_last_word_position(slots[found].tag) or ("", 9)))
    tags = [slot.tag.lower() for slot in slots if slot.tag]
    roles = [role_of(tag) for tag in tags]
    # A step within an epoch and several numbers, such as the losses of a GAN.
    measures = measures or (roles.count(OTHER) >= 3 and "epoch" in kinds and "step" in kinds)
    # Ticks and samples with speeds (StyleGAN); a rate and times next to a step.
    measures = measures or (
        len(roles) >= 3
        and (("samples" in kinds and "step" in kinds) or (listed and "rate" in tags))
        and any(role in (SPEED, TIME) for role in roles)
    )
    measures = measures or _has_pair(tags)
    measures = measures or (
        "epoch" in kinds and "train" in tags and not EVALUATION.isdisjoint(tags)
    )
    least_settings = 4
    is_point = measures and kinds & {"step", "epoch", "samples"}
    if not is_point and len(_SETTING.findall(" ".join(texts))) >= least_settings:
        return LinePlan((NumberSlot("", "", 9),) * len(totals), "", False, False)
    is_row = len(slots) == 1 and texts[0].lstrip()[:1] == "|" and texts[1].strip()[:1] == "|"
    is_pair = len(slots) == 1 and not texts[1].strip() and _ONLY_NAME.match(texts[0]) is not None
    return LinePlan(tuple(slots), split, measures, is_row, is_pair)


def _tell_apart(slots: list[NumberSlot], texts: list[str]) -> list[NumberSlot]:
    """Give names that occur twice in a line their unit, or the set that the text before names.

    ``acc (cur) = 0.4, acc (avg) = 0.5``; ``train loss 0.5, acc 0.6, val loss 0.7, acc 0.8``.
    """
    tags = [slot.tag.lower() for slot in slots]
    repeated = {tag for tag in tags if tag and tags.count(tag) > 1}
    if not repeated:
        return slots
    units = [UNIT_END.search(text.rstrip(" :=|'\"")) for text in texts]
    named: list[NumberSlot] = []
    word = ""
    seen: set[str] = set()
    for place, slot in enumerate(slots):
        word = _last_set(texts[place]) or word
        unit = units[place]
        if slot.tag.lower() in repeated and unit is not None:
            slot = slot._replace(tag=slot.tag + " " + unit.group().strip())
        elif word and slot.tag and (slot.tag.lower() in seen or word in seen):
            seen.add(word)  # what follows is of the same set
            if not split_word(slot.tag.replace("_", " ")):
                slot = slot._replace(tag=f"{word}/{slot.tag}")
        seen.add(slot.tag.lower())
        named.append(slot)
    return named


def _last_set(text: str) -> str:
    """Return the last word that names a set, such as ``train`` or ``val``."""
    found = [word for word in re.findall(r"[a-z]+", text.lower()) if word in _SETS]
    if found:
        return str(found[-1])
    return ""


_SETS = frozenset((*EVALUATION, "train", "training"))


def _has_pair(tags: list[str]) -> bool:
    """Return whether the same number is printed of training and of evaluation."""
    return any(
        tag.replace("train", word) in tags
        for tag in tags
        if "train" in tag and tag != "train"
        for word in EVALUATION
    )


def _leading_measure(text: str) -> str:
    """Return the measure in the words before a position: "Average loss from batch 1 to 50 is"."""
    words = text.split()
    for at in range(len(words) - 2, -1, -1):
        if role_of(words[at]) in MEASURES:
            return " ".join(words[max(0, at - 1) : at + 1]).strip(" -:|>")
    return ""


def _last_word_position(name: str) -> tuple[str, int] | None:
    """Return (kind, rank) of the position that a message ends with: "Sent the figures step=".

    "seconds per step", "loss step", "episode steps" and "save every step" are other numbers.
    """
    *before, last = name.split() or [""]
    if not before or any(
        word.lower() in ("per", "every", "each", "episode", "best") for word in before
    ):
        return None
    position = position_of(last)
    if position is None or any(role_of(word) not in (OTHER, COUNT) for word in before):
        return None
    kind, rank = position
    return kind, max(rank, 4)  # less reliable than a step that stands alone


def split_word(text: str) -> str:
    """Return the word that makes `text` an evaluation, such as ``val``; empty for training."""
    for word in re.findall(r"[a-z]+", text.lower()):
        if word in EVALUATION:
            return str(word)
    return ""
