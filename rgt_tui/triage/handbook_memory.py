"""Memory: the container's, and the card's, which have opposite cures."""

from __future__ import annotations

from rgt_tui.model.evidence import Fix, Severity
from rgt_tui.triage.entry import Entry, patterns

_WHO = "nvidia-smi --query-gpu=index,memory.used,memory.free --format=csv,noheader"

MEMORY: tuple[Entry, ...] = (
    Entry(
        id="U9",
        title="Killed by the kernel: the container's memory ran out",
        severity=Severity.FATAL,
        resource="memory of the container",
        fixes=(
            Fix("Confirm: the kill counter has risen", "grep oom_kill /sys/fs/cgroup/memory.events"),
            Fix("Count workers by memory, not by cores: each holds its own copy of a large data set"),
            Fix("Share one copy between the workers (a memory map), or compute it on demand"),
        ),
        never="Do not make the batch smaller: this is the memory of the host, not of the card.",
        needles=("Killed", "killed", "oom", "OOM", "exited unexpectedly", "SIGKILL", "137", "memory limit"),
        patterns=patterns(
            r"^Killed$",
            r"(?:^|: )(?:line \d+: )?\s*\d+ Killed\s{2,}\S",
            r"DataLoader worker \(pid \d+\) is killed by signal:\s+Killed",
            r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly",
            r"Memory cgroup out of memory: Kill(?:ed)? process \d+",
            r"oom-kill:constraint=CONSTRAINT_MEMCG",
            r"Out of memory: Kill(?:ed)? process \d+ \((?:python|pt_main_thread|pt_data_worker|torchrun)",
            r"Detected [1-9]\d* oom[-_]kill event",
            r"slurmstepd: error: (?:Job|Step) \S+ exceeded memory limit",
            r"Some of (?:your processes|the step tasks) (?:may )?have been "
            r"(?:killed by the cgroup out-of-memory handler|OOM Killed)",
            r"Signal 9 \(SIGKILL\) received by PID \d+",
            r"(?i)\b(?:exited|failed|terminated|died|finished|returned|ended)\b[^\n]{0,30}"
            r"\b(?:code|status|rc|exit)\b\s*[:=]?\s*137\b",
            r"\b(?:rc|exit|exit_?code|exit_?status)=137\b",
            r"Reason:\s+OOMKilled",
        ),
    ),
    Entry(
        id="U10",
        title="CUDA out of memory: the card is full",
        severity=Severity.FATAL,
        resource="memory of the GPU",
        fixes=(
            Fix("See how much is free, and who else is on the card", _WHO),
            Fix("Make the micro-batch smaller and accumulate gradients, so that the effective batch stays"),
            Fix(
                "Let segments grow, then try the same shapes once",
                "export PYTORCH_ALLOC_CONF=expandable_segments:True",
            ),
        ),
        never="Do not start it again unchanged: the same shapes need the same memory.",
        needles=("CUDA out of memory",),
        patterns=patterns(
            r"(?:torch\.(?:cuda\.)?OutOfMemoryError|RuntimeError): CUDA out of memory\.",
            r"CUDA out of memory\. Tried to allocate [\d.]+ [KMGT]i?B",
        ),
    ),
    Entry(
        id="U11",
        title="Out of memory on a card that looks empty: a dead process still holds it",
        severity=Severity.FATAL,
        resource="memory of the GPU",
        fixes=(
            Fix("Find who holds the device", "fuser -v /dev/nvidia*"),
            Fix("End only processes that are yours, or restart the container; then the same command again"),
        ),
        never="Do not shrink the model, and do not end a process of another tenant.",
        needles=("CUDA error: out of memory", "is allocated by PyTorch"),
        patterns=patterns(
            r"CUDA error: out of memory",
            r"CUDA out of memory\.[\s\S]{0,600}?"
            r"Of the allocated memory (?:0 bytes|[\d.]+ MiB) is allocated by PyTorch",
        ),
        beats=("U10", "M8"),
    ),
    Entry(
        id="LO3",
        title="CUDA out of memory: other processes hold the card",
        severity=Severity.FATAL,
        resource="memory of the GPU",
        fixes=(
            Fix("Find who holds the device", "fuser -v /dev/nvidia*"),
            Fix("End what is yours and left over, then start the same command again"),
        ),
        never="Do not change the config before the card is free.",
        needles=("memory in use",),
        patterns=patterns(
            r"CUDA out of memory\.[\s\S]{0,600}?Process \d+ has [\d.]+ [GM]iB memory in use",
        ),
        beats=("U10", "M8", "U11"),
    ),
    Entry(
        id="M8",
        title="CUDA out of memory by fragmentation: much is reserved, but in pieces",
        severity=Severity.FATAL,
        resource="memory of the GPU",
        fixes=(
            Fix(
                "Set this before the process starts, and go on with the same config",
                "export PYTORCH_ALLOC_CONF=expandable_segments:True",
            ),
        ),
        never="Do not make the batch smaller before trying what costs nothing.",
        needles=("reserved by PyTorch but unallocated",),
        patterns=patterns(
            r"CUDA out of memory\.[\s\S]{0,700}?"
            r"(?:[2-9]|\d{2,})(?:\.\d+)? GiB is reserved by PyTorch but unallocated",
        ),
        beats=("U10",),
        sources=("https://docs.pytorch.org/docs/stable/notes/cuda.html (2026-08)",),
    ),
)
