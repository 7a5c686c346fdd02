"""Which steps of a fix rgt may run itself: those that only look, and removals of explicit paths.

A step runs only if its command is one of the handbook's own, with at most checked paths or numbers
filled in, and if it is understood word by word. Everything else is only copied. Text from a box is
never a command: it can only be a quoted path, at the place where the handbook expects one.
"""

from __future__ import annotations

import functools
import posixpath
import re
import shlex

from rgt_tui.handbook import shipped_pages
from rgt_tui.health import fulldisk, stuck_ranks
from rgt_tui.health.fulldisk import fill_command_path, find_removal_objection
from rgt_tui.language import translate
from rgt_tui.model import BoxState, FrozenStruct, is_exact_path

# Reading a device can block or have effects; /dev/shm is the one that fills up.
_PATH = r"(?!/dev/(?!shm$))/.*"
_COUNT = r"-n|\+?\d+|-\d+"

LOOKING: dict[str, str] = {
    "cat": _PATH,
    "df": rf"-[aBhHiklmPT]+|--|{_PATH}",
    "dmesg": r"-[TxkuLP]+",
    "du": rf"-[abchklmSsx]+|-d\d+|--inodes|--apparent-size|--|{_PATH}",
    "file": rf"-[biL]+|--|{_PATH}",
    "findmnt": rf"-[TDr]|{_PATH}",
    "free": r"-[bkmghtw]+",
    "grep": rf"-[cEFhHiIlnosvwx]+|-m\d+|--|{_PATH}",
    "head": rf"{_COUNT}|-c|--|{_PATH}",
    "ls": rf"-[1AabcdFghiklnoprRsStuUX]+|--|{_PATH}",
    "lscpu": r"(?!)",
    "nproc": r"(?!)",
    "nvidia-smi": r"-[Lq]|--query-(?:gpu|compute-apps)=[\w.,]+|--format=[\w,]+",
    "ps": r"-[AefLFlww]+|-[opC]|[\w:,]+",
    "rocm-smi": r"--show\w+",
    "stat": rf"--|-f|{_PATH}",
    "tail": rf"{_COUNT}|-c|--|{_PATH}",
    "ulimit": r"-[HS]?[acdefilmnpqrstuvxT]",
    "uptime": r"(?!)",
    "wc": rf"-[cLlmw]+|--|{_PATH}",
}
"""Programs that only look, with a pattern for each of their words: options that change nothing,
and absolute paths."""
FILTERS: dict[str, str] = {
    "grep": r"-[cEFhiInosvwx]+|-m\d+",
    "head": rf"{_COUNT}|-c",
    "sort": r"-[bdfghikMnruVz\d,]+|-t:",
    "tail": rf"{_COUNT}|-c",
    "uniq": r"-[cdiu]+",
    "wc": r"-[cLlmw]+",
}
"""Programs that may read another one's output: none of them writes a file with these words."""
_HOLE = re.compile(r"\{(n?)\}")


class LookTrial(FrozenStruct):
    """A command that only looks."""

    stages: tuple[tuple[str, ...], ...]
    """Programs and their words; each reads the output of the previous one."""


class RemovalTrial(FrozenStruct):
    """The removal of a path: previewed first, done once its last word is typed."""

    path: str

    @property
    def last_word(self) -> str:
        """What a person types to remove it: the last part of the path."""
        return posixpath.basename(self.path)


class CopiedOnly(FrozenStruct):
    """A command that rgt does not run."""

    reason: str


Trial = LookTrial | RemovalTrial | CopiedOnly


def plan_trial(box: BoxState, command: str) -> Trial:
    """Return what rgt may do with the command of a step on a box."""
    # First: a box could name a command in its text, and that must not even be parsed.
    if not is_handbook_command(command):
        return CopiedOnly(translate("not a command of the handbook itself: copy it"))
    stages = split_stages(command)
    if stages is None:
        return CopiedOnly(translate("more than a command that looks: copy it"))
    if stages[0][0] == "rm":
        return _plan_removal(box, stages)
    first, *others = stages
    if not _is_allowed(first, LOOKING) or not all(_is_allowed(one, FILTERS) for one in others):
        return CopiedOnly(translate("it may change something, or needs your own words: copy it"))
    return LookTrial(stages)


def _plan_removal(box: BoxState, stages: tuple[tuple[str, ...], ...]) -> Trial:
    words = stages[0]
    # Exactly `rm -rf -- PATH`: one path, and none that could be read as an option.
    if len(stages) > 1 or len(words) != 4 or words[1:3] != ("-rf", "--"):
        return CopiedOnly(translate("not the removal of one explicit path: copy it"))
    objection = find_removal_objection(box, words[3])
    if objection:
        return CopiedOnly(translate("not removed from here: {objection}", objection=objection))
    return RemovalTrial(words[3])


def _is_allowed(words: tuple[str, ...], table: dict[str, str]) -> bool:
    pattern = table.get(words[0])
    if pattern is None:
        return False
    options = list(words[1:])
    if words[0] == "grep":
        # One word is the pattern: any text, but no option.
        texts = [word for word in options if re.fullmatch(pattern, word) is None]
        # -f FILE would read patterns from a file, and -r a whole tree.
        if len(texts) != 1 or texts[0].startswith("-"):
            return False
        options.remove(texts[0])
    return all(re.fullmatch(pattern, word) is not None for word in options)


def is_handbook_command(command: str) -> bool:
    """Return whether a command is one of the handbook's, with nothing but paths or numbers filled in."""
    return any(_is_filled(known, command) for known in _known_commands())


@functools.cache
def _known_commands() -> frozenset[str]:
    steps = (fix.command for page in shipped_pages().values() for fix in page.fixes)
    return frozenset((*filter(None, steps), *fulldisk.STEP_COMMANDS, *stuck_ranks.STEP_COMMANDS))


def _is_filled(known: str, command: str) -> bool:
    if known == command:
        return _HOLE.search(known) is None
    holes = _HOLE.findall(known)
    if len(holes) != 1:
        return False
    before, after = re.split(r"\{n?\}", known)
    filled = command[len(before) : len(command) - len(after)]
    # The parts may overlap in a short command: only the sum proves the match.
    if before + filled + after != command:
        return False
    if holes == ["n"]:
        return re.fullmatch(r"\d+(?:,\d+)*", filled) is not None
    try:
        words = shlex.split(filled)
    except ValueError:
        return False
    # Filled in once more, so that the quoting is rgt's own and no text of a box.
    return len(words) == 1 and fill_command_path(known, words[0]) == command


def split_stages(command: str) -> tuple[tuple[str, ...], ...] | None:
    """Return the words of each program of a pipeline; None if a shell would do more than start them.

    Refused are expansions, redirections, several commands, and all text that quotes would not
    keep unchanged.
    """
    pieces, piece, quote = [], "", ""
    for character in command:
        if quote:
            if character == quote:
                quote = ""
            # Within double quotes a shell still expands these.
            elif quote == '"' and character in "$`\\":
                return None
        elif character in "'\"":
            quote = character
        elif character == "|":
            pieces.append(piece)
            piece = ""
            continue
        elif character in "$`\\;&<>(){}[]*?!#~=\n\r\0" and not _is_option(piece, character):
            return None
        piece += character
    if quote:
        return None
    stages = tuple(tuple(shlex.split(one)) for one in (*pieces, piece))
    if not all(stages) or not all(is_exact_path(word) for one in stages for word in one):
        return None
    return stages


def _is_option(piece: str, character: str) -> bool:
    """Return whether an equals sign belongs to a long option, and sets no variable."""
    return character == "=" and piece.rpartition(" ")[2].startswith("--")
