"""The table of all conditions. To add one, add a row and two functions next to similar ones."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from rgt_tui.health import condition, stuck_ranks
from rgt_tui.health.condition import YES, YES_ERROR, AlertRung, Condition, LifecycleCheck, say_text
from rgt_tui.health.facts import LIMITS
from rgt_tui.health.handbook import HANDBOOK
from rgt_tui.health.rows import conditions_curves as curves
from rgt_tui.health.rows import conditions_gpu as gpu
from rgt_tui.health.rows import conditions_gpu as pace
from rgt_tui.health.rows import conditions_link as autostop
from rgt_tui.health.rows import conditions_link as link
from rgt_tui.health.rows import conditions_money as money
from rgt_tui.health.rows import conditions_queue as queue
from rgt_tui.health.rows import conditions_runs as runs
from rgt_tui.health.rows import conditions_space as space
from rgt_tui.health.rows.conditions_checked import CHECKED_ONLY
from rgt_tui.language import translate
from rgt_tui.model import Finding, clean_text

_ROWS: tuple[Condition, ...] = (
    Condition(
        "finding", "Triage found what broke", "finding", queue.read_findings, queue.say_finding,
        YES,
        told=True,
        of=frozenset(("findings",)),
        advice="Open the box: the finding shows the line that proves it, and the fix.",
        checks=(
            LifecycleCheck("4.7", "nothing diagnosed", queue.check_undiagnosed,
                  command="rgt grep {box} 'Error|Traceback'"),
        ),
        see="triage",
    ),
    Condition(
        "failed", "A cell failed", "failed", queue.read_failed, queue.say_failed, YES_ERROR,
        told=True,
        of=frozenset(("queues",)),
        advice="Read the end of its log, fix the cause, then run the queue again from this cell.",
        checks=(
            LifecycleCheck("5.1", "every cell done", queue.check_all_done, live=False,
                           command="rgt queue {box} status"),
        ),
    ),
    Condition(
        "ended", "A training outside the queues has ended", "ended", runs.read_ended,
        runs.say_ended,
        (AlertRung("warn", 1.0, 1.0), AlertRung("error", 2.0, 2.0)),
        unit="1 = status unknown, 2 = failed", told=True,
        escalates=True, once=True,
        needs=condition.has_ended_training,
        advice="Read the end of its log: only its parent process knows its exit status.",
        see="5.1 4.1",
    ),
    Condition(
        "queue", "A queue cannot be read", "queue", queue.read_queue_error, queue.say_queue_error,
        YES_ERROR,
        of=frozenset(("queues",)),
        over="the queue can be read again",
        advice="Fix the queue file or its state file; what is running keeps running.",
        checks=(
            LifecycleCheck("3.1", "queue read, names distinct", queue.check_queue_read, live=False,
                  command="rgt queue {box} check"),
        ),
    ),
    Condition(
        "holding", "A run waits with unsaved work in memory", "holding", queue.read_holding,
        queue.say_holding,
        YES_ERROR, escalates=True,
        needs=condition.waiting_run,
        over="{key} no longer waits with unsaved work",
        advice="Free space, or restore its mirror: it then saves from memory and continues. Do not "
               "restart it before.",
        see="U6 U7",
    ),
    Condition(
        "stalled", "A run makes no progress", "stalled", queue.read_stalled, queue.say_stalled,
        (AlertRung("warn", 1.0, 1.0),), unit="× usual (30 s, or 10 steps)", escalates=True,
        needs=condition.has_active_runs,
        over="{key} is no longer stuck",
        advice="Read its log and, before a restart loses the evidence, run py-spy dump --pid PID.",
        findings=("HANG1", "HANG2", "D19", "D20"),
        covered=runs.run_of,
        checks=(LifecycleCheck("4.2", "progress, not utilisation", runs.check_progress),),
        see="T21",
    ),
    Condition(
        "halted", "A training process is stopped by a signal", "halted", queue.read_halted,
        queue.say_halted, YES,
        hold_s=15.0, escalates=True,
        needs=condition.stopped_process,
        over="process {key} is no longer stopped by a signal",
        advice="A person or program sent SIGSTOP, or ctrl-z was pressed: kill -CONT PID resumes it.",
        findings=("HANG1",),
        covered=stuck_ranks.pid_of,
        see="4.2",
    ),
    Condition(
        "no-step", "A cell has not logged its first step", "stalled", queue.read_no_step,
        queue.say_no_step, YES,
        hold_s=LIMITS.first_step_s, escalates=True,
        needs=condition.has_running_cells,
        over="{key} no longer waits for its first step",
        advice="Read its log: it loads slowly, waits for something, or buffers its output.",
        checks=(
            LifecycleCheck("3.3", "first step logged", queue.check_first_step, live=False,
                  command="rgt grep {box} Traceback"),
        ),
        see="U43",
    ),
    Condition(
        "idle-gpu", "A GPU is idle while a run is alive", "idle gpu", gpu.read_idle, gpu.say_idle,
        (AlertRung("warn", 5.0, 10.0),), unit="% util", below=True, hold_s=600.0, quiet_s=60.0,
        escalates=True,
        over="GPU {key} no longer idles while a run is alive",
        advice="Check that the run uses every GPU you pay for, and that its input is fast enough.",
        see="U24 U31 D5 G5",
    ),
    Condition(
        "gpu-spins", "A GPU is busy without any progress", "hangs", pace.read_spinning,
        pace.say_spinning, YES,
        hold_s=60.0, quiet_s=30.0, escalates=True,
        needs=condition.has_stalled_run,
        over="{key} is no longer busy without progress",
        advice="Its ranks wait for one another: keep the stacks (py-spy dump --pid PID) before you "
               "restart.",
        findings=("HANG2", "D19", "D20", "HANG1"),
        covered=runs.run_of,
        see="4.2",
    ),
    Condition(
        "starved", "The GPUs wait for their input", "starved", pace.read_starved, pace.say_starved,
        (AlertRung("warn", 30.0, 45.0),), unit="% util, mean", below=True, hold_s=600.0,
        quiet_s=120.0,
        over="the GPUs no longer wait for their input",
        advice="More loader workers (up to the cores), pinned memory, data on the local disk; not "
               "a larger card.",
        see="U24 U8 T4",
    ),
    Condition(
        "input-bound", "Steps wait for their data", "input-bound", pace.read_input, pace.say_input,
        (AlertRung("warn", 30.0, 20.0),), unit="% of a step", hold_s=300.0, quiet_s=60.0,
        needs=condition.has_active_runs,
        over="{key} no longer waits for its data",
        advice="More loader workers (up to the cores), pinned memory, local data; py-spy top --pid "
               "shows what is slow.",
        see="U24 U8 U38",
    ),
    Condition(
        "comm-bound", "Steps wait for the other ranks", "comm-bound", pace.read_talk, pace.say_talk,
        (AlertRung("warn", 40.0, 30.0),), unit="% of a step", hold_s=300.0, quiet_s=60.0,
        needs=condition.has_active_runs,
        over="{key} no longer waits for the other ranks",
        advice="Larger buckets, no .item() in each step, shards within one machine; or one rank is "
               "slow.",
        see="T23",
    ),
    Condition(
        "held-back", "A log is silent while its run continues", "buffered", pace.read_held_back,
        pace.say_held_back,
        YES, hold_s=60.0,
        needs=condition.named_work,
        over="the log of {key} is no longer silent",
        advice="Start it with PYTHONUNBUFFERED=1 (or python -u): its output stays in a buffer.",
        see="U43",
    ),
    *space.CONDITIONS,
    Condition(
        "throttled", "A GPU is slowed down", "throttled", gpu.read_throttled, gpu.say_throttled,
        YES, hold_s=120.0, quiet_s=60.0,
        needs=condition.ailing_card,
        over="GPU {key} is no longer slowed down",
        advice="Heat or power of the host: if it persists, rent another machine; it costs 25 to "
               "40% of the speed.",
        see="U23",
    ),
    Condition(
        "cpu-throttled", "The CPU quota slows the training down", "cpu", gpu.read_cpu, gpu.say_cpu,
        (AlertRung("warn", 25.0, 15.0),), unit="% of the time", hold_s=300.0, quiet_s=60.0,
        over="the CPU quota no longer slows the training down",
        advice="Set OMP_NUM_THREADS and the number of loader workers to the number of cores you "
               "get.",
        see="U40",
    ),
    Condition(
        "crowded", "Too many threads for the cores", "threads", pace.read_crowded, pace.say_crowded,
        YES, hold_s=300.0, quiet_s=60.0,
        over="no longer too many threads for the cores",
        advice="Set OMP_NUM_THREADS and the number of loader workers to the number of cores you "
               "get.",
        see="U40",
    ),
    Condition(
        "stolen", "The host gives CPU time to other machines", "steal", pace.read_stolen,
        pace.say_stolen,
        (AlertRung("warn", 10.0, 5.0),), unit="% of the time", hold_s=300.0, quiet_s=120.0,
        over="the host no longer takes processor time",
        advice="A noisy neighbour: if it persists, rent another machine; nothing you change on "
               "this one helps.",
        see="U41",
    ),
    Condition(
        "xid", "The driver reports broken hardware", "xid", gpu.read_xid, say_text, YES_ERROR,
        needs=condition.ailing_card,
        over="GPU {key}: no broken hardware reported any more",
        advice="Copy the newest checkpoint off the box, then stop it and rent another.",
        findings=("U22",),
    ),
    Condition(
        "xid-soft", "The driver reports a program error", "xid", gpu.read_xid_soft, say_text, YES,
        unit="more reports", rises=True, quiet_s=600.0,
        of=frozenset(("news",)),
        over="no further program error from the driver",
        advice="Usually the program's own error: read its log; if it recurs, check the card.",
        see="U22",
    ),
    Condition(
        "tracker-error", "A run raised an error at its tracker", "tracker",
        curves.read_tracker_error, say_text, YES_ERROR,
        unit="more errors", rises=True, quiet_s=1800.0,
        of=frozenset(("news",)),
        over="no further error at the tracker",
        advice="The run's own code says so: look at its curves, and at the step that it names.",
        see="U20",
    ),
    Condition(
        "tracker-warn", "A run raised a warning at its tracker", "tracker",
        curves.read_tracker_warning, say_text, YES,
        unit="more warnings", rises=True, quiet_s=1800.0,
        of=frozenset(("news",)),
        over="no further warning at the tracker",
        advice="The run's own code says so: look at its curves, and at the step that it names.",
        see="U20",
    ),
    Condition(
        "ecc", "Memory errors that ECC could not correct", "ecc", gpu.read_ecc, gpu.say_ecc, YES,
        unit="errors",
        needs=condition.ailing_card,
        over="GPU {key}: no uncorrected memory errors any more",
        advice="Save a checkpoint and watch the count; if it grows, rent another machine.",
        see="U22",
    ),
    Condition(
        "gpu-other", "Not the GPUs that the box was rented with", "other gpu", gpu.read_other_gpus,
        say_text, YES_ERROR, hold_s=30.0,
        over="the GPUs are those that the box was rented with",
        advice="rgt check-box BOX proves it: stop the box and rent another, or correct `asked` in "
               "the fleet file.",
        see="U31",
    ),
    Condition(
        "gpu-error", "A GPU does not answer", "gpu lost", gpu.read_gpu_error, gpu.say_gpu_error,
        YES_ERROR, hold_s=30.0, needs=condition.ailing_card,
        over="GPU {key} answers again",
        advice="The GPU is lost until the machine restarts: copy the checkpoint away, rent another.",
        findings=("U22",),
        covered=gpu.card_of,
        checks=(LifecycleCheck("0.4", "GPU seen", gpu.check_gpu_seen,
                               command="rgt gpu-health {box}"),),
    ),
    Condition(
        "loss-nan", "The loss is not a number", "nan", runs.read_nan, runs.say_nan,
        (AlertRung("warn", 1.0, 1.0), AlertRung("error", 3.0, 1.0)), unit="points in a row",
        quiet_s=60.0,
        needs=condition.has_active_runs,
        over="{key}: the loss is no longer NaN",
        advice="Stop it and resume from an earlier checkpoint with a lower learning rate, bf16 or "
               "gradient clipping.",
        findings=("P8", "P9", "P10"),
        covered=runs.run_of,
        checks=(LifecycleCheck("4.4", "no NaN in the last 50 losses", runs.check_losses_finite),),
    ),
    Condition(
        "loss-spike", "The loss jumps", "spike", runs.read_spike, runs.say_spike,
        (AlertRung("warn", 8.0, 4.0),), unit="robust σ", quiet_s=60.0,
        needs=condition.has_active_runs,
        over="{key}: the loss no longer jumps",
        advice="Watch whether it recovers; if not, resume from an earlier checkpoint with a lower "
               "learning rate.",
        see="P12 P14",
    ),
    Condition(
        "loss-flat", "The loss does not fall", "flat", curves.read_flat, curves.say_flat, YES,
        hold_s=60.0, quiet_s=60.0,
        needs=condition.has_active_runs,
        over="{key}: the loss is no longer flat",
        advice="Check whether the weights change at all: learning rate, frozen layers, labels, the "
               "optimizer's groups.",
        checks=(LifecycleCheck("2.2", "loss finite and falling", runs.check_loss_falls, live=False),
                ),
        see="P12",
    ),
    Condition(
        "loss-rising", "The loss rises", "rising", curves.read_rising, curves.say_rising,
        (AlertRung("warn", 1.5, 1.25),), unit="× its lowest level", hold_s=60.0, quiet_s=60.0,
        needs=condition.has_active_runs,
        over="{key}: the loss no longer rises",
        advice="It diverges: resume from before it rose, with a third to a tenth of the learning "
               "rate.",
        see="P12 P14",
    ),
    Condition(
        "loss-resumed", "The loss is higher after a resume", "resume", curves.read_jumped,
        curves.say_jumped,
        (AlertRung("warn", 1.3, 1.15),), unit="× before", hold_s=30.0, quiet_s=60.0,
        needs=condition.has_resumed_run,
        over="{key}: the loss is no longer higher than before the resume",
        advice="The resume lost state: optimizer, scheduler, scaler or data order; compare with a "
               "copy.",
        see="2.3",
    ),
    Condition(
        "began-anew", "A run did not continue from its newest checkpoint", "anew",
        curves.read_restarted, curves.say_restarted,
        YES, hold_s=30.0, escalates=True,
        needs=condition.has_resumed_run,
        over="{key}: it has passed its newest checkpoint",
        advice="Stop it before retention removes the checkpoint, and start it again with the path "
               "to resume from.",
        see="2.3",
    ),
    Condition(
        "step-back", "A run's step went back within one attempt", "step back", curves.read_back,
        curves.say_back, YES,
        hold_s=30.0,
        needs=condition.named_work,
        over="{key}: the step no longer goes back",
        advice="Check whether the launcher restarted its ranks without a checkpoint, or two runs "
               "share a directory.",
        see="MN5 PA1 C12",
    ),
    Condition(
        "fast-finish", "A cell finished much too soon", "too soon", queue.read_fast, say_text, YES,
        hold_s=30.0, escalates=True,
        needs=condition.has_queues,
        over="{key}: no longer finished too soon",
        advice="Read its log: most likely it did not run what you wanted.",
        see="PA3",
    ),
    Condition(
        "interrupted", "A cell was interrupted and is not running", "interrupted",
        queue.read_interrupted,
        say_text, YES, told=True, escalates=True,
        of=frozenset(("queues",)),
        advice="Start the queue again: it resumes from the newest checkpoint.",
        findings=("SP1",),
        checks=(LifecycleCheck("2.3", "an interrupted run resumed from its "
                                      "checkpoint", runs.check_resume_proved, live=False),),
    ),
    Condition(
        "waiting", "Cells are waiting, but no runner is active", "waiting", queue.read_waiting,
        say_text, YES,
        escalates=True,
        of=frozenset(("queues",)),
        over="no cells wait without a runner any more",
        advice="Start the queue's runner.",
        checks=(LifecycleCheck("3.2", "runner detached", queue.check_detached,
                               command="rgt queue {box} run"),),
    ),
    Condition(
        "done-billing", "The queue is done, the GPU is still billed", "finished",
        money.read_done_billing,
        money.say_done_billing, YES, live=False, escalates=True,
        over="no longer billed while idle",
        advice="Pull and check the results, then stop the box (tear down).",
        checks=(LifecycleCheck("5.4", "nothing training", queue.check_quiet,
                               command="rgt reap {box}"),),
        see="5.1 5.6",
    ),
    Condition(
        "unreachable", "The box does not answer", "unreachable", link.read_unreachable,
        link.say_unreachable,
        YES, hold_s=LIMITS.lost_s, live=False,
        needs=condition.unreachable,
        over="no longer unreachable",
        advice="That does not mean it is dead: check the provider's console and your own network.",
        checks=(LifecycleCheck("1.1", "channel live, host key "
                                      "verified", link.check_channel, command="rgt doctor {box}"),),
        see="MP3 SSH-K2",
    ),
    Condition(
        "silent", "A connected box sends nothing", "silent", link.read_silent, link.say_silent, YES,
        hold_s=LIMITS.lost_s, live=False, escalates=True,
        needs=condition.has_stale_figures,
        over="no longer silent",
        advice="It may still be training, or hang: check the provider's console, and df on its "
               "mounts.",
        see="MP3 U22",
    ),
    Condition(
        "proxied", "SSH goes through a proxy", "proxy", link.read_proxied, link.say_proxied, YES,
        hold_s=30.0, live=False,
        of=frozenset(("link", "peer")),
        over="SSH no longer goes through a proxy",
        advice="A proxy on your computer carries the connection and may cut it: exclude the host "
               "from the proxy.",
        see="SSH-W1",
    ),
    Condition(
        "asking", "A question waits for you", "asks you", link.read_asking, link.say_asking, YES,
        hold_s=LIMITS.lost_s, live=False, told=True, escalates=True,
        of=frozenset(("link",)),
        over="no question waits for you any more",
        advice="Answer it in rgt, or give rgt a key that needs no answer (ssh-agent, identity).",
        see="1.1",
    ),
    Condition(
        "host-key", "The host key is not accepted", "key", link.read_host_key, link.say_host_key,
        YES_ERROR, live=False, told=True,
        of=frozenset(("link",)),
        over="the host key is no longer refused",
        advice="New or recreated box: compare the key, follow the reason, reconnect (r); otherwise "
               "do not log in.",
        see="SSH-T6",
    ),
    Condition(
        "login", "The box refuses the login", "login", link.read_login, link.say_login, YES_ERROR,
        live=False,
        of=frozenset(("link",)),
        over="the box no longer refuses the login",
        advice="Check user, key and agent; rgt does not retry.",
        see="1.1",
    ),
    Condition(
        "stopped", "The provider stopped the box without a request from rgt", "stopped",
        link.read_stopped, link.say_stopped, YES,
        live=False, escalates=True,
        of=frozenset(("meter", "off", "past", "self_stop", "spec")),
        over="no longer stopped by the provider",
        advice="Preempted, out of money, or stopped elsewhere: check the console, and how long its "
               "disk is kept.",
        see="SP1",
    ),
    Condition(
        "preemption", "The platform takes the machine away", "taken away", link.read_preemption,
        link.say_preemption, YES_ERROR, live=False,
        over="the machine is no longer being taken away",
        advice="Runs that can save were asked to; copy what only its disk has; rgt run BOX "
               "--on-start continues later.",
        see="SP1",
    ),
    Condition(
        "gone", "The provider no longer knows the box", "gone", link.read_gone, link.say_gone,
        YES_ERROR, live=False,
        of=frozenset(("meter", "off", "past", "spec")),
        over="no longer missing at the provider",
        advice="Only files on durable storage are left; the console shows the reason.",
        see="C4 5.3",
    ),
    Condition(
        "contested", "The provider calls the box stopped or gone, but it answers", "stopped?",
        link.read_contested, link.say_contested, YES,
        hold_s=LIMITS.lost_s, live=False, escalates=True,
        over="provider and box no longer contradict each other",
        advice="Check that `instance` in the fleet file is this box, then its console: it may be "
               "billed in full.",
        see="5.5",
    ),
    Condition(
        "clock", "A deadline for data or money is near", "clock", money.read_clock, money.say_clock,
        money.CLOCK, unit="h left", below=True, live=False,
        escalates=True,
        over="no deadline is near any more",
        advice="Save, and copy important files off the box in time; a start ends a countdown that "
               "a stop began.",
        see="platform",
    ),
    Condition(
        "balance", "The account is running out of money", "balance", money.read_balance,
        money.say_balance,
        money.BALANCE, unit="h of burn", below=True, live=False,
        quiet_s=300.0, gauge=True, escalates=True,
        over="the account is no longer running out of money",
        advice="Add money: at zero the provider stops the boxes, and may delete them.",
        see="platform",
    ),
    Condition(
        "meter", "The meter cannot be read", "meter", money.read_meter, money.say_meter,
        (AlertRung("warn", LIMITS.meter_lost_s, LIMITS.meter_lost_s),), unit="s since read",
        live=False,
        over="the meter can be read again",
        advice="Check the provider's key and console: what the box costs is unknown.",
        checks=(LifecycleCheck("5.5", "meter read from the provider", money.check_meter_read,
                               live=False),),
    ),
    Condition(
        "unconfirmed", "A stop or a rental is not confirmed", "sent?", money.read_open_action,
        money.say_open_action,
        YES_ERROR, live=False,
        of=frozenset(("open_action",)),
        over="no stop or rental is unconfirmed any more",
        advice="Check the provider's console: it may still be billed. rgt keeps polling; it sends "
               "nothing again.",
    ),
    Condition(
        "autostop-failed", "The box could not stop itself", "no stop!", autostop.read_failed_stop,
        autostop.say_failed_stop, YES_ERROR,
        of=frozenset(("autostop", "lease", "link")),
        over="it no longer reports a failed stop",
        advice="It is still billed: stop it (tear down, or its console); rgt autostop BOX --status "
               "has the reason.",
    ),
    Condition(
        "autostop-unwatched", "Armed, but no recorder enforces it", "no stop?",
        autostop.read_unwatched,
        autostop.say_unwatched, YES_ERROR, hold_s=autostop.SILENT_S,
        needs=condition.has_self_stop,
        over="no longer armed without a recorder",
        advice="Arm it again (rgt autostop); if it was disarmed elsewhere, confirm that with "
               "--disarm.",
    ),
    Condition(
        "autostop-unknown", "Unknown for longer than the limit whether the box is idle", "idle?",
        autostop.read_unknown_idle, autostop.say_unknown_idle,
        (AlertRung("warn", 1.0, 0.5),), unit="× the limit", escalates=True,
        of=frozenset(("autostop", "lease", "link")),
        over="whether it is idle is known again",
        advice="It will not stop itself: rgt autostop BOX --status shows what it cannot read; or "
               "stop it yourself.",
    ),
    Condition(
        "lease-unsaving", "A run that does not save blocks the lease", "lease",
        autostop.read_lease_unsaving, autostop.say_lease_unsaving,
        (AlertRung("warn", 1.0, 1.0),), unit="runs", escalates=True,
        of=frozenset(("autostop", "lease", "link")),
        over="no run blocks the lease any more",
        advice="Accept that it is stopped (rgt lease BOX TIME --accept RUN), postpone (rgt keep), "
               "or stop the run.",
    ),
    Condition(
        "autostop-warned", "The box is about to stop itself", "stops", autostop.read_warned,
        autostop.say_clock, YES,
        escalates=True,
        of=frozenset(("autostop", "lease", "link")),
        over="it no longer announces its stop",
        advice="Nothing, if you want it; rgt keep BOX 2h postpones it.",
    ),
    Condition(
        "autostop-disarmed", "The box no longer stops itself", "disarmed", autostop.read_disarmed,
        autostop.say_disarmed, YES,
        needs=condition.has_self_stop,
        over="no longer unexpectedly disarmed",
        advice="Arm it again (rgt autostop BOX --idle 45m), or confirm with --disarm that you know.",
    ),
    Condition(
        "parked-itself", "The box is off, as armed", "parked", autostop.read_parked_itself,
        autostop.say_parked_itself, YES, live=False, told=True,
        of=frozenset(("meter", "off", "self_stop", "spec")),
        advice="Its disks are still billed; when you start it again, rgt shows what it saved.",
    ),
    Condition(
        "unlisted", "A machine that is not in your fleet is billed", "unlisted",
        money.read_unlisted, money.say_unlisted, YES,
        live=False, escalates=True,
        of=frozenset(("account",)),
        over="machine {key} is no longer billed outside your fleet",
        advice="Add it (rgt import --from PROVIDER), delete it on the console, or mute it by its "
               "id.",
        see="platform",
    ),
    Condition(
        "leftover", "A volume, address or snapshot that no box uses is billed", "unlisted",
        money.read_leftovers, money.say_unlisted, YES, live=False,
        of=frozenset(("account",)),
        over="{key} is no longer billed outside your fleet",
        advice="Delete it on the console if you no longer need it; if you keep it on purpose, mute "
               "it by its id.",
        see="platform",
    ),
    Condition(
        "agreed", "The billed machine differs from what was asked for", "price!", money.read_agreed,
        money.say_agreed,
        YES, live=False, escalates=True,
        of=frozenset(("meter", "spec")),
        over="no longer billed differently than asked",
        advice="Compare with the console: delete it while that is cheap, or correct `asked` in the "
               "fleet file.",
        see="platform",
    ),
    Condition(
        "clock-skew", "The box's clock is off", "skew", link.read_skew, link.say_skew,
        (AlertRung("warn", LIMITS.skew_warn_s, LIMITS.skew_clear_s),), unit="s", hold_s=60.0,
        of=frozenset(("clock_skew",)),
        over="the box's clock is no longer off",
        advice="Ages are corrected for it; tokens and signatures with an expiry on the box are not.",
        checks=(LifecycleCheck("1.3", "clocks agree", link.check_clock_skew),),
    ),
    Condition(
        "own-clock", "This computer's clock is off", "skew", link.read_own_clock,
        link.say_own_clock,
        (AlertRung("warn", LIMITS.skew_warn_s, LIMITS.skew_clear_s),), unit="s", live=False,
        of=frozenset(("meter",)),
        over="this computer's clock is no longer off",
        advice="Set it (timedatectl set-ntp true); ages, the days of the journal and `--for` "
               "depend on it.",
    ),
    Condition(
        "stream", "The agent's stream is damaged", "stream", link.read_stream, link.say_stream, YES,
        unit="more losses", rises=True, quiet_s=600.0, live=False,
        over="the agent's stream is no longer damaged",
        advice="A bad network, or a program that writes into the channel; rgt doctor tests the box.",
        checks=(LifecycleCheck("1.4", "stream without gap or repeat", link.check_gapless),),
    ),
    # Only in the checklist.
    *CHECKED_ONLY,
)  # fmt: skip

# The other entries of the handbook become conditions without an alert: findings report them.
_NAMED = frozenset(id_ for row in _ROWS for id_ in row.findings)


@functools.cache
def all_conditions() -> tuple[Condition, ...]:
    """Return every condition: alerts first, in the order in which those of one level are shown."""
    by_log = (
        Condition(entry.id, entry.title, findings=(entry.id,))
        for entry in HANDBOOK.values()
        if entry.id not in _NAMED
    )
    return (*_ROWS, *by_log)


ALERTS = tuple(row for row in _ROWS if row.rungs)
BY_ID = {row.id: row for row in ALERTS}
CHECKS = tuple(sorted((check for row in _ROWS for check in row.checks), key=lambda check: check.id))


def ended_text(alert_id: str) -> str:
    """Return the sentence for an alert that has ended, from its id (``KIND`` or ``KIND:KEY``)."""
    kind, _, key = clean_text(alert_id).partition(":")
    row = BY_ID.get(kind)
    # The journal may have an alert of an older rgt, whose kind no longer exists.
    if row is None or not row.over:
        if row is not None:
            title = translate(row.title)
            title = title[0].lower() + title[1:]
        else:
            title = kind
        ended = translate("no longer reported: {title}", title=title)
    elif "{key}" in row.over:
        return translate(row.over, key=key)
    else:
        ended = translate(row.over)
    if key:
        return translate("{ended} ({key})", ended=ended, key=key)
    return ended


def ids_referring_to(page: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ids of the alerts and of the checks that refer to a page of the handbook."""
    rows = [row for row in _ROWS if page in row.related_ids.split()]
    # Ids of checks begin with their phase, those of the handbook with a letter.
    checks = {id_ for row in rows for id_ in row.related_ids.split() if id_[0].isdigit()}
    return tuple(row.id for row in rows if row.rungs), tuple(sorted(checks))


def covered_alert_ids(findings: Iterable[Finding]) -> frozenset[str]:
    """Return the ids of alerts that a finding replaces because it says the same and more."""
    return frozenset(
        f"{row.id}:{key}"
        for finding in findings
        for row in _COVERED.get(finding.gotcha, ())
        # A guess may be wrong, so it hides no alert.
        if not finding.guess
        and row.covered is not None
        and (key := row.covered(finding)) is not None
    )


_COVERED = {
    id_: [row for row in _ROWS if row.covered is not None and id_ in row.findings] for id_ in _NAMED
}
