"""Reads the address of a box from pasted text: a host, or an ssh command as vendors show it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rgt_tui.language import translate
from rgt_tui.model import pasted_tunnel

# From ssh(1) of OpenSSH 9: needed to skip the values of options that rgt ignores.
VALUED = "BbcDEeFIiJLlmOoPpQRSWw"
"""Options of OpenSSH's ssh that take a value."""
# Of ssh -o; all others belong into ssh_config.
OPTIONS = {"port": "port", "user": "user", "identityfile": "identity", "hostname": "host"}
HONOURED = frozenset((
    "addressfamily", "batchmode", "bindaddress", "certificatefile", "ciphers", "compression",
    "connecttimeout", "globalknownhostsfile", "hostkeyalgorithms", "hostkeyalias", "identitiesonly",
    "identityagent", "kbdinteractiveauthentication", "kexalgorithms", "macs",
    "passwordauthentication", "preferredauthentications", "pubkeyauthentication",
    "serveralivecountmax", "serveraliveinterval", "stricthostkeychecking", "userknownhostsfile",
))  # fmt: skip
"""Other options that rgt reads from ssh_config (docs/ssh.md), in lower case."""
HONOURED_LETTERS = frozenset("46CbBcm")
"""Letters of ssh that are such options."""
UNUSED_LETTERS = frozenset("AXYKIOPQRSWw")
"""Letters whose effect is lost; the others make no difference to rgt."""
HARMLESS = (
    "loglevel",
    "requesttty",
    "controlmaster",
    "controlpath",
    "controlpersist",
    "logverbose",
)


class NotSshAddress(ValueError):
    """The pasted text is no address of a box; the message says why."""


def parse_target(text: str, left_out: list[str] | None = None) -> dict[str, Any]:
    """Parse a host or an ssh command.

    Returns a dict with ``host`` and, if given, ``port``, ``user``, ``identity``, ``ssh_config`` and
    ``tunnels``.

    Args:
        text: ``HOST``, ``USER@HOST``, ``HOST:PORT``, ``ssh://…``, or a whole ssh command.
        left_out: Sentences about parts of the command that have no place in a fleet file are
            appended to it.

    Raises:
        NotSshAddress: It has another form.
    """
    try:
        # As the shell would: consoles of vendors show commands with quoted options.
        parts = shlex.split(text)
    except ValueError as error:
        raise NotSshAddress(f"{text!r}: {error}") from error
    if not parts:
        raise NotSshAddress(translate("no host is named"))
    words = _without_sshpass(parts)
    # "ssh" alone may be the name of a host.
    if re.search(r"(?:^|/)ssh$", words[0]) and len(words) > 1:
        command = PastedCommand(words[1:])
        found = command.parse_words()
        if left_out is not None:
            left_out += command.describe_left_out(found, had_password=words is not parts)
        return found
    if len(parts) > 1:
        raise NotSshAddress(
            translate(
                "{words!r} is neither a host nor an ssh command; put the command in quotes",
                words=text,
            )
        )
    return _parse_address(parts[0])


def _without_sshpass(parts: list[str]) -> list[str]:
    """Return the ssh command that ``sshpass`` starts; `parts` itself if it is not named."""
    start = 0
    while start < len(parts) - 1 and re.match(r"[A-Za-z_]\w*=", parts[start]):
        start += 1  # SSHPASS=…
    if not re.search(r"(?:^|/)sshpass$", parts[start]):
        return parts
    place = next((at for at, word in enumerate(parts) if re.search(r"(?:^|/)ssh$", word)), None)
    if place is None:
        # Without the text: it has a password.
        raise NotSshAddress(translate("sshpass is followed by no ssh command"))
    return parts[place:]


class PastedCommand:
    """The words of an ssh command after ``ssh``.

    Args:
        words: The words.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self._for_config: list[str] = []
        self._unused: list[str] = []
        self._host_keys: list[str] = []

    def parse_words(self) -> dict[str, Any]:
        """Return the keys of the box; the words of a remote command are left."""
        found: dict[str, Any] = {}
        target: dict[str, Any] | None = None
        while self._words and (target is None or self._words[0].startswith("-")):
            word = self._words.pop(0)
            if word == "--":
                continue
            if not word.startswith("-"):
                target = _parse_address(word)
                continue
            for key, value in self._parse_option(word):
                if key == "tunnels":
                    found.setdefault(key, []).append(value)
                else:
                    # As in ssh: the first value of an option wins.
                    found.setdefault(key, value)
        if target is None:
            raise NotSshAddress(translate("the ssh command names no host"))
        return target | found

    def _parse_option(self, word: str) -> list[tuple[str, Any]]:
        """Parse one word of options, such as ``-p``, ``-p40022``, ``-tA``, and its value."""
        # Letters without a value may be combined (-tA), the last one may have a value (-Np40022).
        for place, letter in enumerate(word[1:], 1):
            if letter not in VALUED:
                self._note_letter(letter, "")
                continue
            value = word[place + 1 :]
            if not value:
                if not self._words:
                    raise NotSshAddress(translate("-{letter} needs a value", letter=letter))
                value = self._words.pop(0)
            return self._parse_valued(letter, value)
        return []

    def _parse_valued(self, letter: str, value: str) -> list[tuple[str, Any]]:
        if letter == "p":
            return [("port", _parse_port(value))]
        if letter == "l":
            return [("user", value)]
        if letter == "i":
            return [("identity", value)]
        # Kept as the box's own file: its alias may have no meaning in the usual one.
        if letter == "F":
            return [("ssh_config", value)]
        if letter == "o":
            return self._parse_long_option(value)
        if letter in "LD":
            tunnel = pasted_tunnel(letter, value)
            if tunnel is None:
                self._unused.append(f"-{letter} {value}")
                return []
            return [("tunnels", str(tunnel))]
        # Refused, not ignored: without its jump host the box would look unreachable. A box names no
        # jump host itself, because ssh_config also has that host's user and key.
        if letter == "J":
            raise NotSshAddress(
                translate(
                    "-J {value}: put it into an entry of ~/.ssh/config (Host ALIAS, ProxyJump "
                    "{value}), then: rgt add NAME ALIAS",
                    value=value,
                )
            )
        self._note_letter(letter, f" {value}")
        return []

    def _note_letter(self, letter: str, value: str) -> None:
        if letter in HONOURED_LETTERS:
            self._for_config.append(f"-{letter}{value}")
        elif letter in UNUSED_LETTERS:
            self._unused.append(f"-{letter}{value}")

    def _parse_long_option(self, value: str) -> list[tuple[str, Any]]:
        # ssh accepts Name=value and "Name value".
        plain = re.sub(r"\s*[= ]\s*", "=", value.strip(), count=1)
        name, _, text = plain.partition("=")
        key = OPTIONS.get(name.lower())
        if name.lower() in ("proxyjump", "proxycommand"):
            raise NotSshAddress(
                translate(
                    "-o {name}: put it into an entry of ~/.ssh/config, then: rgt add NAME ALIAS",
                    name=name,
                )
            )
        if key == "port":
            return [(key, _parse_port(text))]
        if key is not None:
            return [(key, text)]
        if (name.lower(), text.lower()) in UNCHECKED:
            self._host_keys.append(f"-o {plain}")
        elif name.lower() in HONOURED:
            self._for_config.append(f"-o {plain}")
        elif name.lower() not in HARMLESS:
            self._unused.append(f"-o {plain}")
        return []

    def describe_left_out(self, found: Mapping[str, Any], *, had_password: bool) -> list[str]:
        """Return a sentence for each kind of part that the box does not have.

        Args:
            found: What `parse_words` returned.
            had_password: The command was given to sshpass.
        """
        lines = []
        if had_password:
            address = found["host"]
            if "user" in found:
                address = f"{found['user']}@{address}"
            if "port" in found:
                address = f"-p {found['port']} {address}"
            lines.append(
                translate(
                    "left out: sshpass and its password; rgt asks for the password once and keeps "
                    "it in memory until rgt ends. A key spares that: ssh-copy-id {address}",
                    address=address,
                )
            )
        if self._words:
            command = " ".join(self._words)
            lines.append(
                translate(
                    "left out: the command {command!r}; a box has none. To run it: rgt exec NAME "
                    "-- {command}",
                    command=command,
                )
            )
        if self._host_keys:
            lines.append(
                translate(
                    "left out: {options}; rgt asks once about an unknown host key, and refuses one "
                    "that has changed",
                    options=", ".join(self._host_keys),
                )
            )
        if self._for_config:
            lines.append(
                translate(
                    "left out: {options}; to keep it, write it into ~/.ssh/config (Host ALIAS, "
                    "HostName {host}), then: rgt add NAME ALIAS",
                    options=", ".join(self._for_config),
                    host=found["host"],
                )
            )
        if self._unused:
            lines.append(
                translate(
                    "left out: {options}; rgt does not use it", options=", ".join(self._unused)
                )
            )
        return lines


UNCHECKED = (
    ("stricthostkeychecking", "no"),
    ("stricthostkeychecking", "off"),
    ("userknownhostsfile", "/dev/null"),
    ("checkhostip", "no"),
)
"""Options that switch the check of host keys off."""


def _parse_address(text: str) -> dict[str, Any]:
    uri = re.fullmatch(r"ssh://(.*?)/?", text)
    body = uri.group(1) if uri else text
    user, at, host = body.rpartition("@")
    found: dict[str, Any] = {}
    literal = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?", host)
    if literal:
        host, port = literal.group(1), literal.group(2)
    # Two colons or more without brackets: an IPv6 address.
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
        if not port:
            raise NotSshAddress(translate("{words!r} has an empty port", words=text))
    else:
        port = None
    # A host that begins with "-" would be read as an option by ssh.
    if not host or host.startswith("-") or re.search(r"[\s/]", host) or (at and not user):
        raise NotSshAddress(translate("{words!r} is not a host", words=text))
    found["host"] = host
    if port is not None:
        found["port"] = _parse_port(port)
    if user:
        found["user"] = user
    return found


def _parse_port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise NotSshAddress(translate("{words!r} is not a port", words=text))
    return int(text)
