"""The table of all conditions. A new one is a row here, and two functions beside its like."""

from __future__ import annotations

from rgt_tui.health import conditions_gpu as gpu
from rgt_tui.health import conditions_link as link
from rgt_tui.health import conditions_money as money
from rgt_tui.health import conditions_queue as queue
from rgt_tui.health import conditions_runs as runs
from rgt_tui.health import conditions_space as space
from rgt_tui.health.condition import YES, YES_ERROR, Check, Condition, Rung
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

ALERTS: tuple[Condition, ...] = (
    Condition(
        "finding", "Triage has found what broke", "finding", queue.read_findings, queue.say_finding, YES,
        unit="yes", told=True, see="triage",
        advice="Open the box: the finding shows the line that proves it, and the way out.",
    ),
    Condition(
        "failed", "A cell failed", "failed", queue.read_failed, queue.say_failed, YES_ERROR,
        unit="yes", told=True, see="5.1",
        advice="Read the end of its log, mend the cause, then run the queue again from this cell.",
    ),
    Condition(
        "ended", "A training that nobody queued has ended", "ended", runs.read_ended, runs.say_ended,
        (Rung("warn", 1.0, 1.0), Rung("error", 2.0, 2.0)), unit="1 = status unknown, 2 = failed", told=True,
        escalates=True, once=True, see="5.1 4.1",
        advice="Read the end of its log: nobody but its parent learns how it ended.",
    ),
    Condition(
        "queue", "A queue cannot be read", "queue", queue.read_queue_error, queue.say_queue_error, YES_ERROR,
        unit="yes", see="3.1",
        advice="Correct the queue file or its state; what runs goes on meanwhile.",
    ),
    Condition(
        "stalled", "A run does not advance", "stalled", queue.read_stalled, queue.say_stalled,
        (Rung("warn", 1.0, 1.0),), unit="× usual (30 s, or 10 steps)", escalates=True, see="4.2 T21",
        advice="Look at its log and, before a restart loses the evidence, at py-spy dump --pid PID.",
    ),
    Condition(
        "halted", "A training process is stopped by a signal", "halted", queue.read_halted, queue.say_halted, YES,
        unit="yes", hold_s=15.0, escalates=True, see="4.2",
        advice="Somebody or something sent SIGSTOP, or ctrl-z was pressed: kill -CONT PID lets it go on.",
    ),
    Condition(
        "no-step", "A cell logs no first step", "stalled", queue.read_no_step, queue.say_no_step, YES,
        unit="yes", hold_s=FIRST_STEP_S, escalates=True, see="3.3 U43",
        advice="Look at its log: it loads for long, waits for something, or buffers what it prints.",
    ),
    Condition(
        "idle-gpu", "A GPU is idle while a run is alive", "idle gpu", gpu.read_idle, gpu.say_idle,
        (Rung("warn", 5.0, 10.0),), unit="% util", below=True, hold_s=600.0, quiet_s=60.0, escalates=True,
        see="U24 U31 G5",
        advice="Check that the run uses every card it pays for, and that its input keeps up.",
    ),
    Condition(
        "bytes", "A mount runs out of bytes", "disk", space.read_bytes, space.say_bytes, _DISK,
        unit="% used", quiet_s=30.0, gauge=True, see="U6 0.5",
        advice="Make room, old checkpoints and caches first, before the next save fails.",
    ),
    Condition(
        "inodes", "A mount runs out of inodes", "inodes", space.read_inodes, space.say_inodes, _DISK,
        unit="% used", quiet_s=30.0, gauge=True, see="U7 4.3",
        advice="Remove directories of many small files; free bytes do not help.",
    ),
    Condition(
        "filling", "A mount will soon be full", "filling", space.read_filling, space.say_filling,
        (Rung("warn", 3.0, 4.0), Rung("error", 0.5, 0.75)), unit="h to full", below=True, hold_s=300.0,
        quiet_s=120.0, gauge=True, see="U6 U7",
        advice="Find what grows and limit it (retention, logs), or make room in time.",
    ),
    Condition(
        "mount", "A mount cannot be read", "mount", space.read_mount, space.say_mount, YES,
        unit="yes", see="C4",
        advice="Check the mount on the box; do not start anything that saves there.",
    ),
    Condition(
        "memory", "The container's memory runs out", "memory", space.read_memory, space.say_memory,
        _MEMORY, unit="% of limit",
        quiet_s=30.0, gauge=True, see="U9 4.8",
        advice="Fewer loader workers or smaller caches in the process; the kernel kills at the limit.",
    ),
    Condition(
        "oom-kill", "The kernel killed for memory", "oom", space.read_oom, space.say_oom, YES_ERROR,
        unit="more kills", rises=True, quiet_s=OOM_RECENT_S, see="U9 U41",
        advice="See which process is gone; lower the memory it needs before it is started again.",
    ),
    Condition(
        "throttled", "A GPU is slowed down", "throttled", gpu.read_throttled, gpu.say_throttled, YES,
        unit="yes", hold_s=120.0, quiet_s=60.0, see="U23",
        advice="Heat or power of the host: if it stays, take another machine; it costs 25 to 40 % of the speed.",
    ),
    Condition(
        "cpu-throttled", "The CPU quota holds the training back", "cpu", gpu.read_cpu, gpu.say_cpu,
        (Rung("warn", 25.0, 15.0),), unit="% of the time", hold_s=300.0, quiet_s=60.0, see="U40",
        advice="Set OMP_NUM_THREADS and the number of loader workers to the cores that are granted.",
    ),
    Condition(
        "xid", "The driver reports broken hardware", "xid", gpu.read_xid, gpu.say_text, YES_ERROR,
        unit="yes", see="U22",
        advice="Get the newest checkpoint off the box, then stop it and rent another.",
    ),
    Condition(
        "xid-soft", "The driver reports a fault of a program", "xid", gpu.read_xid_soft, gpu.say_text, YES,
        unit="more reports", rises=True, quiet_s=600.0, see="U22",
        advice="Mostly the program's own error; look in its log, and at the card if it comes again.",
    ),
    Condition(
        "ecc", "Memory errors that ECC could not correct", "ecc", gpu.read_ecc, gpu.say_ecc, YES,
        unit="errors", see="U22",
        advice="Save, and watch whether the number grows; a growing one means another machine.",
    ),
    Condition(
        "gpu-error", "A GPU does not answer", "gpu lost", gpu.read_gpu_error, gpu.say_gpu_error, YES_ERROR,
        unit="yes", hold_s=30.0, see="U22",
        advice="The card is lost until the machine restarts: get the checkpoint off, rent another.",
    ),
    Condition(
        "loss-nan", "The loss is not a number", "nan", runs.read_nan, runs.say_nan,
        (Rung("warn", 1.0, 1.0), Rung("error", 3.0, 1.0)), unit="points in a row", quiet_s=60.0, see="P8 4.4",
        advice="Stop it, and go on from a checkpoint before it with a lower rate, bf16 or clipping.",
    ),
    Condition(
        "loss-spike", "The loss jumps", "spike", runs.read_spike, runs.say_spike,
        (Rung("warn", 8.0, 4.0),), unit="robust σ", quiet_s=60.0, see="P12 P14",
        advice="See whether it comes back by itself; if not, go on from before it with a lower rate.",
    ),
    Condition(
        "fast-finish", "A cell is done much too soon", "too soon", queue.read_fast, gpu.say_text, YES,
        unit="yes", hold_s=30.0, escalates=True, see="PA3",
        advice="Read its log: most likely it has not done what it was asked to.",
    ),
    Condition(
        "interrupted", "A cell was cut off, and nobody runs it", "interrupted", queue.read_interrupted,
        gpu.say_text, YES, unit="yes", told=True, escalates=True, see="SP1 2.3",
        advice="Start the queue again: it goes on from the newest checkpoint.",
    ),
    Condition(
        "waiting", "Cells wait, and no runner is there", "waiting", queue.read_waiting, gpu.say_text, YES,
        unit="yes", escalates=True, see="3.2", over="cells that waited without a runner",
        advice="Start the queue's runner.",
    ),
    Condition(
        "done-billing", "The queue is done, the GPU still bills", "finished", money.read_done_billing,
        money.say_done_billing, YES, unit="yes", live=False, escalates=True, see="5.1 5.6",
        over="a GPU that billed for nothing",
        advice="Pull and check the results, then stop the meter (tear down).",
    ),
    Condition(
        "unreachable", "The box does not answer", "unreachable", link.read_unreachable, link.say_unreachable,
        YES, unit="yes", hold_s=LOST_S, live=False, see="MP3 SSH-K2",
        advice="It is not dead because of that: look at the provider's console and at your own network.",
    ),
    Condition(
        "silent", "A connected box sends nothing", "silent", link.read_silent, link.say_silent, YES,
        unit="yes", hold_s=LOST_S, live=False, escalates=True, see="MP3 U22",
        advice="It may train on, or hang as a whole: see the provider's console, and df on its mounts.",
    ),
    Condition(
        "asking", "A question waits for you", "asks you", link.read_asking, link.say_asking, YES,
        unit="yes", hold_s=LOST_S, live=False, told=True, escalates=True, see="1.1",
        advice="Answer it in rgt, or give rgt a key that needs no answer (ssh-agent, identity).",
    ),
    Condition(
        "host-key", "The box shows another host key", "key", link.read_host_key, link.say_host_key, YES_ERROR,
        unit="yes", live=False, told=True, see="SSH-T6",
        advice="If the box was made anew, remove the line that is named; otherwise do not log in.",
    ),
    Condition(
        "login", "The box refuses the login", "login", link.read_login, link.say_login, YES_ERROR,
        unit="yes", live=False, see="1.1",
        advice="Check user, key and agent; rgt does not try again by itself.",
    ),
    Condition(
        "stopped", "The provider stopped the box unasked", "stopped", link.read_stopped, link.say_stopped, YES,
        unit="yes", live=False, escalates=True, see="SP1",
        advice="Preempted, out of money, or stopped elsewhere: see the console, mind the clock of its disk.",
    ),
    Condition(
        "gone", "The box is gone at the provider", "gone", link.read_gone, link.say_gone, YES_ERROR,
        unit="yes", live=False, see="C4 5.3",
        advice="Only what is on durable storage is left; see the console for the reason.",
    ),
    Condition(
        "clock", "Something will happen to the data or the money", "clock", money.read_clock, money.say_clock,
        _CLOCK, unit="h left", below=True, live=False,
        escalates=True, see="platform",
        advice="Start the box, or move the data off it, before the time is over.",
    ),
    Condition(
        "balance", "The account runs empty", "balance", money.read_balance, money.say_balance,
        (Rung("warn", 24.0, 30.0), Rung("error", 6.0, 8.0)), unit="h of burn", below=True, live=False,
        quiet_s=300.0, gauge=True, escalates=True, see="platform",
        advice="Add money: at zero the provider stops the boxes, and may delete them.",
    ),
    Condition(
        "meter", "The meter cannot be read", "meter", money.read_meter, money.say_meter,
        (Rung("warn", METER_LOST_S, METER_LOST_S),), unit="s since read", live=False, see="5.5",
        advice="Check the provider's key and console: nobody knows what the box costs.",
    ),
    Condition(
        "clock-skew", "The box's clock is off", "skew", link.read_skew, link.say_skew,
        (Rung("warn", SKEW_WARN_S, SKEW_CLEAR_S),), unit="s", hold_s=60.0, see="1.3",
        advice="Ages are corrected for it; tokens and signatures with an expiry on the box are not.",
    ),
    Condition(
        "stream", "The agent's stream is damaged", "stream", link.read_stream, link.say_stream, YES,
        unit="more losses", rises=True, quiet_s=600.0, live=False, see="1.4",
        advice="A bad network, or something that writes into the channel; rgt doctor tests the box.",
    ),
)  # fmt: skip

BY_ID = {kind.id: kind for kind in ALERTS}


CHECKS: tuple[Check, ...] = (
    Check("0.1", "profile known, its worst danger shown", money.check_profile_known, live=False),
    Check("0.2", "inodes below 80 % on every mount", space.check_inodes),
    Check("0.3", "the memory limit is the container's", space.check_memory_limit),
    Check("0.4", "GPU seen", gpu.check_gpu_seen),
    Check("0.5", "three more checkpoints fit, bytes and inodes", space.check_checkpoint_budget),
    Check("1.1", "channel live, host key verified", link.check_channel),
    Check("1.2", "the agent answers", link.check_agent),
    Check("1.3", "clocks agree", link.check_clock_skew),
    Check("1.4", "stream without gap or repeat", link.check_gapless),
    Check("1.5", "credentials in no argument, log or share", link.check_credentials, live=False),
    Check("2.1", "smoke: a short run saves and goes on", runs.check_smoke, live=False),
    Check("2.2", "loss finite and falling", runs.check_loss_falls, live=False),
    Check("2.3", "a cut-off run went on from its checkpoint", runs.check_resume_proved, live=False),
    Check("3.1", "queue read, names distinct", queue.check_queue_read, live=False),
    Check("3.2", "runner detached", queue.check_detached),
    Check("3.3", "first step logged", queue.check_first_step, live=False),
    Check(
        "3.4",
        "checkpoints reach a disk that survives a stop",
        space.check_checkpoints_stay,
        live=False,
    ),
    Check("3.5", "every cell copies to a durable place", queue.check_durable_named, live=False),
    Check("4.1", "four layers reporting", runs.check_four_layers),
    Check("4.2", "progress, not utilisation", runs.check_progress),
    Check("4.3", "inodes below 80 % everywhere", space.check_inodes),
    Check("4.4", "no NaN in the last 50 losses", runs.check_losses_finite),
    Check("4.5", "newest checkpoint is recent", runs.check_checkpoint_age),
    Check("4.6", "you compared two validation samples", runs.check_looked, live=False),
    Check("4.7", "nothing diagnosed", queue.check_undiagnosed),
    Check("4.8", "container memory below 90 %, no kill", space.check_memory),
    Check("5.1", "every cell done", queue.check_all_done, live=False),
    Check("5.2", "every finished cell verified on durable", queue.check_all_verified, live=False),
    Check("5.3", "the durable place survives destroy", money.check_durable_survives, live=False),
    Check("5.4", "nothing training", queue.check_quiet),
    Check("5.5", "meter read from the provider", money.check_meter_read, live=False),
    Check("5.6", "results opened by you", runs.check_opened, live=False),
)
