"""The system's keyring as the last place in which a platform's key is looked for: where `keyring` is installed.

https://keyring.readthedocs.io/: ``keyring set rgt RUNPOD_API_KEY`` stores a key, ``get_password(service, username)``
reads it. A keyring may be locked and ask its person, so that nobody waits for it long: the answer counts when it comes.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Callable

SERVICE = "rgt"
PATIENCE_S = 2.0
"""Seconds to wait for a keyring at the first question; it goes on in its thread, and counts at a later one."""


class KeyStore:
    """Asks the keyring once for each name, in a thread.

    Args:
        patience_s: For the first answer.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._answers: dict[str, str] = {}
        self._asked: dict[str, threading.Thread] = {}

    @staticmethod
    def there() -> bool:
        """Tell whether the library is installed."""
        return importlib.util.find_spec("keyring") is not None

    def key(self, name: str) -> str:
        """Return the key that is stored under the name of a variable; empty = none, or nobody has answered yet."""
        if name not in self._asked:
            if not self.there():
                return ""
            thread = threading.Thread(target=self._ask, args=(name,), name=f"keyring {name}", daemon=True)
            self._asked[name] = thread
            thread.start()
            thread.join(self._patience_s)
        return self._answers.get(name, "")

    def _ask(self, name: str) -> None:
        try:
            read: Callable[[str, str], str | None] = importlib.import_module("keyring").get_password
            found = read(SERVICE, name)
        except Exception:  # a back end without a session, a locked one, a broken one: there is no key then
            return
        if isinstance(found, str):
            self._answers[name] = found.strip()


STORE = KeyStore()
"""The process's own: a keyring that asks its person must not do so at every reading."""
