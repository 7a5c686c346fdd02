"""What ends or spoils a run otherwise: preemption, hang-ups, NaN, collectives, hardware, environment."""

from __future__ import annotations

from rgt_tui.model.evidence import Fix, Severity
from rgt_tui.triage.entry import Entry, patterns

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
        patterns=patterns(
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
        patterns=patterns(r"CANCELLED AT \S+ DUE TO (?:TIME LIMIT|NODE FAILURE)"),
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
        patterns=patterns(r"Received (?:Signals\.SIGHUP|1) death signal", r"got signal: 1$"),
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
        patterns=patterns(r"^Hangup$"),
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
        patterns=patterns(
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
        patterns=patterns(r"Function '\w+Backward\d*' returned nan values in its \d+th output"),
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
        patterns=patterns(
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
        patterns=patterns(
            r"Watchdog caught collective operation timeout",
            r"WorkNCCL\([^)\n]*\) ran for \d+ milliseconds before timing out",
            r"NCCL timeout in: ",
            r"watchdog got stuck for \d+ seconds without making progress",
        ),
        sources=("https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html (2026-11)",),
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
        patterns=patterns(
            r"NVRM: Xid \((?:PCI:)?[0-9A-Fa-f:.]+\): (?:48|79)\b",
            r"GPU has fallen off the bus",
            r"uncorrectable ECC error encountered",
            r"Unable to determine the device handle for (?:GPU|gpu)\s?\S*: "
            r"(?:Unknown Error|GPU is lost|Not Found)",
            r"GPU is lost\.\s+Reboot the system to recover this GPU",
        ),
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
        patterns=patterns(
            r"ModuleNotFoundError: No module named '?([\w.]+)'?",
            r"^\S*python[\d.]*: No module named ([\w.]+)",
        ),
        sources=("https://docs.python.org/3/library/exceptions.html#ModuleNotFoundError (2026-11)",),
    ),
)
