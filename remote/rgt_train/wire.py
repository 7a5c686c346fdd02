"""Messages between a trainer and its helper processes: JSON with raw bytes behind it, and descriptors beside it."""

from __future__ import annotations

import array
import json
import socket
import struct
from typing import Any, Dict, List, Mapping, Optional, Tuple

_HEAD = struct.Struct("<QQB")
Message = Tuple[Dict[str, Any], bytes, List[int]]
"""Its fields, the raw bytes, the descriptors that came with it."""


class Closed(ConnectionError):
    """The other side is gone."""


def send(sock: socket.socket, fields: Mapping[str, Any], raw: bytes = b"", fd: Optional[int] = None) -> None:
    """Send one message, with a descriptor if wanted.

    Raises:
        Closed: The other side is gone.
    """
    text = json.dumps(fields).encode()
    head = _HEAD.pack(len(text), len(raw), int(fd is not None))
    extra = []
    if fd is not None:
        extra = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
    try:
        sent = sock.sendmsg([head], extra)
        sock.sendall(head[sent:] + text + raw)
    except OSError as error:
        raise Closed(str(error)) from error


class Reader:
    """Takes messages out of a stream socket, whole ones only."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data = bytearray()
        self._fds: List[int] = []

    def read(self, *, block: bool) -> Optional[Message]:
        """Return the next message; None where none is complete yet and `block` is false.

        Raises:
            Closed: The other side is gone.
        """
        while True:
            message = self._take()
            if message is not None:
                return message
            if not self._receive(block):
                return None

    def _take(self) -> Optional[Message]:
        if len(self._data) < _HEAD.size:
            return None
        text, raw, count = _HEAD.unpack_from(self._data)
        end = _HEAD.size + text + raw
        if len(self._data) < end:
            return None
        body = bytes(self._data[_HEAD.size : end])
        del self._data[:end]
        fds, self._fds = self._fds[:count], self._fds[count:]
        fields: Dict[str, Any] = json.loads(body[:text])
        return fields, body[text:], fds

    def _receive(self, block: bool) -> bool:
        flags = 0 if block else socket.MSG_DONTWAIT
        try:
            data, extra, _, _ = self._sock.recvmsg(
                1 << 20, socket.CMSG_SPACE(array.array("i").itemsize), flags
            )
        except BlockingIOError:
            return False
        except OSError as error:
            raise Closed(str(error)) from error
        for level, kind, content in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(content[: len(content) - len(content) % found.itemsize])
                self._fds += list(found)
        if not data:
            raise Closed("end of stream")
        self._data += data
        return True
