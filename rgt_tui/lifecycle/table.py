"""The checks, in order. Adding one is a line here and a function beside its phase."""

from __future__ import annotations

from rgt_tui.lifecycle import checks_gpu, checks_link, checks_money, checks_queue, checks_runs, checks_space
from rgt_tui.lifecycle.check import Check

CHECKS: tuple[Check, ...] = (
    Check("0.1", "profile known, its worst danger shown", checks_money.check_profile_known, live=False),
    Check("0.2", "inodes below 80 % on every mount", checks_space.check_inodes),
    Check("0.3", "the memory limit is the container's", checks_space.check_memory_limit),
    Check("0.4", "GPU seen", checks_gpu.check_gpu_seen),
    Check("0.5", "three more checkpoints fit, bytes and inodes", checks_space.check_checkpoint_budget),
    Check("1.1", "channel live, host key verified", checks_link.check_channel),
    Check("1.2", "the agent answers", checks_link.check_agent),
    Check("1.3", "clocks agree", checks_link.check_clock_skew),
    Check("1.4", "stream without gap or repeat", checks_link.check_gapless),
    Check("1.5", "credentials in no argument, log or share", checks_link.check_credentials, live=False),
    Check("2.1", "smoke: a short run saves and goes on", checks_runs.check_smoke, live=False),
    Check("2.2", "loss finite and falling", checks_runs.check_loss_falls, live=False),
    Check("2.3", "a cut-off run went on from its checkpoint", checks_runs.check_resume_proved, live=False),
    Check("3.1", "queue read, names distinct", checks_queue.check_queue_read, live=False),
    Check("3.2", "runner detached", checks_queue.check_detached),
    Check("3.3", "first step logged", checks_queue.check_first_step, live=False),
    Check(
        "3.4",
        "checkpoints reach a disk that survives a stop",
        checks_space.check_checkpoints_stay,
        live=False,
    ),
    Check("3.5", "every cell copies to a durable place", checks_queue.check_durable_named, live=False),
    Check("4.1", "four layers reporting", checks_runs.check_four_layers),
    Check("4.2", "progress, not utilisation", checks_runs.check_progress),
    Check("4.3", "inodes below 80 % everywhere", checks_space.check_inodes),
    Check("4.4", "no NaN in the last 50 losses", checks_runs.check_losses_finite),
    Check("4.5", "newest checkpoint is recent", checks_runs.check_checkpoint_age),
    Check("4.6", "you compared two validation samples", checks_runs.check_looked, live=False),
    Check("4.7", "nothing diagnosed", checks_queue.check_undiagnosed),
    Check("4.8", "container memory below 90 %, no kill", checks_space.check_memory),
    Check("5.1", "every cell done", checks_queue.check_all_done, live=False),
    Check("5.2", "every finished cell verified on durable", checks_queue.check_all_verified, live=False),
    Check("5.3", "the durable place survives destroy", checks_money.check_durable_survives, live=False),
    Check("5.4", "nothing training", checks_queue.check_quiet),
    Check("5.5", "meter read from the provider", checks_money.check_meter_read, live=False),
    Check("5.6", "results opened by you", checks_runs.check_opened, live=False),
)
