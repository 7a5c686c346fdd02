"""Finds handbook pages by what a person types: an id, words, a question, or a line of a log.

Texts are ranked by BM25 over weighted fields; ``handbook/search/words.toml`` says which words mean
the same.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from rgt_tui.handbook.line_search import search_text
from rgt_tui.handbook.pages import HandbookPage, data_directory
from rgt_tui.model import FrozenStruct

_WORD = re.compile(r"[a-z0-9]+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_VOWEL = re.compile(r"[aeiouy]")
_PATH = re.compile(r"(?:/[\w.+-]+){2,}|[A-Za-z]:\\\S+")


class SearchWords(FrozenStruct, kw_only=True, forbid_unknown_fields=True):
    """The file of words."""

    filler: str
    """Words that say nothing."""
    endings: tuple[tuple[str, str], ...]
    """Endings to remove, in this order, and what to write instead."""
    irregular: dict[str, str]
    """Form → its word, where no ending explains it."""
    same: tuple[tuple[str, ...], ...]
    """Groups of words and phrases that mean the same."""


class TermReader:
    """Turns a text into the terms that are compared: stems, and groups that mean the same."""

    def __init__(self, words: SearchWords) -> None:
        self._words = words
        self._filler = frozenset(words.filler.split())
        self._stems: dict[str, str] = {}
        self._groups: dict[tuple[str, ...], str] = {}
        for group in words.same:
            for phrase in group:
                # "=" marks a group: no stem begins with it.
                self._groups.setdefault(tuple(self.list_stems(phrase)), f"={group[0]}")
        self._longest = max(map(len, self._groups), default=1)
        self.grouped_words = {
            stems[0]: term for stems, term in self._groups.items() if len(stems) == 1
        }
        """Stem → term of its group."""

    def read_terms(self, text: str) -> Iterator[tuple[str, float]]:
        """Yield the terms of a text with their weight, which is less for words within a phrase.

        Filler words and single letters count only within phrases.
        """
        stems = self.list_stems(text)
        within_weight = 0.7
        covered = 0
        for at, stem in enumerate(stems):
            # The longest phrase first: "out of memory" before "memory".
            for length in range(min(self._longest, len(stems) - at), 1, -1):
                if at >= covered and (term := self._groups.get(tuple(stems[at : at + length]))):
                    yield term, 1.0
                    covered = at + length
                    break
            if len(stem) > 1 and stem not in self._filler:
                yield self.grouped_words.get(stem, stem), within_weight if at < covered else 1.0

    def is_filler(self, word: str) -> bool:
        """Return whether a word says nothing."""
        return word in self._filler

    def list_stems(self, text: str) -> list[str]:
        """Return the stems of the words of a text; filler words stay as they are."""
        words = _WORD.findall(_HUMP.sub(" ", text).lower())
        return [word if word in self._filler else self._find_stem(word) for word in words]

    def _find_stem(self, word: str) -> str:
        stem = self._stems.get(word)
        if stem is None:
            stem = self._stems[word] = self._remove_ending(word)
        return stem

    def _remove_ending(self, word: str) -> str:
        """Return a word without its ending, and with one spelling of several."""
        # British and American spelling: "optimize" and "optimise".
        word = self._words.irregular.get(word, word).replace("z", "s")
        least = 3
        for ending, instead in self._words.endings:
            rest = word.removesuffix(ending)
            # A rest without a vowel is no word: "nccls" loses its s, "us" keeps it.
            if rest != word and len(rest) >= least and _VOWEL.search(rest):
                word = rest + instead
                break
        doubled = len(word) > least and word[-1] == word[-2]
        return word[:-1] if doubled else word


@functools.cache
def shipped_reader() -> TermReader:
    """Return the reader with the shipped words."""
    path = data_directory() / "search" / "words.toml"
    return TermReader(msgspec.convert(tomllib.loads(path.read_text("utf-8")), SearchWords))


class TextIndex:
    """How much each term says for each of some texts (BM25F: weighted by field, rarity, length).

    Args:
        texts: The fields of each text, with their weights.
        reader: Reads their terms.
    """

    def __init__(
        self, texts: Sequence[Sequence[tuple[str, float]]], reader: TermReader | None = None
    ) -> None:
        self._reader = reader or shipped_reader()
        self._size = len(texts)
        counts = [self._count_terms(fields) for fields in texts]
        lengths = [sum(len(text.split()) for text, _ in fields) for fields in texts]
        mean = sum(lengths) / max(len(lengths), 1)
        # b and k1 of BM25, in its form for weighted fields: titles count many times, so k1 is
        # large.
        length_share, saturation = 0.5, 10.0
        self._gains: dict[str, dict[int, float]] = defaultdict(dict)
        for number, (count, length) in enumerate(zip(counts, lengths, strict=True)):
            norm = saturation * (1.0 - length_share + length_share * length / mean)
            for term, amount in count.items():
                self._gains[term][number] = amount / (amount + norm)
        self._rarity = {
            term: self._measure_rarity(len(gains)) for term, gains in self._gains.items()
        }
        self._most_rare = self._measure_rarity(0)
        groups = self._reader.grouped_words
        self._words = {term: term for term in self._gains if term[0] != "="}
        self._words |= {word: term for word, term in groups.items() if term in self._gains}

    def _measure_rarity(self, having: int) -> float:
        return math.log(1.0 + (self._size - having + 0.5) / (having + 0.5))

    def _count_terms(self, fields: Sequence[tuple[str, float]]) -> dict[str, float]:
        count: dict[str, float] = defaultdict(float)
        for text, weight in fields:
            for term, part in self._reader.read_terms(text):
                count[term] += weight * part
        return count

    def score_texts(self, question: str) -> dict[int, tuple[float, float]]:
        """Return text → its score, and the share of the question's terms in it, by their rarity.

        An unknown word is read as the known words that begin with it, else as those one typing slip
        away; without any, only the shares become smaller.
        """
        # A pasted line may have thousands of words.
        most_terms = 40
        wanted: dict[str, float] = {}
        for term, weight in self._reader.read_terms(question):
            wanted[term] = max(weight, wanted.get(term, 0.0))
        if not wanted:  # a word is being typed
            wanted = dict.fromkeys(_WORD.findall(question.lower()), 1.0)
        scores: dict[int, float] = defaultdict(float)
        shares: dict[int, float] = defaultdict(float)
        total = 0.0
        for term, weight in list(wanted.items())[:most_terms]:
            terms, sure = [term], 1.0
            if term not in self._gains:
                # Less than an exact word, so that a slip never beats one.
                terms, sure = self._find_near_terms(term), 0.6
            worth = weight * max((self._rarity[one] for one in terms), default=self._most_rare)
            total += worth
            for number in {number for one in terms for number in self._gains[one]}:
                gain = max(self._gains[one].get(number, 0.0) for one in terms)
                scores[number] += sure * worth * gain
                # The share is of the question: a page that has all of it is about it, even if it is
                # long.
                shares[number] += sure * worth
        return {number: (score, shares[number] / total) for number, score in scores.items()}

    def _find_near_terms(self, word: str) -> list[str]:
        begin = {term for known, term in self._words.items() if known.startswith(word)}
        return sorted(
            begin or {self._words[known] for known in self._words if _is_slip(word, known)}
        )


def _is_slip(word: str, known: str) -> bool:
    """Return whether one letter of a word is wrong, missing, too many, or swapped with the next."""
    # Shorter words have too many neighbours: "cuda" and "cude".
    least = 5
    if len(word) < least or abs(len(word) - len(known)) > 1:
        return False
    at = 0
    while at < min(len(word), len(known)) and word[at] == known[at]:
        at += 1
    here, there = word[at:], known[at:]
    if here[1:] in (there, there[1:]) or here == there[1:]:
        return True
    return here[:2] == there[1::-1] and here[2:] == there[2:]


@functools.lru_cache(maxsize=2)
def build_page_index(pages: tuple[HandbookPage, ...]) -> TextIndex:
    """Return the cached index of these pages; it takes some 0.2 s to build."""
    return TextIndex([_list_fields(page) for page in pages])


def _list_fields(page: HandbookPage) -> list[tuple[str, float]]:
    """Return the texts of a page with their weights."""
    fixes = " . ".join(f"{fix.text} . {fix.command or ''}" for fix in page.fixes)
    return [
        # With these weights, 98% and 94% of 193 test questions find a page among the first three.
        (page.id, 8.0),
        (" . ".join(page.asked), 5.0),
        (page.title, 4.0),
        (page.symptom, 4.0),
        (page.resource, 2.0),
        (page.cause, 2.0),
        (fixes, 1.5),
        (" . ".join(page.needles), 1.5),
        (page.topic, 1.0),
        (page.never, 0.5),
    ]


@functools.lru_cache(maxsize=2)
def _list_phrases(pages: tuple[HandbookPage, ...]) -> tuple[tuple[str, ...], ...]:
    """Return each page's title and the words that lead to it, as `_plain_words` writes them."""
    return tuple(
        tuple(map(_plain_words, (page.title, page.title.partition(":")[0], *page.asked)))
        for page in pages
    )


def _plain_words(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.lower()))} "


def _find_literal(term: str, pages: tuple[HandbookPage, ...]) -> set[int]:
    """Return the pages whose title, or words that lead there, hold the term word for word.

    A single word must be all of such a text.
    """
    wanted = _plain_words(term)
    single = len(wanted.split()) < 2
    return {
        number
        for number, phrases in enumerate(_list_phrases(pages))
        if wanted in phrases or (not single and any(wanted in phrase for phrase in phrases))
    }


def find_pages(term: str, pages: Iterable[HandbookPage]) -> list[HandbookPage]:
    """Return the pages about `term`, the best first.

    Args:
        term: An id, words, a question, or a line of a log; pages matching the line come first.
        pages: The handbook.
    """
    known = tuple(pages)
    exact = [page for page in known if page.id.lower() == term.strip().lower()]
    if exact:
        return exact
    general = {loser for page in known for loser in page.beats}
    # For a question in words, the page about the whole kind of failure helps first.
    general_gain = 1.2
    ranked = build_page_index(known).score_texts(term)
    scores = {
        number: score * (general_gain if known[number].id in general else 1.0)
        for number, (score, _) in ranked.items()
    }
    by_line = {hit.id for hit in search_text(term, known)}
    beaten = {loser for page in known if page.id in by_line for loser in page.beats}
    literal = _find_literal(term, known)
    # A page that shares much less with the term than the best one is about something else; next to
    # a page that the line proves, only one with all of its words is shown.
    enough = 0.5 * max(scores.values(), default=0.0)
    enough_share = 0.5 * max((share for _, share in ranked.values()), default=0.0)
    if by_line:
        enough_share = 1.0

    def order(number: int) -> tuple[bool, bool, bool, float]:
        page_id = known[number].id
        by_words = number in literal, scores.get(number, 0.0)
        return page_id in by_line - beaten, page_id in by_line, *by_words

    found = {number for number, page in enumerate(known) if page.id in by_line} | literal
    found |= {
        number
        for number, score in scores.items()
        if score >= enough and ranked[number][1] >= enough_share
    }
    return [known[number] for number in sorted(found, key=order, reverse=True)]


class PhraseIndex:
    """Compares lines with single phrases of pages: literals of their patterns, titles, symptoms, questions.

    Words count together with those next to them, so that "not enough" is not "enough".
    """

    def __init__(self, pages: Sequence[HandbookPage]) -> None:
        self._phrases: list[tuple[int, frozenset[str]]] = [
            (number, _list_word_pairs(text))
            for number, page in enumerate(pages)
            for text in (*page.needles, *page.asked, page.title, f"{page.title} {page.symptom}")
        ]
        holding: dict[str, list[int]] = defaultdict(list)
        for place, (_, terms) in enumerate(self._phrases):
            for term in terms:
                holding[term].append(place)
        self._holding = holding
        self._worth = {
            term: math.log((len(self._phrases) + 1) / (len(places) + 0.5)) ** 2
            for term, places in holding.items()
        }
        self._most_worth = math.log(len(self._phrases) + 1) ** 2
        self._lengths = [self._measure_length(terms) for _, terms in self._phrases]

    def _measure_length(self, terms: Iterable[str]) -> float:
        return math.sqrt(sum(self._worth.get(term, self._most_worth) for term in terms)) or 1.0

    def score_pages(self, lines: Sequence[str]) -> dict[int, float]:
        """Return page → how much its nearest phrases resemble the lines, most of it for the nearest."""
        wanted: set[str] = set()
        for line in lines:
            wanted |= _list_word_pairs(line)
        shared: dict[int, float] = defaultdict(float)
        for term in wanted:
            for place in self._holding.get(term, ()):
                shared[place] += self._worth[term]
        length = self._measure_length(wanted)
        by_page: dict[int, list[float]] = defaultdict(list)
        for place, amount in shared.items():
            by_page[self._phrases[place][0]].append(amount / (self._lengths[place] * length))
        parts = (1.0, 0.5, 0.25, 0.12)
        return {
            number: sum(
                part * score
                for part, score in zip(parts, sorted(scores, reverse=True), strict=False)
            )
            for number, scores in by_page.items()
        }


def _list_word_pairs(text: str) -> frozenset[str]:
    """Return the stems of a text, and its pairs of neighbours.

    Paths, long numbers and the word that every tool puts before its errors say nothing.
    """
    longest_number = 3
    stems = [
        stem
        for stem in shipped_reader().list_stems(_PATH.sub(" ", text).replace("fatal:", ""))
        if len(stem) > 1 and (not stem.isdigit() or len(stem) <= longest_number)
    ]
    pairs = {f"{one} {other}" for one, other in itertools.pairwise(stems)}
    return frozenset(pairs.union(stem for stem in stems if not shipped_reader().is_filler(stem)))


@functools.lru_cache(maxsize=2)
def _build_phrase_index(pages: tuple[HandbookPage, ...]) -> PhraseIndex:
    return PhraseIndex(pages)


def find_nearest_page(
    lines: Sequence[str], pages: Iterable[HandbookPage], least: float = 0.26
) -> HandbookPage | None:
    """Return the page whose words are nearest to some lines; None = none is near.

    Args:
        lines: Lines that report a failure.
        pages: The handbook.
        least: How near it has to be: 1 would be a page's very phrase.
    """
    known = tuple(pages)
    # Of what the search by words says, next to the nearest phrases: chosen on public reports that
    # triage did not know.
    search_share = 0.03
    scores: dict[int, float] = defaultdict(float, _build_phrase_index(known).score_pages(lines))
    for number, (score, _) in build_page_index(known).score_texts(" . ".join(lines)).items():
        scores[number] += search_share * score
    best = max(scores, key=scores.__getitem__, default=None)
    if best is None or scores[best] < least:
        return None
    return known[best]
