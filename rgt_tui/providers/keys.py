"""Where a control plane's key comes from. The key is read at the moment of use and never stored or shown."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from rgt_tui.model.secret import Secret as Secret
from rgt_tui.providers.base import AuthError

OTHERS = (
    "AWS", "AZURE", "GOOGLE", "GCP", "GCLOUD",
    "GITHUB", "GH", "GITLAB", "HF", "HUGGINGFACE", "HUGGING_FACE", "OPENAI",
    "ANTHROPIC", "WANDB", "VAST", "LAMBDA", "DOCKER", "NPM", "PYPI", "TWINE", "SLACK", "SSH", "KUBE", "VAULT",
    "CLOUDFLARE",
)  # fmt: skip
"""How the variables of other services begin, before an underscore: a key of theirs is never this provider's."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Hosts to which plain http is safe: the bytes never leave the machine."""


def is_loopback(base_url: str) -> bool:
    """Tell whether `base_url` names this very machine."""
    try:
        return (urlsplit(base_url).hostname or "") in LOOPBACK
    except ValueError:
        return False


def check_base_url(base_url: str, vendor: str, key_env: str | None, default_env: str) -> None:
    """Refuse to send a key where it does not belong.

    A fleet file can be shared, so its ``base_url`` must not be able to collect the vendor's key: a foreign
    server, also one on the loopback, gets only a key that the fleet file names for it, and elsewhere only over https.
    A variable that is known to be another service's goes nowhere.

    Raises:
        AuthError: with the reason.
    """
    try:
        parts = urlsplit(base_url)
        plain = parts.scheme in ("https", "http") and parts.port != 0
    except ValueError:
        plain = False
    if not plain or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise AuthError("base_url must be a plain http(s) address; correct it in the fleet file")
    owner = next((name for name in OTHERS if (key_env or "").upper().startswith(f"{name}_")), None)
    if owner is not None:
        raise AuthError(f"key_env names a variable of {owner}, whose key is not sent to {parts.hostname}")
    if base_url.rstrip("/") == vendor.rstrip("/"):
        return
    if parts.scheme != "https" and not is_loopback(base_url):
        raise AuthError(f"the key is not sent to {parts.hostname} over plain http; use https")
    if key_env is None or (key_env == default_env and not is_loopback(base_url)):
        raise AuthError(
            f"{default_env} is for {vendor} only; name another variable in key_env for {parts.hostname}"
        )


def runpod_key(
    env: Mapping[str, str], *, key_env: str | None, default_env: str, home: Path | None, console: str
) -> Secret:
    """Find RunPod's key: the environment first, then the file that its own tools write.

    The two shapes of the file are runpodctl's (``apikey = "…"``) and runpod-python's (``[default]``
    ``api_key = "…"``): https://docs.runpod.io/runpodctl/overview and https://github.com/runpod/runpod-python

    Args:
        env: The environment.
        key_env: The variable that the fleet file names; it is then the only place looked at.
        default_env: The vendor's own variable.
        home: Home directory for the vendor's file; None = do not look there.
        console: Where keys are made, for the message.

    Raises:
        AuthError: no key, or one that cannot be a header.
    """
    name = key_env or default_env
    key = env.get(name, "").strip()
    where = f"the environment variable {name}"
    if not key and key_env is None and home is not None:
        where = f"{name} or ~/.runpod/config.toml"
        key = _from_file(home / ".runpod" / "config.toml")
    if not key:
        raise AuthError(f"no key: set {where}, then try again; keys are made in the console", console=console)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise AuthError(f"the key in {where} is not a key (blank or control characters)", console=console)
    return Secret(key)


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return ""
    section = data.get("default")
    for value in (data.get("apikey"), section.get("api_key") if isinstance(section, dict) else None):
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""
