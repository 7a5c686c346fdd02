"""The handbook: known ways for training to go wrong, how a log shows them, and the way out."""

from __future__ import annotations

from rgt_tui.health import conditions_gpu as gpu
from rgt_tui.health import conditions_queue as queue
from rgt_tui.health import conditions_runs as runs
from rgt_tui.health import conditions_space as space
from rgt_tui.health.condition import Entry
from rgt_tui.model.evidence import Fix, Severity

STORAGE: tuple[Entry, ...] = (
    Entry(
        id="U6",
        title="The disk was full while a checkpoint was being saved",
        severity=Severity.FATAL,
        resource="bytes",
        fixes=(),
        never="Do not just start it again: every cell of the queue fails the same way until there is room.",
        needles=(
            "iostream error",
            "inline_container.cc",
            "PytorchStreamWriter",
            "serialization.py",
            "DISK_GATE",
        ),
        patterns=(
            r"basic_ios::clear: iostream error",
            r"enforce fail at inline_container\.cc:\d+\][^\n]*unexpected pos \d+ vs \d+",
            r"PytorchStreamWriter failed writing file",
            r"torch/serialization\.py[\s\S]{0,1500}?No space left on device",
            r"DISK_GATE_ABORT",
        ),
        beats=("U7",),
    ),
    Entry(
        id="U7",
        title="No space left: inodes or bytes of a mount are used up",
        severity=Severity.FATAL,
        resource="space",
        fixes=(),
        never="Do not remove on a guess: list it first, and never a directory that holds checkpoints.",
        needles=(
            "No space left on device",
            "quota exceeded",
            "Disk quota",
            "no inodes left",
            "no bytes left",
            " at step ",
        ),
        patterns=(
            r"\[Errno 28\] No space left on device",
            r"\[Errno 122\] Disk quota exceeded",
            r"^(?:/\S*/)?(?:ba|z|da)?sh: [^\n]*No space left on device$",
            r"^(?:cp|mv|mkdir|touch|tar|dd|install|ln|unzip|tee|cat|gzip|zstd|git|rsync|scp|wget|curl|mktemp)\b"
            r"[^\n]*: No space left on device",
            r": Disk quota exceeded$",
            r"checkpoint save failed at step \d+: (?:no (?:inodes|bytes) left on|quota exceeded on) [^\n]*",
            r"^(?:holding|giving up) at step \d+: [^\n]*(?:not saved|could be saved)",
        ),
    ),
    Entry(
        id="CKPT1",
        title="A checkpoint could not be saved",
        severity=Severity.FATAL,
        resource="the checkpoint directory",
        fixes=(
            Fix("Is the file system read-only, or gone? The kernel's last words say", "dmesg | tail"),
            Fix(
                "Once it can be written again, the trainer saves by itself; else launch the same command again"
            ),
        ),
        never="Do not stop the process while its last good checkpoint is far behind: its memory holds the rest.",
        needles=("checkpoint save failed",),
        patterns=(r"checkpoint save failed at step \d+: (?!no (?:inodes|bytes) left|quota exceeded)[^\n]*",),
        cleared_by="saved",
        sources=("docs/jobs.md, the event checkpoint-failed",),
    ),
    Entry(
        id="U33",
        title="Reported as copied, but the copy failed",
        severity=Severity.SILENT_WRONG,
        resource="the durable copy",
        fixes=(
            Fix("Take the data disk for the only copy until a download has been verified"),
            Fix("Look at the durable side: is the file there, with the same size?", "ls -l -- {}"),
            Fix(
                "Let the runner go on with the cell: it copies again, reads back, and only then calls it done"
            ),
        ),
        never="Do not tear the box down because a line says 'synced'.",
        needles=("SYNC FAILED", "sync", "synced"),
        patterns=(
            r"!! SYNC FAILED",
            r"^(?:mkdir|cp): [^\n]*(?:cannot create|error writing|failed)[^\n]*\n"
            r"(?:[^\n]*\n){0,2}?[^\n]*(?:auto-synced|sync(?:ed)? OK|synced )",
        ),
        beats=("U7",),
        prove=queue.prove_copy_failed,
    ),
    Entry(
        id="C2",
        title="A checkpoint is cut short: it was being written when the process ended",
        severity=Severity.FATAL,
        resource="a checkpoint file",
        fixes=(
            Fix("Move the broken file aside and let the run go on from the checkpoint before it"),
            Fix(
                "Save to a temporary name, flush and fsync, then rename: a reader then never sees half a file"
            ),
        ),
        never="Do not start from zero before looking for an older one.",
        needles=(
            "PytorchStreamReader",
            "central directory",
            "EOFError",
            "Safetensor",
            "HeaderTooSmall",
            "MetadataIncomplete",
            "InvalidHeader",
            "UnpicklingError",
        ),
        patterns=(
            r"PytorchStreamReader failed (?:reading zip archive|reading file|finding)",
            r"failed finding central directory",
            r"EOFError: Ran out of input",
            r"torch/serialization\.py[\s\S]{0,1200}?^EOFError",
            r"SafetensorError: Error while deserializing header",
            r"(?:MetadataIncompleteBuffer|HeaderTooSmall|InvalidHeaderDeserialization)",
            r"UnpicklingError: (?:pickle data was truncated|invalid load key)",
        ),
    ),
    Entry(
        id="DP15",
        title="Shared memory of the container is too small for the loader's workers",
        severity=Severity.FATAL,
        resource="/dev/shm",
        fixes=(
            Fix("See how large it is; a container gets 64 MB unless asked otherwise", "df -h /dev/shm"),
            Fix("Give the container more (--shm-size, --ipc=host), or use fewer workers"),
        ),
        never="Do not take it for a lack of host memory, nor for a deadlock.",
        needles=("Bus error", "bus error", "torch_", "ancdata", "allocate shared memory"),
        patterns=(
            r"DataLoader worker \(pid\(?s?\)? [\d, ]+\) is killed by signal:\s+Bus error",
            r"Unexpected bus error encountered in worker",
            r"unable to (?:write to file|open shared memory object|mmap \d+ bytes from file) </?torch_",
            r"received \d+ items of ancdata",
            r"unable to allocate shared memory\(shm\)",
        ),
        beats=("U9", "U7"),
    ),
)


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
        patterns=(
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
        prove=queue.prove_killed_by_kernel,
        gives_way="any",
        reading=space.memory_reading,
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
        patterns=(
            r"(?:torch\.(?:cuda\.)?OutOfMemoryError|RuntimeError): CUDA out of memory\.",
            r"CUDA out of memory\. Tried to allocate [\d.]+ [KMGT]i?B",
        ),
        reading=gpu.vram_reading,
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
        patterns=(
            r"CUDA error: out of memory",
            r"CUDA out of memory\.[\s\S]{0,600}?"
            r"Of the allocated memory (?:0 bytes|[\d.]+ MiB) is allocated by PyTorch",
        ),
        beats=("U10", "M8"),
        reading=gpu.vram_reading,
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
        patterns=(r"CUDA out of memory\.[\s\S]{0,600}?Process \d+ has [\d.]+ [GM]iB memory in use",),
        beats=("U10", "M8", "U11"),
        reading=gpu.vram_reading,
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
        patterns=(
            r"CUDA out of memory\.[\s\S]{0,700}?"
            r"(?:[2-9]|\d{2,})(?:\.\d+)? GiB is reserved by PyTorch but unallocated",
        ),
        beats=("U10",),
        sources=("https://docs.pytorch.org/docs/stable/notes/cuda.html (2026-08)",),
        reading=gpu.vram_reading,
    ),
)


_RELAUNCH = "Launch the same command again: it goes on from the newest good checkpoint"

RUNTIME: tuple[Entry, ...] = (
    Entry(
        id="SP1",
        title="Asked to stop by a signal: preempted, or the queue was stopped",
        severity=Severity.DEGRADING,
        resource="the run (asked to stop)",
        fixes=(
            Fix(_RELAUNCH),
            Fix(
                "Save by the clock to storage that outlives the box: the grace is 0 to 120 s, and no promise"
            ),
        ),
        never="Do not count on writing a large checkpoint after the signal.",
        needles=("SIG", "signal: 15", "PREEMPTION", "preempted", "Preempt", "terminate", "15 death"),
        patterns=(
            r"\"action\"\s*:\s*\"(?:terminate|stop|hibernate)\"\s*,\s*\"time\"",
            r"\"EventType\"\s*:\s*\"Preempt\"",
            r"CANCELLED AT \S+ DUE TO PREEMPTION",
            r"Received (?:Signals\.SIGTERM|15) death signal",
            r"SignalException: Process \d+ got signal: 15",
            r"\b[Ii]nstance was preempted",
            r"^(?:\S+ )?preempted (?:at|by) [^\n]*",
            r"^(?:\S+ )?SIGTERM received[^\n]*",
            r"^SIG[A-Z0-9]+ at step \d+: saving, then exit 75",
        ),
        sources=("https://www.runpod.io/blog/spot-vs-on-demand-instances-runpod (2026-06)",),
        prove=queue.prove_preempted,
        gives_way="any",
    ),
    Entry(
        id="SP10",
        title="Slurm ended the job: its time was up, or a node failed",
        severity=Severity.DEGRADING,
        resource="the job's time",
        fixes=(
            Fix(
                "Ask for a signal some minutes before the limit and for a requeue",
                "#SBATCH --requeue --signal=B:SIGTERM@360",
            ),
            Fix(_RELAUNCH),
        ),
        never="Do not ask for the same time again without a resume that works.",
        needles=("CANCELLED AT",),
        patterns=(r"CANCELLED AT \S+ DUE TO (?:TIME LIMIT|NODE FAILURE)",),
        sources=("https://slurm.schedmd.com/sbatch.html (2026-08)",),
    ),
    Entry(
        id="U3",
        title="The process vanished without a traceback",
        severity=Severity.FATAL,
        resource="the training process",
        fixes=(
            Fix(
                "Was it the kernel? A line says yes; none says no only where dmesg may be read",
                "dmesg | grep -iE 'killed process|out of memory' | tail",
            ),
            Fix("Was it a reboot? A short uptime means yes", "uptime"),
            Fix(_RELAUNCH),
        ),
        never="Do not shrink the batch for a lack of memory that nobody has seen.",
        needles=("SIGHUP", "1 death signal", "got signal: 1"),
        patterns=(r"Received (?:Signals\.SIGHUP|1) death signal", r"got signal: 1$"),
        prove=queue.prove_killed,
        gives_way="any",
        reading=space.memory_reading,
    ),
    Entry(
        id="LL4",
        title="Ended by a hang-up: the job belonged to a login shell",
        severity=Severity.FATAL,
        resource="the training process",
        fixes=(
            Fix("Launch it in tmux, or let the queue runner detach it: both outlive the connection"),
            Fix(_RELAUNCH),
        ),
        never="Do not put training behind a plain '&'.",
        needles=("Hangup",),
        patterns=(r"^Hangup$",),
        beats=("U3",),
    ),
    Entry(
        id="P8",
        title="The loss is not a number",
        severity=Severity.FATAL,
        resource="the loss",
        fixes=(
            Fix("Go back to the last checkpoint from before the first bad step"),
            Fix("Look at that step's batch, at log, sqrt and division without an epsilon, at fp16"),
            Fix("Clip gradients; use bf16 where the card has it"),
        ),
        never="Do not train on: one bad step spoils all weights.",
        needles=("nan", "NaN", "NAN", "inf", "Inf", "non-finite", "not finite"),
        patterns=(
            r"(?i)(?<![\w/.-])(?<!best )(?<!min )(?<!lowest )(?<!initial )(?<!previous )"
            r"(?:(?:train|training|val|valid|eval|test|total|step|avg|mean|batch)[_/ -]?)?"
            r"loss['\"]?\s*[=:]\s*(?:tensor\()?(?:nan|-?inf)(?![\w-])(?!\s*(?:\(|->|→))",
            r"^(?:\S+ )?step +[\d,]+\b(?! skipped)[^\n]*\bloss +(?:nan|-?inf)\b",
            r"^stopping: \d+ steps in a row were not finite",
            r"^smoke: step \d+ is not finite",
            r"Loss is (?:nan|-?inf), stopping training",
            r"(?:detected|encountered|got|found) (?:a )?non-finite loss"
            r"|non-finite loss (?:detected|encountered) at step",
        ),
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.log.html (2026-08)",),
        prove=runs.prove_nan,
        gives_way="log",
    ),
    Entry(
        id="P9",
        title="Anomaly detection has named the operation that made the NaN",
        severity=Severity.FATAL,
        resource="the gradient",
        fixes=(
            Fix("Mend the operation that the traceback names, then switch anomaly detection off: it is slow"),
        ),
        never="Do not leave anomaly detection on: a step takes about ten times as long.",
        needles=("returned nan values",),
        patterns=(r"Function '\w+Backward\d*' returned nan values in its \d+th output",),
        beats=("P8",),
        sources=("https://docs.pytorch.org/docs/stable/autograd.html (2026-08)",),
    ),
    Entry(
        id="P10",
        title="fp16 overflows at every step: the loss scale has reached its minimum",
        severity=Severity.FATAL,
        resource="the loss scale",
        fixes=(Fix("Use bf16; without it, keep logits, attention and loss in fp32"),),
        never="Do not lower the initial scale: it was not the cause.",
        needles=("loss scale",),
        patterns=(
            r"Current loss scale already at minimum - cannot decrease scale anymore",
            r"Minimum loss scale reached \([\d.e-]+\)",
        ),
        beats=("P8",),
    ),
    Entry(
        id="MN3",
        title="A collective timed out: one rank is silent or dead",
        severity=Severity.FATAL,
        resource="a collective",
        fixes=(
            Fix("Look in the log of every rank for the first error before the timeout: that is the cause"),
            Fix(
                "Have the next launch say who is silent; PyTorch already fails fast", "export NCCL_DEBUG=INFO"
            ),
            Fix(_RELAUNCH),
        ),
        never="Do not just raise the timeout: find the silent rank first.",
        needles=("Watchdog caught", "WorkNCCL", "NCCL timeout", "watchdog got stuck"),
        patterns=(
            r"Watchdog caught collective operation timeout",
            r"WorkNCCL\([^)\n]*\) ran for \d+ milliseconds before timing out",
            r"NCCL timeout in: ",
            r"watchdog got stuck for \d+ seconds without making progress",
        ),
        sources=("https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html (2026-11)",),
        symptom=True,
    ),
    Entry(
        id="U22",
        title="The card is broken or lost: rent another",
        severity=Severity.FATAL,
        resource="the GPU",
        fixes=(
            Fix("Confirm", "dmesg | grep -i xid"),
            Fix("Get the newest checkpoint off the box, then stop it and rent another"),
        ),
        never="Do not debug code on a card that has failed.",
        needles=("Xid", "fallen off the bus", "uncorrectable ECC", "device handle", "GPU is lost"),
        patterns=(
            r"NVRM: Xid \((?:PCI:)?[0-9A-Fa-f:.]+\): (?:48|79)\b",
            r"GPU has fallen off the bus",
            r"uncorrectable ECC error encountered",
            r"Unable to determine the device handle for (?:GPU|gpu)\s?\S*: "
            r"(?:Unknown Error|GPU is lost|Not Found)",
            r"GPU is lost\.\s+Reboot the system to recover this GPU",
        ),
        prove=gpu.prove_lost,
    ),
    Entry(
        id="ENV1",
        title="A module is missing in the interpreter that runs the cell",
        severity=Severity.FATAL,
        resource="module {name}",
        fixes=(
            Fix(
                "Which interpreter is it? Compare with the job's py",
                "python -c 'import sys; print(sys.executable)'",
            ),
            Fix(
                "Point the job at the interpreter that has the packages, or install into the very one it uses"
            ),
        ),
        never="Do not install into an environment before you know that the cell runs in it.",
        needles=("No module named",),
        patterns=(
            r"ModuleNotFoundError: No module named '?([\w.]+)'?",
            r"^\S*python[\d.]*: No module named ([\w.]+)",
        ),
        sources=("https://docs.python.org/3/library/exceptions.html#ModuleNotFoundError (2026-11)",),
    ),
)


HANDBOOK: dict[str, Entry] = {entry.id: entry for entry in (*STORAGE, *MEMORY, *RUNTIME)}
