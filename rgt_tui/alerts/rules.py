"""The table of all kinds of alert. A new kind is a row here, and two functions beside its like."""

from __future__ import annotations

from rgt_tui.alerts import rules_cells as cells
from rgt_tui.alerts import rules_found as found
from rgt_tui.alerts import rules_gpu as gpu
from rgt_tui.alerts import rules_link as link
from rgt_tui.alerts import rules_money as money
from rgt_tui.alerts import rules_run as run
from rgt_tui.alerts import rules_space as space
from rgt_tui.alerts.kind import YES, YES_ERROR, Kind, Rung
from rgt_tui.health.facts import (
    DANGER_ERROR_S,
    DANGER_WARN_S,
    DISK_ERROR_PCT,
    DISK_MARGIN_PCT,
    DISK_WARN_PCT,
    FIRST_STEP_S,
    LOST_S,
    MEMORY_ERROR_PCT,
    MEMORY_MARGIN_PCT,
    MEMORY_WARN_PCT,
    METER_LOST_S,
    OOM_RECENT_S,
    SKEW_CLEAR_S,
    SKEW_WARN_S,
)

_DISK = (
    Rung("warn", DISK_WARN_PCT, DISK_WARN_PCT - DISK_MARGIN_PCT),
    Rung("error", DISK_ERROR_PCT, DISK_ERROR_PCT - DISK_MARGIN_PCT),
)
_MEMORY = (
    Rung("warn", MEMORY_WARN_PCT, MEMORY_WARN_PCT - MEMORY_MARGIN_PCT),
    Rung("error", MEMORY_ERROR_PCT, MEMORY_ERROR_PCT - MEMORY_MARGIN_PCT),
)
_CLOCK = tuple(
    Rung(level, left / 3600.0, left / 3600.0)
    for level, left in (("warn", DANGER_WARN_S), ("error", DANGER_ERROR_S))
)

KINDS: tuple[Kind, ...] = (
    Kind(
        "finding", "Triage has found what broke", "finding", cells.read_findings, cells.say_finding, YES,
        unit="yes", told=True, see="triage",
        advice="Open the box: the finding shows the line that proves it, and the way out.",
    ),
    Kind(
        "failed", "A cell failed", "failed", cells.read_failed, cells.say_failed, YES_ERROR,
        unit="yes", told=True, see="5.1",
        advice="Read the end of its log, mend the cause, then run the queue again from this cell.",
    ),
    Kind(
        "ended", "A training that nobody queued has ended", "ended", found.read_ended, found.say_ended,
        (Rung("warn", 1.0, 1.0), Rung("error", 2.0, 2.0)), unit="1 = status unknown, 2 = failed", told=True,
        escalates=True, once=True, see="5.1 4.1",
        advice="Read the end of its log: nobody but its parent learns how it ended.",
    ),
    Kind(
        "queue", "A queue cannot be read", "queue", cells.read_queue_error, cells.say_queue_error, YES_ERROR,
        unit="yes", see="3.1",
        advice="Correct the queue file or its state; what runs goes on meanwhile.",
    ),
    Kind(
        "stalled", "A run does not advance", "stalled", cells.read_stalled, cells.say_stalled,
        (Rung("warn", 1.0, 1.0),), unit="× usual (30 s, or 10 steps)", escalates=True, see="4.2 T21",
        advice="Look at its log and, before a restart loses the evidence, at py-spy dump --pid PID.",
    ),
    Kind(
        "halted", "A training process is stopped by a signal", "halted", cells.read_halted, cells.say_halted, YES,
        unit="yes", hold_s=15.0, escalates=True, see="4.2",
        advice="Somebody or something sent SIGSTOP, or ctrl-z was pressed: kill -CONT PID lets it go on.",
    ),
    Kind(
        "no-step", "A cell logs no first step", "stalled", cells.read_no_step, cells.say_no_step, YES,
        unit="yes", hold_s=FIRST_STEP_S, escalates=True, see="3.3 U43",
        advice="Look at its log: it loads for long, waits for something, or buffers what it prints.",
    ),
    Kind(
        "idle-gpu", "A GPU is idle while a run is alive", "idle gpu", gpu.read_idle, gpu.say_idle,
        (Rung("warn", 5.0, 10.0),), unit="% util", below=True, hold_s=600.0, quiet_s=60.0, escalates=True,
        see="U24 U31 G5",
        advice="Check that the run uses every card it pays for, and that its input keeps up.",
    ),
    Kind(
        "bytes", "A mount runs out of bytes", "disk", space.read_bytes, space.say_bytes, _DISK,
        unit="% used", quiet_s=30.0, gauge=True, see="U6 0.5",
        advice="Make room, old checkpoints and caches first, before the next save fails.",
    ),
    Kind(
        "inodes", "A mount runs out of inodes", "inodes", space.read_inodes, space.say_inodes, _DISK,
        unit="% used", quiet_s=30.0, gauge=True, see="U7 4.3",
        advice="Remove directories of many small files; free bytes do not help.",
    ),
    Kind(
        "filling", "A mount will soon be full", "filling", space.read_filling, space.say_filling,
        (Rung("warn", 3.0, 4.0), Rung("error", 0.5, 0.75)), unit="h to full", below=True, hold_s=300.0,
        quiet_s=120.0, gauge=True, see="U6 U7",
        advice="Find what grows and limit it (retention, logs), or make room in time.",
    ),
    Kind(
        "mount", "A mount cannot be read", "mount", space.read_mount, space.say_mount, YES,
        unit="yes", see="C4",
        advice="Check the mount on the box; do not start anything that saves there.",
    ),
    Kind(
        "memory", "The container's memory runs out", "memory", space.read_memory, space.say_memory,
        _MEMORY, unit="% of limit",
        quiet_s=30.0, gauge=True, see="U9 4.8",
        advice="Fewer loader workers or smaller caches in the process; the kernel kills at the limit.",
    ),
    Kind(
        "oom-kill", "The kernel killed for memory", "oom", space.read_oom, space.say_oom, YES_ERROR,
        unit="more kills", rises=True, quiet_s=OOM_RECENT_S, see="U9 U41",
        advice="See which process is gone; lower the memory it needs before it is started again.",
    ),
    Kind(
        "throttled", "A GPU is slowed down", "throttled", gpu.read_throttled, gpu.say_throttled, YES,
        unit="yes", hold_s=120.0, quiet_s=60.0, see="U23",
        advice="Heat or power of the host: if it stays, take another machine; it costs 25 to 40 % of the speed.",
    ),
    Kind(
        "cpu-throttled", "The CPU quota holds the training back", "cpu", gpu.read_cpu, gpu.say_cpu,
        (Rung("warn", 25.0, 15.0),), unit="% of the time", hold_s=300.0, quiet_s=60.0, see="U40",
        advice="Set OMP_NUM_THREADS and the number of loader workers to the cores that are granted.",
    ),
    Kind(
        "xid", "The driver reports broken hardware", "xid", gpu.read_xid, gpu.say_text, YES_ERROR,
        unit="yes", see="U22",
        advice="Get the newest checkpoint off the box, then stop it and rent another.",
    ),
    Kind(
        "xid-soft", "The driver reports a fault of a program", "xid", gpu.read_xid_soft, gpu.say_text, YES,
        unit="more reports", rises=True, quiet_s=600.0, see="U22",
        advice="Mostly the program's own error; look in its log, and at the card if it comes again.",
    ),
    Kind(
        "ecc", "Memory errors that ECC could not correct", "ecc", gpu.read_ecc, gpu.say_ecc, YES,
        unit="errors", see="U22",
        advice="Save, and watch whether the number grows; a growing one means another machine.",
    ),
    Kind(
        "gpu-error", "A GPU does not answer", "gpu lost", gpu.read_gpu_error, gpu.say_gpu_error, YES_ERROR,
        unit="yes", hold_s=30.0, see="U22",
        advice="The card is lost until the machine restarts: get the checkpoint off, rent another.",
    ),
    Kind(
        "loss-nan", "The loss is not a number", "nan", run.read_nan, run.say_nan,
        (Rung("warn", 1.0, 1.0), Rung("error", 3.0, 1.0)), unit="points in a row", quiet_s=60.0, see="P8 4.4",
        advice="Stop it, and go on from a checkpoint before it with a lower rate, bf16 or clipping.",
    ),
    Kind(
        "loss-spike", "The loss jumps", "spike", run.read_spike, run.say_spike,
        (Rung("warn", 8.0, 4.0),), unit="robust σ", quiet_s=60.0, see="P12 P14",
        advice="See whether it comes back by itself; if not, go on from before it with a lower rate.",
    ),
    Kind(
        "fast-finish", "A cell is done much too soon", "too soon", cells.read_fast, gpu.say_text, YES,
        unit="yes", hold_s=30.0, escalates=True, see="PA3",
        advice="Read its log: most likely it has not done what it was asked to.",
    ),
    Kind(
        "interrupted", "A cell was cut off, and nobody runs it", "interrupted", cells.read_interrupted,
        gpu.say_text, YES, unit="yes", told=True, escalates=True, see="SP1 2.3",
        advice="Start the queue again: it goes on from the newest checkpoint.",
    ),
    Kind(
        "waiting", "Cells wait, and no runner is there", "waiting", cells.read_waiting, gpu.say_text, YES,
        unit="yes", escalates=True, see="3.2", over="cells that waited without a runner",
        advice="Start the queue's runner.",
    ),
    Kind(
        "done-billing", "The queue is done, the GPU still bills", "finished", money.read_done_billing,
        money.say_done_billing, YES, unit="yes", live=False, escalates=True, see="5.1 5.6",
        over="a GPU that billed for nothing",
        advice="Pull and check the results, then stop the meter (tear down).",
    ),
    Kind(
        "unreachable", "The box does not answer", "unreachable", link.read_unreachable, link.say_unreachable,
        YES, unit="yes", hold_s=LOST_S, live=False, see="MP3 SSH-K2",
        advice="It is not dead because of that: look at the provider's console and at your own network.",
    ),
    Kind(
        "silent", "A connected box sends nothing", "silent", link.read_silent, link.say_silent, YES,
        unit="yes", hold_s=LOST_S, live=False, escalates=True, see="MP3 U22",
        advice="It may train on, or hang as a whole: see the provider's console, and df on its mounts.",
    ),
    Kind(
        "asking", "A question waits for you", "asks you", link.read_asking, link.say_asking, YES,
        unit="yes", hold_s=LOST_S, live=False, told=True, escalates=True, see="1.1",
        advice="Answer it in rgt, or give rgt a key that needs no answer (ssh-agent, identity).",
    ),
    Kind(
        "host-key", "The box shows another host key", "key", link.read_host_key, link.say_host_key, YES_ERROR,
        unit="yes", live=False, told=True, see="SSH-T6",
        advice="If the box was made anew, remove the line that is named; otherwise do not log in.",
    ),
    Kind(
        "login", "The box refuses the login", "login", link.read_login, link.say_login, YES_ERROR,
        unit="yes", live=False, see="1.1",
        advice="Check user, key and agent; rgt does not try again by itself.",
    ),
    Kind(
        "stopped", "The provider stopped the box unasked", "stopped", link.read_stopped, link.say_stopped, YES,
        unit="yes", live=False, escalates=True, see="SP1",
        advice="Preempted, out of money, or stopped elsewhere: see the console, mind the clock of its disk.",
    ),
    Kind(
        "gone", "The box is gone at the provider", "gone", link.read_gone, link.say_gone, YES_ERROR,
        unit="yes", live=False, see="C4 5.3",
        advice="Only what is on durable storage is left; see the console for the reason.",
    ),
    Kind(
        "clock", "Something will happen to the data or the money", "clock", money.read_clock, money.say_clock,
        _CLOCK, unit="h left", below=True, live=False,
        escalates=True, see="platform",
        advice="Start the box, or move the data off it, before the time is over.",
    ),
    Kind(
        "balance", "The account runs empty", "balance", money.read_balance, money.say_balance,
        (Rung("warn", 24.0, 30.0), Rung("error", 6.0, 8.0)), unit="h of burn", below=True, live=False,
        quiet_s=300.0, gauge=True, escalates=True, see="platform",
        advice="Add money: at zero the provider stops the boxes, and may delete them.",
    ),
    Kind(
        "meter", "The meter cannot be read", "meter", money.read_meter, money.say_meter,
        (Rung("warn", METER_LOST_S, METER_LOST_S),), unit="s since read", live=False, see="5.5",
        advice="Check the provider's key and console: nobody knows what the box costs.",
    ),
    Kind(
        "clock-skew", "The box's clock is off", "skew", link.read_skew, link.say_skew,
        (Rung("warn", SKEW_WARN_S, SKEW_CLEAR_S),), unit="s", hold_s=60.0, see="1.3",
        advice="Ages are corrected for it; tokens and signatures with an expiry on the box are not.",
    ),
    Kind(
        "stream", "The agent's stream is damaged", "stream", link.read_stream, link.say_stream, YES,
        unit="more losses", rises=True, quiet_s=600.0, live=False, see="1.4",
        advice="A bad network, or something that writes into the channel; rgt doctor tests the box.",
    ),
)  # fmt: skip

BY_ID = {kind.id: kind for kind in KINDS}
