"""Where one looks in a followed log: a pure cursor over the newest lines, without any drawing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rgt_tui.model.box import LogView

_MEASURED = r"\s{0,4}['\"]?\s{0,4}[:=]\s{0,4}[-+]?(?:0\b|\d{0,20}\.\d)"
"""What stands behind a word that names a figure: ``error: 0.031``, ``'FAILED': 0``."""
_SIGNS = (
    r"\bTraceback\b",
    # An exception by its name; ``MeanAbsoluteError`` and its kin are measures.
    r"\b(?!\w{0,99}(?:Mean|Median|Squared?|Absolute|Percentage|Logarithmic|Reconstruction))"
    r"\w{0,200}[A-Za-z\d](?:Error|Exception|Interrupt|OOMKilled)\b(?!" + _MEASURED + ")",
    r"\b(?:Exception|Error) (?:in|while|at|during|from)\b",
    # A level, as loggers print it; glog has a letter and the date.
    r"(?<![\w.=/-])(?<!level )(?:ERROR|CRITICAL|FATAL|FAILURE)(?![\w=/-]|" + _MEASURED + ")",
    r"(?<![\w-])\"?level\"?\s?[=:]\s?\"?(?i:error|fatal|critical)\b",
    r"\[(?i:error|fatal|critical)\]|^\s{0,9}[EF]\d{4} \d\d:\d\d:|\[[EF] \w{1,60}\.(?:cpp|cu|cc|h):\d",
    # What programs say of themselves.
    r"\b(?i:error|fatal):(?!\s{0,4}(?:[-+]?(?:0\b|\d{0,20}\.\d)|(?i:none|null|false)\b))|\b[Ff]atal error\b",
    r"\*\*\* \[.{1,300}\] Error \d|\bpanicked at\b|\bterminate called\b",
    r"\bcommand not found\b|\bsh: \d{1,6}: .{1,300} not found",
    r"\b(?:No such file or directory|Permission denied|Connection (?:refused|reset))\b",
    r"\b(?:Input/output error|Stale file handle)\b",
    r"\b(?:No space left|ENOSPC|Disk quota exceeded|[Cc]annot allocate memory)\b",
    r"\b(?:FAILED|[A-Z]{2,20}_STATUS_\w{1,60}_FAILED)\b(?!" + _MEASURED + ")",
    r"\b[Aa]ssertion\b.{1,300}\bfailed\b",
    # How processes end.
    r"\b(?:Killed|OOM|OOMKilled|oom_kill|Xid|Segmentation fault|[Ss]egfault|Bus error)\b",
    r"\b(?:Illegal instruction|core dumped)\b",
    r"^\s{0,9}(?:Terminated|Aborted)\b|\b[Jj]ob step aborted\b|\bCANCELLED AT\b",
    r"\bDUE TO (?:TIME LIMIT|PREEMPTION|NODE)",
    r"\bSIG(?:TERM|KILL|SEGV|ABRT|BUS|ILL|FPE|XCPU)\b|\bexit(?:code)?\s{0,4}[:=]\s{0,4}-?[1-9]",
    r"\bexit(?:ed|s|ing)?,? (?:with )?(?:an? )?(?:non-?zero )?(?:exit |return |error )?(?:code|status)\W{0,5}[1-9]",
    r"\bexited with -?[1-9]\d{0,2}\b(?!\.\d)|\breturn(?:ed)? ?code\W{0,5}[1-9]",
    # GPUs and what joins them.
    r"\b(?i:out of memory)\b|\b(?:CUDA|HIP|cuda) (?:error|failure)\b|\bCuda failure\b|\bdevice-side assert\b",
    r"NCCL(?! INFO).{0,80}?\b(?i:errors?|timeout|timed out|abort(?:ed|ing)?|failure)\b(?!\s?[:=]\s?\d)",
    r"\bcollective operation timeout\b|\bbefore timing out\b",
    # No numbers any more.
    r"(?<![\w/.-])-?(?:nan|NaN|NAN)(?![\w/-]|\s?[:=]\s?\d)",
    r"(?i:loss|grad(?:ient)?[ _-]?norm|gnorm|perplexity|ppl|logits)['\"\])]{0,3}"
    r"\s{0,4}(?:[:=|]|is|was|became|of|->)?\s{0,4}(?:tensor\()?[-+]?(?i:inf|infinity)(?![\w-])",
)
ERROR = re.compile("|".join(_SIGNS))
"""Lines that `e` stops at."""


class LogCursor:
    """Follows the end of a log until one scrolls up, and then stays where it is, whatever arrives."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.lines: Sequence[str] = ()
        self.dropped = 0
        self.following = True
        self.top = 0
        """Index of the first visible line while not following."""
        self.arrived = 0
        """Lines that came since following ended."""
        self.mark: int | None = None
        """Index of the line that a search or an error jump found."""
        self._searched = ""
        self._pattern: re.Pattern[str] | None = None

    def update(self, view: LogView | None) -> None:
        """Take the newest lines; what is looked at stays in place."""
        if view is None:
            self.__init__()  # type: ignore[misc]
            return
        if view.path != self.path or view.dropped + len(view.lines) < self.dropped + len(self.lines):
            query = self._searched
            self.__init__()  # type: ignore[misc]
            self.search(query)
            self.path = view.path
        elif not self.following:
            gone = view.dropped - self.dropped
            self.arrived += max(0, gone + len(view.lines) - len(self.lines))
            self.top = max(0, self.top - gone)
            if self.mark is not None:
                self.mark = self.mark - gone if self.mark >= gone else None
        self.lines, self.dropped = view.lines, view.dropped

    def first(self, height: int) -> int:
        """Return the index of the first line in a window of `height` lines."""
        last = max(0, len(self.lines) - height)
        return last if self.following else min(self.top, last)

    def scroll(self, count: int, height: int) -> None:
        """Move by `count` lines; upwards ends following, and reaching the end takes it up again."""
        last = max(0, len(self.lines) - height)
        target = self.first(height) + count
        if target >= last:
            if count > 0:
                self.follow()
            return
        self._stop_at(max(0, target))

    def _stop_at(self, top: int) -> None:
        if self.following:
            self.following = False
            self.arrived = 0
        self.top = top

    def follow(self) -> None:
        """Follow the end."""
        self.following, self.arrived, self.mark = True, 0, None

    def to_top(self) -> None:
        """Go to the oldest line that is kept."""
        self._stop_at(0)

    def search(self, text: str) -> None:
        """Set what `next_match` looks for: plain text, upper and lower case alike."""
        self._searched = text
        self._pattern = re.compile(re.escape(text), re.IGNORECASE) if text else None

    @property
    def searched(self) -> str:
        """What is searched for."""
        return self._searched

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """What matches are marked by."""
        return self._pattern

    def matches(self) -> int:
        """Return how many lines match."""
        return sum(1 for text in self.lines if self._pattern is not None and self._pattern.search(text))

    def next_match(self, direction: int, height: int) -> bool:
        """Go to the next line that matches; False when there is none in that direction."""
        return self._pattern is not None and self._jump(self._pattern, direction, height)

    def next_error(self, direction: int, height: int) -> bool:
        """Go to the next line with an error; False when there is none in that direction."""
        return self._jump(ERROR, direction, height)

    def _jump(self, pattern: re.Pattern[str], direction: int, height: int) -> bool:
        start = self.mark
        if start is None:
            start = len(self.lines) if self.following or direction < 0 else self.first(height) - 1
            if self.following and direction > 0:
                start = -1
        places = range(start + 1, len(self.lines)) if direction > 0 else range(start - 1, -1, -1)
        for place in places:
            if pattern.search(self.lines[place]):
                self.mark = place
                self._stop_at(max(0, min(place - height // 3, len(self.lines) - height)))
                return True
        return False
