"""The ``mirrors`` verb: a platform's mirrors and proxy, for job cells and for login shells.

In the user's shell start-up files, rgt owns one marked block that sources a file of its own.
Removing the block restores the file byte for byte.
"""

from __future__ import annotations

import os
import re
import stat
import sys

from rgt_box import files, jsonline, options, ownership, place
from rgt_box.queue import cell_command, queue_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rgt_wire import JsonObject

HELP = """
usage: mirrors show
       mirrors on   < {"for": [KIND...], "env": {KIND: {NAME: VALUE}}, "hooks": {"proxy": LINE, "no_proxy": [NAME...]}}
       mirrors off  < {"for": [KIND...], "env": {KIND: {NAME: VALUE}}}
       mirrors tell < {"env": {NAME: VALUE}, "hooks": {"env": LINE, "proxy": LINE, "no_proxy": [NAME...]}}

Turn a platform's mirrors (hf, pip, conda) and proxy on or off: for the cells that are started from now on, and for new
login shells, which source a file of rgt's own through one marked block at the end of ~/.bashrc and ~/.zshrc. off takes
that out again, to the byte. tell only passes on what the platform has for cells, as a watching client does.

Prints {"jobs": {"env", "hooks", "off"}, "login": {"file", "kinds", "sourced_by"}, "problems": [...]}.

Exit status: 0 done, 1 a start-up file could not be changed, 2 wrong command line.

Example: mirrors show
"""
VERBS = ("show", "on", "off", "tell")
KINDS = ("hf", "pip", "conda", "proxy")
BEGIN, END = b"# >>> rgt mirrors >>>", b"# <<< rgt mirrors <<<"
JOINED, MADE = b" (the line before had no end)", b" (rgt made this file)"
_BLOCK = re.compile(
    rb"(?P<joined>\n)?%s(?P<how>%s|%s)?\n.*?\n%s\n"
    % tuple(map(re.escape, (BEGIN, JOINED, MADE, END))),
    re.S,
)
START_UP = (".bashrc", ".zshrc")
OTHERWISE = ".profile"
MOST = 4 << 20


def main(argv: list[str]) -> int:
    """Run the verb; returns the exit status."""
    if not argv or argv[0] not in VERBS:
        return options.refuse_verb(argv, HELP)
    options.parse_or_exit(argv[1:], {}, HELP)
    problems: list[str] = []
    if argv[0] == "show":
        told = {}
    else:
        told = jsonline.loads_dict(sys.stdin.buffer.read(1 << 20)) or {}
    try:
        if argv[0] == "tell":
            env = queue_file.environment(_dict_or_empty(told.get("env")))
            queue_file.remember_platform(
                place.state_dir(), env, cell_command.valid_hooks(told.get("hooks"))
            )
        elif argv[0] != "show":
            kinds = [kind for kind in told.get("for") or () if kind in KINDS]
            if not kinds:
                print(
                    'mirrors: "for" must name at least one of {}'.format(", ".join(KINDS)),
                    file=sys.stderr,
                )
                return 2
            switch_kinds(argv[0] == "on", kinds, told)
    except OSError as error:
        problems.append(f"{error.filename or place.state_dir()}: {error.strerror or error}")
    sys.stdout.buffer.write(
        # What a shell's start-up file printed may not have ended its line: the answer begins a new
        # one.
        b"\n" + jsonline.encode_line(dict(current_settings(), problems=problems))
    )
    if problems:
        return 1
    return 0


def switch_kinds(on: bool, kinds: list[str], told: JsonObject) -> None:
    """Turn some kinds on or off, for cells and for login shells.

    Raises:
        OSError: a file cannot be written.
    """
    folder = place.state_dir()
    ownership.ensure_private_folder(folder)
    given = _dict_or_empty(told.get("env"))
    env = {kind: queue_file.environment(given.get(kind) or {}) for kind in kinds}
    names = {name for kind in kinds for name in env[kind]} | ({cell_command.PROXY} & set(kinds))
    login = _dict_or_empty(_read_settings().get("login"))
    off = set(queue_file.names_turned_off(folder))
    if on:
        hooks = cell_command.valid_hooks(told.get("hooks"))
        merged = dict(queue_file.platform_environment(folder))
        for kind in kinds:
            merged.update(env[kind])
            login[kind] = _login_lines(env[kind], hooks if kind == cell_command.PROXY else {})
        queue_file.remember_platform(folder, merged, {**queue_file.platform_hooks(folder), **hooks})
        off -= names
    else:
        off |= names
        for kind in kinds:
            login.pop(kind, None)
    _write_login({kind: lines for kind, lines in login.items() if lines})
    files.write_json(os.path.join(folder, queue_file.OFF), {"off": sorted(off), "login": login})


def _dict_or_empty(value: Any) -> JsonObject:
    if isinstance(value, dict):
        return value
    return {}


def _login_lines(env: dict[str, str], hooks: JsonObject) -> list[str]:
    found = [
        f"export {name}={cell_command.quote_for_shell(value)}"
        for name, value in sorted(env.items())
    ]
    if cell_command.PROXY in hooks:
        found.append(hooks[cell_command.PROXY])
        near = ",".join(cell_command.no_proxy_hosts([], hooks, {}))
        found.append(
            'if [ -n "$http_proxy$https_proxy" ]; then export '
            f'no_proxy="${{no_proxy:+$no_proxy,}}{near}"; export NO_PROXY="$no_proxy"; fi'
        )
    return found


def _read_settings() -> JsonObject:
    return files.read_json(os.path.join(place.state_dir(), queue_file.OFF), 1 << 20) or {}


def own_file() -> str:
    """Return the path of rgt's file that login shells source."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(config, "rgt", "mirrors.sh")


def _write_login(login: dict[str, list[str]]) -> None:
    path = own_file()
    if not login:
        for name in (*START_UP, OTHERWISE):
            _rewrite_file(os.path.join(os.path.expanduser("~"), name), remove_block)
        files.unlink_if_exists(path)
        return
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    rows = ["# Written by rgt mirrors; it rewrites this file. Undo it with: rgt mirrors BOX --off"]
    for kind, lines in sorted(login.items()):
        rows += ["# " + kind, *lines]
    files.replace_file(path, "\n".join([*rows, ""]).encode("utf-8", "replace"), sync=True)
    home = os.path.expanduser("~")
    there = [name for name in START_UP if os.path.isfile(os.path.join(home, name))]
    for name in there or [OTHERWISE]:
        _rewrite_file(os.path.join(home, name), lambda data: add_block(data, path))


def add_block(data: bytes | None, path: str) -> bytes | None:
    """Return a start-up file with the block appended; unchanged if it has one.

    `data` is None if the file does not exist.
    """
    if data is not None and _BLOCK.search(data):
        return data
    word = cell_command.quote_for_shell(path)
    body = (f"if [ -r {word} ]; then . {word}; fi").encode("utf-8", "surrogateescape")
    # The block begins on a line of its own; removing it has to restore the missing line end, too.
    joined = data is not None and data != b"" and not data.endswith(b"\n")
    if data is None:
        how = MADE
    elif joined:
        how = JOINED
    else:
        how = b""
    return (
        (data or b"")
        + (b"\n" if joined else b"")
        + BEGIN
        + how
        + b"\n"
        + body
        + b"\n"
        + END
        + b"\n"
    )


def remove_block(data: bytes | None) -> bytes | None:
    """Return a start-up file without the block; None if it is missing or rgt created it."""
    if data is None:
        found = None
    else:
        found = _BLOCK.search(data)
    if data is None or found is None:
        return data
    how = found.group("how")
    if how == JOINED or not found.group("joined"):
        start = found.start()
    else:
        start = found.start() + 1
    left = data[:start] + data[found.end() :]
    if how == MADE and not left:
        return None
    return left


def _rewrite_file(path: str, change: Any) -> None:
    """Replace a file atomically, keeping its permissions; leave it alone if unchanged."""
    # Dotfiles are often links into a repository: replacing the link would cut it off.
    real = os.path.realpath(path)
    try:
        seen = os.stat(real)
    except FileNotFoundError:
        seen = None
    if seen is not None and (not stat.S_ISREG(seen.st_mode) or seen.st_size > MOST):
        raise OSError(22, "no start-up file that rgt would change", path)
    # As root in a home of another user, a replaced file would belong to root from then on.
    if seen is not None and seen.st_uid != os.geteuid():
        raise OSError(1, f"it belongs to {ownership.user_name(seen.st_uid)}", path)
    if seen is None:
        data = None
    else:
        data = files.read_file(real, MOST)
    if seen is not None and data is None:
        raise OSError(5, "it cannot be read", path)
    after = change(data)
    if after == data:
        return
    if after is None:
        files.unlink_if_exists(real)
    else:
        if seen is None:
            mode = 0o644
        else:
            mode = stat.S_IMODE(seen.st_mode)
        files.replace_file(real, after, sync=True, mode=mode)
        os.chmod(real, mode)


def current_settings() -> JsonObject:
    """Return the current settings."""
    folder = place.state_dir()
    home = os.path.expanduser("~")
    login = _dict_or_empty(_read_settings().get("login"))
    sourced = []
    for name in (*START_UP, OTHERWISE):
        data = files.read_file(os.path.join(home, name), MOST)
        if data is not None and _BLOCK.search(data):
            sourced.append(os.path.join(home, name))
    return {
        "jobs": {
            "env": queue_file.platform_environment(folder),
            "hooks": queue_file.platform_hooks(folder),
            "off": queue_file.names_turned_off(folder),
        },
        "login": {
            "file": own_file() if os.path.exists(own_file()) else None,
            "kinds": sorted(kind for kind, lines in login.items() if lines),
            "sourced_by": sourced,
        },
    }
