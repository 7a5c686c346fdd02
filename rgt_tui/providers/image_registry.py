"""The digest that a container image's tag names now, from the image's public registry.

Sources: https://distribution.github.io/distribution/spec/api/ (manifests by tag), and
https://distribution.github.io/distribution/spec/auth/token/ (anonymous tokens), read 2026-11.
No login is sent, so only public images are resolved.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from rgt_wire import USER_AGENT

from rgt_tui.language import translate
from rgt_tui.model import ImageDigest

if TYPE_CHECKING:
    import httpx

DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
CONTAINER_MARKETS = frozenset(("runpod", "vastai"))
"""Providers whose ``--image`` is a container image, and not the platform's own name of one."""
_DOCKER_HUB = "registry-1.docker.io"
_NAME = re.compile(r"[a-z0-9]+(?:[._/-]+[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
# All kinds of manifests: a registry converts one that is not accepted, and its digest changes.
_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)


async def resolve_image(image: str, *, timeout_s: float = 5.0) -> ImageDigest:
    """Return the digest of a container image; a tag is looked up at its registry."""
    name, _, digest = image.partition("@")
    if DIGEST.fullmatch(digest):
        return ImageDigest(image=image, by_digest=image)
    # Only a colon after the last slash begins a tag: a registry may have a port.
    name, _, tag = re.sub(r":(?=[^/:]*$)", "\n", name).partition("\n")
    registry, slash, repository = name.partition("/")
    if not slash or not re.search(r"[.:]|^localhost$", registry):
        registry, repository = _DOCKER_HUB, name
    elif registry in ("docker.io", "index.docker.io"):
        registry = _DOCKER_HUB
    if registry == _DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    if digest or not _NAME.fullmatch(repository) or not _TAG.fullmatch(tag or "latest"):
        return ImageDigest(image=image, reason=translate("this is not the name of an image"))
    try:
        found = await _query_registry(registry, repository, tag or "latest", timeout_s)
    except ValueError as error:
        return ImageDigest(image=image, reason=f"{registry}: {error}")
    return ImageDigest(image=image, by_digest=f"{name}@{found}")


async def _query_registry(registry: str, repository: str, tag: str, timeout_s: float) -> str:
    """Return the digest that the registry reports.

    Raises:
        ValueError: The registry refuses, was not reached, or answers something else.
    """
    # A slow import, for a tag only.
    import httpx

    from rgt_tui.providers.http import is_loopback

    # As docker does: a registry on this machine needs no TLS.
    base = f"https://{registry}"
    if is_loopback(f"http://{registry}"):
        base = f"http://{registry}"
    headers = {"Accept": _ACCEPT, "User-Agent": USER_AGENT}
    url = f"{base}/v2/{repository}/manifests/{tag}"
    try:
        async with httpx.AsyncClient(timeout=timeout_s, trust_env=not is_loopback(base)) as client:
            answer = await client.head(url, headers=headers)
            if answer.status_code == 401:
                token = await _fetch_token(client, answer.headers.get("www-authenticate", ""), base)
                headers["Authorization"] = f"Bearer {token}"
                answer = await client.head(url, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ValueError(translate("no answer ({kind})", kind=type(error).__name__)) from error
    if answer.status_code in (401, 403):
        raise ValueError(translate("it is not public, or does not exist"))
    if answer.status_code == 404:
        raise ValueError(translate("it has no such image"))
    digest = str(answer.headers.get("docker-content-digest", ""))
    if answer.status_code != 200 or not DIGEST.fullmatch(digest):
        raise ValueError(translate("HTTP {status}, no digest", status=answer.status_code))
    return digest


async def _fetch_token(client: httpx.AsyncClient, challenge: str, base: str) -> str:
    """Return an anonymous token for reading.

    Raises:
        ValueError: The registry wants a login, or answers something else.
    """
    said = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    realm = said.pop("realm", "")
    # The registry chooses this address: it must be no worse protected than the registry itself.
    if not challenge.lower().startswith("bearer ") or urlsplit(realm).scheme not in (
        "https",
        urlsplit(base).scheme,
    ):
        raise ValueError(translate("it wants a login"))
    async with client.stream(
        "GET", realm, params={key: said[key] for key in ("service", "scope") if key in said}
    ) as answer:
        body = b""
        # Tokens have a few KB; a registry must not fill the memory.
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > 1 << 16:
                break
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        found = None
    token = None
    if isinstance(found, dict):
        token = found.get("token") or found.get("access_token")
    if answer.status_code != 200 or not isinstance(token, str):
        raise ValueError(translate("it is not public, or does not exist"))
    return token
