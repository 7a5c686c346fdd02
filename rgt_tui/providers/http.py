"""HTTP for one account: its key, the hosts that may receive it, and typed exceptions for errors."""

from __future__ import annotations

import asyncio
import email.utils
import importlib
import importlib.util
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
from rgt_wire import USER_AGENT

from rgt_tui import files
from rgt_tui.language import translate
from rgt_tui.model import FrozenStruct, ProviderRef, Secret
from rgt_tui.providers.control_plane import (
    AccountContext,
    AuthError,
    BadAnswer,
    NotFound,
    ProviderError,
    RateLimited,
    RequestPause,
    StateConflict,
    Unreachable,
    make_printable,
)

TIMEOUT_S = 10.0
"""Seconds without a byte. Enough for a slow control plane, and short enough for a person in a
dialog.
"""
MAX_BODY = 8 << 20
"""Maximum bytes of an answer; a list of 200 machines is well under one MiB."""
LONGEST_PAUSE = 900.0
"""Maximum of such seconds, whatever the server says: a meter unread for days hides its cost."""


class BodyError(FrozenStruct):
    """The error in a body, regardless of the HTTP status, which some platforms leave at 200."""

    code: str
    """The platform's own code; it becomes ``ProviderError.code``."""
    text: str = ""
    means: int | None = None
    """The equivalent HTTP status; None = the answer's own."""
    made: str = ""
    """Id of a machine made despite the error; it becomes ``ProviderError.made``."""


class HttpAnswer(FrozenStruct):
    """A 2xx answer."""

    status: int
    data: object
    """Decoded JSON; None if the body is empty."""
    more: bool
    """True if a header announces more data."""
    headers: Mapping[str, str] = {}
    """Names in lower case."""


class RawExchange(FrozenStruct):
    """One request and its answer, unmodified."""

    method: str
    path: str
    body: object
    status: int
    headers: dict[str, str]
    """Those in `RECORDED_HEADERS`."""
    content: bytes


RECORDED_HEADERS = ("content-type", "link", "retry-after", "ratelimit", "x-skypilot-request-id")


class AccountHttp:
    """Sends requests to one control plane with one key. Nothing is retried here."""

    def __init__(
        self,
        base_url: str,
        key: Callable[[], Secret],
        *,
        console: str,
        clock: Callable[[], float],
        timeout_s: float = TIMEOUT_S,
        header: str = "Authorization",
        scheme: str = "Bearer ",
        wrong: Callable[[object], BodyError | None] = lambda _: None,
    ) -> None:
        """Create a client for a server; nothing is sent.

        Args:
            base_url: Its URL.
            key: Returns the key, or raises `AuthError`.
            console: Page on which a person can do the same.
            clock: Returns Unix time.
            timeout_s: Limit without a byte.
            header: Header with the key.
            scheme: Prefix of the key in it.
            wrong: Returns the error in a decoded body of any status, or None.
        """
        self.base_url = base_url.rstrip("/")
        self.console = console
        self._key = key
        self._header, self._scheme = header, scheme
        self._wrong = wrong
        self._clock = clock
        self.skew: float | None = None
        """Seconds that the client's clock is ahead of the server's, by its last answer; None = no
        difference.
        """
        self._quiet = RequestPause()
        self._timeout_s = timeout_s
        self._on_read: Callable[[RawExchange], None] | None = None
        self._total_s = 3 * timeout_s
        # A proxy for the loopback would be a mistake, and redirects could leak the key.
        self._http = httpx.AsyncClient(
            follow_redirects=False,
            # Plain http, used for the loopback only, needs no certificates.
            verify=not base_url.startswith("http://"),
            trust_env=not is_loopback(base_url),
        )

    @property
    def key_place(self) -> str:
        """Where the key is found; nothing is sent.

        Raises:
            AuthError: There is no usable key.
        """
        return self._key().place

    @property
    def host(self) -> str:
        """Host and port, as text."""
        return make_printable(
            self.base_url.rpartition("//")[2].rpartition("@")[2].partition("/")[0], 80
        )

    def server_time(self) -> float:
        """Return Unix time by the server's clock, which is used for the times of its machines."""
        return self._clock() - (self.skew or 0.0)

    def _note_date(self, header: str | None, sent_at: float) -> None:
        """Compare the clocks. A client clock that is off by a month would falsify all costs.

        The header: https://www.rfc-editor.org/rfc/rfc9110#section-6.6.1
        """
        said = _parse_date(header)
        if said is None:
            return
        now = self._clock()
        # The middle of the exchange is the best guess of when the server wrote its date.
        skew = (sent_at + now) / 2 - said
        # Clock differences below this are ignored: a `Date` header has whole seconds, and answers
        # may be queued.
        skew_s = 60.0
        # An exchange that took longer than the difference cannot prove it.
        if abs(skew) > max(skew_s, abs(now - sent_at)):
            self.skew = skew
        else:
            self.skew = None

    async def get(self, path: str, *, silent_s: float | None = None) -> HttpAnswer:
        """Send a GET request.

        During a rate limit it fails at once, so that polling cannot extend it.

        Args:
            path: Path with query.
            silent_s: Seconds without a byte that are normal for this answer; None = the usual
                limit.

        Raises:
            ProviderError: a subclass by kind of error.
        """
        return await self.send_query("GET", path, silent_s=silent_s)

    async def send_query(
        self, method: str, path: str, body: object = None, *, silent_s: float | None = None
    ) -> HttpAnswer:
        """Read something with a method other than GET; see `get`."""
        # Only reads are refused: a stop must get its chance even during a limit.
        if left := self._quiet.seconds_left(self._clock()):
            raise self._rate_limit_error(left)
        return await self._send_request(method, path, body, silent_s)

    def record_reads(self, on_read: Callable[[RawExchange], None]) -> None:
        """Pass every answer to a read to `on_read` from now on, and refuse every call that acts."""
        self._on_read = on_read

    async def send(
        self, method: str, path: str, body: object = None, *, silent_s: float | None = None
    ) -> HttpAnswer:
        """Send one request that may change something, once; see `get`.

        Raises:
            ProviderError: a subclass by kind of error.
        """
        if self._on_read is not None:
            raise ProviderError(
                translate(
                    "only reads are recorded: {method} {path} was not sent",
                    method=method,
                    path=make_printable(path, 80),
                ),
                sent=False,
            )
        return await self._send_request(method, path, body, silent_s)

    async def _send_request(
        self, method: str, path: str, body: object, silent_s: float | None
    ) -> HttpAnswer:
        # Read at each use: this also checks, before anything is sent, that this server may receive
        # it.
        try:
            key = self._key().reveal()
        except AuthError as error:
            error.sent = False
            raise
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "User-Agent": USER_AGENT,
        }
        if key:
            headers[self._header] = f"{self._scheme}{key}"
        content = None
        if body is not None:
            content = msgspec.json.encode(body)
            headers["Content-Type"] = "application/json"
        sent_at = self._clock()
        # A server that does not accept connections fails sooner, so that a dialog can say so.
        timeout = httpx.Timeout(silent_s or self._timeout_s, connect=self._timeout_s / 2)
        try:
            # The whole exchange is limited as well: a server could send single bytes forever.
            async with (
                asyncio.timeout(self._total_s + (silent_s or 0.0)),
                self._http.stream(
                    method, self.base_url + path, headers=headers, content=content, timeout=timeout
                ) as response,
            ):
                # Also of an error: its Date is as good, and a rejected key has no other answer.
                self._note_date(response.headers.get("date"), sent_at)
                raw = await self._read_body(response)
                self._pass_on(method, path, body, response, raw)
                return self._parse_answer(response, raw, f"{method} {path}")
        except httpx.InvalidURL:  # e.g. a URL containing the server's own next page
            raise BadAnswer(
                translate(
                    "cannot request {path} from {host}; nothing was sent",
                    path=make_printable(path, 80),
                    host=self.host,
                ),
                console=self.console,
                sent=False,
            ) from None
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            # `from None` throughout: the chained exception contains the request, and with it the
            # key.
            raise Unreachable(
                translate(
                    "{host} cannot be reached ({name}); nothing was sent; try again",
                    host=self.host,
                    name=type(error).__name__,
                ),
                sent=False,
                console=self.console,
            ) from None
        except (httpx.HTTPError, TimeoutError) as error:
            raise Unreachable(
                translate(
                    "{host} did not answer {method} {path} ({name}); the state is unknown, "
                    "check the "
                    "console",
                    host=self.host,
                    method=method,
                    path=path,
                    name=type(error).__name__,
                ),
                console=self.console,
            ) from None

    def _pass_on(
        self, method: str, path: str, body: object, response: httpx.Response, content: bytes
    ) -> None:
        if self._on_read is not None:
            headers = {
                name: response.headers[name]
                for name in RECORDED_HEADERS
                if name in response.headers
            }
            self._on_read(RawExchange(method, path, body, response.status_code, headers, content))

    async def _read_body(self, response: httpx.Response) -> bytes:
        # A body compressed several times could expand beyond memory from one chunk.
        packed = response.headers.get("content-encoding", "identity").strip().lower()
        # Only gzip was requested; httpx would unpack any list of encodings, one after another.
        if packed not in ("identity", "gzip", "x-gzip"):
            raise BadAnswer(
                translate(
                    "{host} answered packed as {packed!r}, which was not requested",
                    host=self.host,
                    packed=make_printable(packed, 40),
                ),
                console=self.console,
                status=response.status_code,
            )
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            # Counted after unpacking: a small body may expand to gigabytes.
            if size > MAX_BODY:
                raise BadAnswer(
                    translate(
                        "{host} answered more than {max_body} MiB",
                        host=self.host,
                        max_body=MAX_BODY >> 20,
                    ),
                    console=self.console,
                )
            chunks.append(chunk)
        return b"".join(chunks)

    def _parse_answer(self, response: httpx.Response, raw: bytes, what: str) -> HttpAnswer:
        status = response.status_code
        # Before the status is judged: the answer that uses up the limit is usually a success.
        self._note_limits(response.headers)
        good = 200 <= status < 300
        if good:
            data = self._decode_json(raw, what)
        else:
            data = _try_decode(raw)
        wrong = self._wrong(data)
        if good and wrong is None:
            more = 'rel="next"' in response.headers.get("link", "")
            return HttpAnswer(
                status, data, more, {name.lower(): text for name, text in response.headers.items()}
            )
        # Cloudflare's ban by the client's signature; its page says nothing about the key.
        if b"error code: 1010" in raw[:1000]:
            raise self._blocked_error(status)
        error = self._build_error(response, data, what, wrong or BodyError(""))
        if wrong is not None:
            error.code, error.made = wrong.code, wrong.made
        raise error

    def _build_error(
        self, response: httpx.Response, data: object, what: str, wrong: BodyError
    ) -> ProviderError:
        """Return the error for an answer."""
        status, console = response.status_code, self.console
        words = (
            make_printable(wrong.text or wrong.code)
            or _find_detail(data)
            or make_printable(response.reason_phrase, 80)
        )
        if wrong.means is None:
            means = status
        else:
            means = wrong.means
        if means in (401, 403):
            return AuthError(
                translate(
                    "{host} refused the key ({status} {words}); check that it is valid and "
                    "has the right "
                    "for this",
                    host=self.host,
                    status=status,
                    words=words,
                ),
                console=console,
                status=status,
            )
        if means == 404:
            return NotFound(
                translate("{host} does not know it: {what}", host=self.host, what=what),
                console=console,
                status=status,
            )
        if means == 409:
            return StateConflict(
                translate("{host} refused: {words}", host=self.host, words=words),
                console=console,
                status=status,
            )
        if means == 429:
            wait = _retry_after(response.headers.get("retry-after"), self._clock())
            if wait is not None:
                wait = min(wait, LONGEST_PAUSE)
            # Seconds without requests after a 429 that does not say how long to wait.
            back_off = 15.0
            self._start_quiet_period(back_off if wait is None else wait)
            return self._rate_limit_error(wait, status)
        # The call may have been carried out before the failure.
        if means >= 500:
            return Unreachable(
                translate(
                    "{host} failed with {status} {words} on {what}; state unknown, see the console",
                    host=self.host,
                    status=status,
                    words=words,
                    what=what,
                ),
                console=console,
                status=status,
            )
        why = ""
        if 300 <= status < 400:
            why = translate(", a redirect, which is not followed")
        return BadAnswer(
            translate(
                "{host} answered {status} {words} to {what}{why}",
                host=self.host,
                status=status,
                words=words,
                what=what,
                why=why,
            ),
            console=console,
            status=status,
        )

    def _blocked_error(self, status: int) -> ProviderError:
        """Return the error for Cloudflare's ban by User-Agent; the platform never saw the request.

        The answer's text: https://github.com/source-cooperative/data.source.coop/issues/134
        (2026-05)
        """
        return BadAnswer(
            translate(
                "Cloudflare, in front of {host}, refused this program ({status}, error code: 1010) "
                "before the key was read: the key is not the cause; a proxy may have changed the "
                "User-Agent {user_agent}",
                host=self.host,
                status=status,
                user_agent=USER_AGENT,
            ),
            console=self.console,
            status=status,
        )

    def _decode_json(self, raw: bytes, what: str) -> object:
        if not raw.strip():
            return None
        try:
            data: object = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadAnswer(
                translate(
                    "{host} answered {what} with something that is not JSON",
                    host=self.host,
                    what=what,
                ),
                console=self.console,
            ) from None
        return data

    def _note_limits(self, headers: httpx.Headers) -> None:
        """Pause when the server reports that no requests remain.

        The header: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
        """
        for item in headers.get("ratelimit", "").split(","):
            left = re.search(r";\s*r=(\d{1,9})", item)
            until = re.search(r";\s*t=(\d{1,9})", item)
            # The draft's RateLimit header: r requests remain, t seconds until there are more.
            if left and until and int(left[1]) == 0:
                self._start_quiet_period(float(until[1]))

    def _start_quiet_period(self, seconds: float) -> None:
        now = self._clock()
        # A shorter pause must not end a longer one that was already announced.
        self._quiet.begin(now, max(self._quiet.seconds_left(now), min(seconds, LONGEST_PAUSE)))

    def _rate_limit_error(self, wait: float | None, status: int | None = None) -> RateLimited:
        if wait is None:
            when = "later"
        else:
            when = f"in {wait:.0f} s"
        return RateLimited(
            translate(
                "{host} allows no more requests now; try again {when}", host=self.host, when=when
            ),
            retry_after=wait,
            console=self.console,
            status=status,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


def _try_decode(raw: bytes) -> object:
    """Return the JSON of a body; None if it is invalid."""
    try:
        data: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return data


def _find_detail(data: object) -> str:
    """Return the message of an error's body, cleaned for a terminal.

    RFC 9457 has ``detail`` and ``title``; dstack's ``detail`` has ``msg``, in an object or a list
    of them; RunPod answers a start without capacity with ``error`` alone.
    """
    if isinstance(data, list) and data:
        return _find_detail(data[0])
    if not isinstance(data, dict):
        if isinstance(data, str):
            return make_printable(data)
        return ""
    parts = (_find_detail(data.get(key)) for key in ("detail", "msg", "title", "message", "error"))
    return next((part for part in parts if part), "")


def _retry_after(value: str | None, now: float) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date (RFC 9110 section 10.2.3)."""
    if not value:
        return None
    # Retry-After has seconds or a date (RFC 9110).
    if value.strip().isdecimal():
        # Nine digits: a longer number would be infinity as a float, or an absurd pause anyway.
        return float(value.strip()[:9])
    at = _parse_date(value)
    if at is None:
        return None
    return max(0.0, at - now)


def _parse_date(value: str | None) -> float | None:
    """Return the Unix time of a date header; None if it is missing or unreadable."""
    try:
        if not value:
            return None
        return email.utils.parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


OTHERS = (
    "AWS", "AZURE", "GOOGLE", "GCP", "GCLOUD",
    "GITHUB", "GH", "GITLAB", "HF", "HUGGINGFACE", "HUGGING_FACE", "OPENAI",
    "ANTHROPIC", "WANDB", "VAST", "LAMBDA", "DOCKER", "NPM", "PYPI", "TWINE", "SLACK", "SSH",
    "KUBE", "VAULT",
    "CLOUDFLARE", "RUNPOD", "AUTODL", "DIGITALOCEAN", "PAPERSPACE", "FEATURIZE", "DSTACK",
    "SKYPILOT",
)  # fmt: skip
"""Prefixes of other services' variables, before an underscore: their keys never belong to this
provider.
"""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Hosts for which plain http is safe, because the bytes never leave the machine."""


def is_loopback(base_url: str) -> bool:
    """Return whether `base_url` is this machine."""
    try:
        return (urlsplit(base_url).hostname or "") in LOOPBACK
    except ValueError:
        return False


def check_base_url(base_url: str, vendor: str, key_env: str | None, default_env: str) -> None:
    """Refuse to send a key to the wrong server.

    A fleet file can be shared, so its ``base_url`` must not be able to collect the vendor's key:
    another server, even on the loopback, gets only a key that the fleet file names for it, and
    elsewhere only over https. A variable known to belong to another service is never sent.

    Raises:
        AuthError: with the reason.
    """
    try:
        parts = urlsplit(base_url)
        plain = parts.scheme in ("https", "http") and parts.port != 0
    except ValueError:
        plain = False
    if not plain or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise AuthError(
            translate("base_url must be a plain http(s) address; correct it in the fleet file")
        )
    owner = next((name for name in OTHERS if (key_env or "").upper().startswith(f"{name}_")), None)
    # A shared fleet file could otherwise send a cloud key to its author.
    if owner is not None and not default_env.startswith(f"{owner}_"):
        raise AuthError(
            translate(
                "key_env names a variable of {owner}, whose key is not sent to {hostname}",
                owner=owner,
                hostname=parts.hostname,
            )
        )
    # The vendor itself may get the key under any name that the user chose.
    if base_url.rstrip("/") == vendor.rstrip("/"):
        return
    if parts.scheme != "https" and not is_loopback(base_url):
        raise AuthError(
            translate(
                "the key is not sent to {hostname} over plain http; use https",
                hostname=parts.hostname,
            )
        )
    if key_env is None or (key_env == default_env and not is_loopback(base_url)):
        raise AuthError(
            translate(
                "{default_env} is for {vendor} only; name another variable in key_env for "
                "{hostname}",
                default_env=default_env,
                vendor=vendor,
                hostname=parts.hostname,
            )
        )


SERVICE = "rgt"
PATIENCE_S = 2.0
"""Seconds to wait for the keyring's first answer; it continues in its thread, for a later call."""


class KeyStore:
    """Queries the keyring once per name, in a thread.

    Args:
        patience_s: Limit for the first answer.
    """

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._answers: dict[str, str] = {}
        self._asked: dict[str, threading.Thread] = {}

    @staticmethod
    def is_installed() -> bool:
        """Return whether the library is installed."""
        return importlib.util.find_spec("keyring") is not None

    def read_key(self, name: str) -> str:
        """Return the key stored under a variable's name; empty = none, or no answer yet."""
        if name not in self._asked:
            if not self.is_installed():
                return ""
            # A daemon thread: a keyring that waits for its password must not keep the process.
            thread = threading.Thread(
                target=self._query_keyring, args=(name,), name=f"keyring {name}", daemon=True
            )
            self._asked[name] = thread
            thread.start()
            # A locked keyring waits for a person.
            thread.join(self._patience_s)
        return self._answers.get(name, "")

    def _query_keyring(self, name: str) -> None:
        try:
            read: Callable[[str, str], str | None] = importlib.import_module("keyring").get_password
            found = read(SERVICE, name)
        except Exception:  # a keyring without a session, locked or broken: no key
            return
        if isinstance(found, str):
            self._answers[name] = found.strip()


STORE = KeyStore()
"""The process-wide keyring: one that prompts the user must not do so at every reading."""


def find_key(
    env: Mapping[str, str],
    *,
    key_env: str | None,
    default_env: str,
    console: str,
    vendor_files: Sequence[tuple[Path, Callable[[Path], str]]] = (),
    store: KeyStore = STORE,
    also: Sequence[str] = (),
) -> Secret:
    """Find a vendor's key, and say where.

    It is searched in the environment, then in the vendor tools' files, then in ``.env`` next to the
    fleet file, then in the keyring.

    Args:
        env: The environment.
        key_env: The variable that the fleet file names; then the only place searched.
        default_env: The vendor's own variable.
        console: Where keys are created, for the message.
        vendor_files: The files in order, each with a function that returns its key, or "".
        store: The keyring, with keys stored under the variable's name.
        also: Other names of the vendor's variable, searched after it.

    Raises:
        AuthError: no key, or one that cannot be a header.
    """
    name = key_env or default_env
    names = (name,) if key_env else (name, *also)
    held = next((one for one in names if env.get(one, "").strip()), name)
    key = env.get(held, "").strip()
    place = translate("{name} in the environment", name=held)
    where = translate("the environment variable {names}", names=translate(" or ").join(names))
    # A variable that the fleet file names is the only place: another key may be of another account.
    for path, read in vendor_files if key_env is None and not key else ():
        where += translate(" or {place}", place=path)
        if not key:
            key, place = read(path), str(path)
    if not key:
        key, place = files.find_in_env_files(names)
        where += "".join(translate(" or {place}", place=path) for path in files.ENV_FILES)
        if not key and place:
            where += f" ({place})"
    if not key and store.is_installed():
        where += translate(
            " or the keyring (keyring set {service} {name})", service=SERVICE, name=name
        )
        key, place = store.read_key(name), translate("{name} in the keyring", name=name)
    if not key:
        raise AuthError(
            translate(
                "no key in {where}; set it, then try again; keys are made in the console",
                where=where,
            ),
            console=console,
        )
    # A line feed in it would add a header to the request.
    if not key.isascii() or not key.isprintable() or " " in key:
        raise AuthError(
            translate("the key in {where} is not a key (blank or control characters)", where=where),
            console=console,
        )
    return Secret(key, place)


def open_http(
    ref: ProviderRef,
    context: AccountContext,
    *,
    vendor: str,
    console: str,
    key_env: str,
    vendor_files: Sequence[tuple[str, Callable[[Path], str]]] = (),
    header: str = "Authorization",
    scheme: str = "Bearer ",
    wrong: Callable[[object], BodyError | None] = lambda _: None,
    keyless: bool = False,
    also: Sequence[str] = (),
) -> AccountHttp:
    """Return the HTTP client for a box's account, at the vendor or the fleet file's server.

    Args:
        ref: The box's provider in the fleet file.
        context: Clock, environment, limits.
        vendor: The vendor's URL.
        console: The vendor's web page.
        key_env: The vendor's own variable for the key.
        vendor_files: The vendor's key files in the home directory, each with its reader. Paths in
            ``.config/`` are in ``$XDG_CONFIG_HOME`` if that is set.
        header: As for `AccountHttp`.
        scheme: As for `AccountHttp`.
        wrong: As for `AccountHttp`.
        also: As for `find_key`.
        keyless: A server on the loopback without a key in the fleet file is used without one.
    """
    base_url = ref.base_url or vendor
    # Another server's console is unknown; its address at least names it.
    if base_url != vendor:
        console = base_url
    # The vendor's file has the vendor's key, which must not be sent to a server on the loopback.
    files: tuple[tuple[Path, Callable[[Path], str]], ...] = ()
    if not is_loopback(base_url):
        files = tuple((_at_home(path, context), read) for path, read in vendor_files)

    def choose_key() -> Secret:
        if (
            keyless
            and ref.key_env is None
            and is_loopback(base_url)
            and not context.env.get(key_env)
        ):
            return Secret("")
        check_base_url(base_url, vendor, ref.key_env, key_env)
        return find_key(
            context.env,
            key_env=ref.key_env,
            default_env=key_env,
            console=console,
            vendor_files=files,
            also=also,
        )

    return AccountHttp(
        base_url,
        choose_key,
        console=console,
        clock=context.clock,
        timeout_s=context.timeout_s,
        header=header,
        scheme=scheme,
        wrong=wrong,
    )


def _at_home(path: str, context: AccountContext) -> Path:
    """Return the path of a vendor tool's file.

    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    configured = context.env.get("XDG_CONFIG_HOME", "")
    if path.startswith(".config/") and configured:
        return Path(configured) / path.removeprefix(".config/")
    return context.home / path
