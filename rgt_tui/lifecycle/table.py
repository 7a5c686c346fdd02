"""The checks, in order. Adding one is a line here and a function beside its phase."""

from __future__ import annotations

from rgt_tui.lifecycle import babysit, collect, consult, launch, queueing
from rgt_tui.lifecycle.check import Check

CHECKS: tuple[Check, ...] = (
    Check("0.1", "profile known, its worst danger shown", consult.profile_known, live=False),
    Check("0.2", "inodes below 80 % on every mount", consult.inodes),
    Check("0.3", "the memory limit is the container's", consult.memory_limit),
    Check("0.4", "GPU seen", consult.gpu_seen),
    Check("0.5", "three more checkpoints fit, bytes and inodes", consult.checkpoint_budget),
    Check("1.1", "channel live, host key verified", launch.channel),
    Check("1.2", "the agent answers", launch.agent),
    Check("1.3", "clocks agree", launch.clock_skew),
    Check("1.4", "stream without gap or repeat", launch.gapless),
    Check("1.5", "credentials in no argument, log or share", launch.credentials, live=False),
    Check("2.1", "smoke: a short run saves and goes on", launch.smoke, live=False),
    Check("2.2", "loss finite and falling", launch.loss_falls, live=False),
    Check("2.3", "a cut-off run went on from its checkpoint", launch.resume_proved, live=False),
    Check("3.1", "queue read, names distinct", queueing.queue_read, live=False),
    Check("3.2", "runner detached", queueing.detached),
    Check("3.3", "first step logged", queueing.first_step, live=False),
    Check("3.4", "checkpoints reach a disk that survives a stop", queueing.checkpoints_stay, live=False),
    Check("3.5", "every cell copies to a durable place", queueing.durable_named, live=False),
    Check("4.1", "four layers reporting", babysit.four_layers),
    Check("4.2", "progress, not utilisation", babysit.progress),
    Check("4.3", "inodes below 80 % everywhere", consult.inodes),
    Check("4.4", "no NaN in the last 50 losses", babysit.losses_finite),
    Check("4.5", "newest checkpoint is recent", babysit.checkpoint_age),
    Check("4.6", "you compared two validation samples", babysit.looked, live=False),
    Check("4.7", "nothing diagnosed", babysit.undiagnosed),
    Check("4.8", "container memory below 90 %, no kill", babysit.memory),
    Check("5.1", "every cell done", collect.all_done, live=False),
    Check("5.2", "every finished cell verified on durable", collect.all_verified, live=False),
    Check("5.3", "the durable place survives destroy", collect.durable_survives, live=False),
    Check("5.4", "nothing training", collect.quiet),
    Check("5.5", "meter read from the provider", collect.meter_read, live=False),
    Check("5.6", "results opened by you", collect.opened, live=False),
)
