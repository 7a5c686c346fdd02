"""Entry point: selects a verb and imports only what it needs.

The zipapp therefore starts in tens of milliseconds.
"""

from __future__ import annotations

import os
import sys

if __package__ in (None, ""):  # started as a directory or a script from a source tree
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

VERBS = {
    "sample": ("rgt_box.sampling.sampler", "print one full sample as a JSON line"),
    "watch": ("rgt_box.streams.watch", "stream frames: config on stdin, frames on stdout"),
    "record": ("rgt_box.recorder.record_command", "start or stop the detached recorder"),
    "queue": ("rgt_box.queue.queue_command", "run, check or show a queue of cells"),
    "detach": ("rgt_box.queue.detach", "start `queue run` detached (tmux, else setsid, or Slurm)"),
    "launch": ("rgt_box.queue.launch", "test, check and start a job, and watch its first steps"),
    "on-start": ("rgt_box.commands.on_start", "the hook that continues queues after a restart"),
    "manifest": ("rgt_box.commands.manifest", "list files with size, SHA-256 and mtime"),
    "reconcile": (
        "rgt_box.commands.reconcile",
        "compare the queue with what is on durable storage",
    ),
    "results": (
        "rgt_box.commands.results",
        "list files on this box that could be lost, by directory",
    ),
    "seal": ("rgt_box.commands.seal", "block new work during a billing call, and check once more"),
    "unseal": ("rgt_box.commands.seal:unseal", "release a seal"),
    "autostop": (
        "rgt_box.autostop.autostop_command",
        "let the box park itself when idle, or when its lease ends",
    ),
    "sink": (
        "rgt_box.autostop.sink",
        "keep the address that the box calls for events that cost money",
    ),
    "mirror": (
        "rgt_box.commands.mirror",
        "copy a directory to durable storage, read back and compared",
    ),
    "cat": ("rgt_box.commands.cat", "print the exact bytes of a file, from any offset"),
    "send": (
        "rgt_box.commands.send",
        "send pieces of files and their hashes as asked for on stdin",
    ),
    "grep": ("rgt_box.commands.grep", "search logs, newest lines first"),
    "scalars": ("rgt_box.metrics.scalars_command", "print the metrics that a run has written"),
    "reap": (
        "rgt_box.commands.reap",
        "list processes that have a GPU open; end the named ones",
    ),
    "stop": ("rgt_box.commands.stop", "stop one run so that it can save, and report what it saved"),
    "gpu-health": ("rgt_box.commands.gpu_health", "check the GPUs before a run"),
    "measure": ("rgt_box.commands.measure", "test GPUs, disk and network before a long run"),
    "mirrors": ("rgt_box.commands.mirrors", "turn a platform's mirrors and proxy on or off"),
    "secret": (
        "rgt_box.secret_store",
        "keep secrets for runs, and find those that others can read",
    ),
    "push": (
        "rgt_box.push.push_command",
        "receive the code and data of a push, completely or not at all",
    ),
    "fix": ("rgt_box.commands.fix_steps", "run what only looks; preview and do a removal"),
    "remove": ("rgt_box.commands.remove", "remove rgt from this box, or only its older agents"),
}
"""Verb → (module with a ``main(argv)``, or ``module:function``, one line of help)."""

WORDS_FROM_STDIN = "--words-from-stdin"
"""The only argument of a verb whose arguments are a JSON line on standard input. A command line has
at most 128 KiB on Linux (MAX_ARG_STRLEN: sshd passes all of it to the shell as one word).
"""


def usage_text() -> str:
    """Return the overview of verbs."""
    lines = ["usage: python3 rgt-box.pyz VERB [options]   (VERB --help for details)", ""]
    for verb, (_, text) in VERBS.items():
        lines.append("  %-10s %s" % (verb, text))
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Run one verb.

    Args:
        argv: Words after the program's name; the process's own by default.

    Returns:
        The exit status; 2 for a wrong command line.
    """
    if argv is None:
        words = sys.argv[1:]
    else:
        words = argv
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage_text())
        if words:
            return 0
        return 2
    if words[0] not in VERBS:
        print(f"unknown verb: {words[0]}\n\n{usage_text()}", file=sys.stderr)
        return 2
    name, _, function = VERBS[words[0]][0].partition(":")
    # Before any verb: later tmux commands read this variable without a further check.
    if "TMUX" in os.environ:
        from rgt_box import ownership

        ownership.forget_foreign_tmux()
    try:
        module = __import__(name, fromlist=["main"])
    except ModuleNotFoundError as error:
        # Only a missing verb module is expected; a failing import inside one is a bug and must
        # show.
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise
        print(
            f"{words[0]}: this agent was built without that verb (no module {error.name})",
            file=sys.stderr,
        )
        return 2
    packed = sys.modules.get("rgt_box.bytecode")
    if packed is not None:
        packed.save_compiled()  # a long-running verb may never reach its end
    if words[1:] == [WORDS_FROM_STDIN]:
        given = _words_from_stdin()
    else:
        given = words[1:]
    if given is None:
        print(f"{words[0]}: standard input has no JSON array of words", file=sys.stderr)
        return 2
    status: int = getattr(module, function or "main")(given)
    return status


def _words_from_stdin() -> list[str] | None:
    import json

    try:
        words = json.loads(sys.stdin.buffer.readline())
    except ValueError:
        return None
    if isinstance(words, list) and all(isinstance(word, str) for word in words):
        return words
    return None


if __name__ == "__main__":
    raise SystemExit(main())
