"""Which lines of a log people would call errors; and the cheap test that rules out nearly all others."""

from __future__ import annotations

import functools
import re

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
WORDS = (
    "traceback", "error", "exception", "interrupt", "oom", "critical", "fatal", "failure", "panicked at",
    "terminate called", "not found", "no such file", "permission denied", "connection refused", "connection reset",
    "stale file handle", "no space left", "enospc", "disk quota", "allocate memory", "failed", "killed", "xid",
    "segmentation fault", "segfault", "illegal instruction", "core dumped", "terminated", "aborted", "cancelled at",
    "due to ", "sigterm", "sigkill", "sigsegv", "sigabrt", "sigbus", "sigill", "sigfpe", "sigxcpu", "exit",
    "return code", "returncode", "returned code", "returnedcode", "out of memory", "device-side assert", "timeout",
    "timed out", "timing out", "nccl",
)  # fmt: skip
"""One of these stands in every line that `ERROR` matches, in upper or lower case; or one of `OTHERS` matches there."""
OTHERS = (
    r"(?:^|[^\w/.])-?nan",
    r"(?:loss|norm|perplexity|ppl|logits)[^\n]{0,50}inf",
    r"^\s{0,9}[ef]\d{4} \d\d:\d\d:",
    r"\[[ef] \w",
)
"""To be matched in upper and lower case."""
LONGEST = 4000
"""Characters of a line that are looked at."""


@functools.lru_cache(maxsize=1024)
def is_error(line: str) -> bool:
    """Tell whether a line is an error."""
    return ERROR.search(line[:LONGEST]) is not None
