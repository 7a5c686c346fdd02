"""The digest of an image's tag, from a registry of the specification's requests on the loopback."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from rgt_tui.providers import image_registry

SHA = "sha256:" + "ab" * 32


class Registry(BaseHTTPRequestHandler):
    """One public image, `lab/torch:v1`, behind the token exchange that Docker Hub and ghcr.io have."""

    def do_HEAD(self) -> None:
        if self.headers.get("Authorization") != "Bearer t0ken":
            host = self.headers["Host"]
            scope = f"repository:{self.path.split('/manifests/')[0].removeprefix('/v2/')}:pull"
            self.send_response(401)
            self.send_header(
                "WWW-Authenticate",
                f'Bearer realm="http://{host}/token",service="registry.test",scope="{scope}"',
            )
        elif self.path != "/v2/lab/torch/manifests/v1":
            self.send_response(404)
        else:
            accepted = self.headers["Accept"]
            assert "image.index" in accepted and "manifest.list" in accepted
            self.send_response(200)
            self.send_header("Docker-Content-Digest", SHA)
        self.end_headers()

    def do_GET(self) -> None:
        asked = parse_qs(urlsplit(self.path).query)
        public = not asked["scope"][0].startswith("repository:secret/")
        assert asked["service"] == ["registry.test"] and "Authorization" not in self.headers
        body = b'{"token": "t0ken"}' if public else b'{"errors": []}'
        self.send_response(200 if public else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


async def test_a_tag_is_looked_up_without_a_login(registry: ThreadingHTTPServer) -> None:
    host = f"127.0.0.1:{registry.server_port}"
    found = await image_registry.resolve_image(f"{host}/lab/torch:v1")
    assert found.by_digest == f"{host}/lab/torch@{SHA}"
    assert found.tag_warning.endswith(f"now it is {host}/lab/torch@{SHA}")
    for image, why in (
        (f"{host}/lab/torch", "it has no such image"),
        (f"{host}/secret/x:v1", "it is not public, or does not exist"),
        ("127.0.0.1:1/lab/torch:v1", "no answer (ConnectError)"),
    ):
        found = await image_registry.resolve_image(image)
        assert found.by_digest == "" and found.reason.endswith(why), found
        assert "may name another image later; its digest is unknown" in found.tag_warning


async def test_a_digest_needs_no_registry_and_a_wrong_name_none() -> None:
    pinned = f"lab/torch@{SHA}"
    assert (await image_registry.resolve_image(pinned)).tag_warning == ""
    assert (
        "not the name of an image" in (await image_registry.resolve_image("no such thing!")).reason
    )


@pytest.mark.parametrize(
    ("image", "asked"),
    [
        ("python", ("registry-1.docker.io", "library/python", "latest")),
        ("pytorch/pytorch:2.9", ("registry-1.docker.io", "pytorch/pytorch", "2.9")),
        ("docker.io/pytorch/pytorch", ("registry-1.docker.io", "pytorch/pytorch", "latest")),
        ("ghcr.io/me/a/b:x", ("ghcr.io", "me/a/b", "x")),
        ("localhost:5000/me", ("localhost:5000", "me", "latest")),
        ("nvcr.io/nvidia/pytorch:25.10-py3", ("nvcr.io", "nvidia/pytorch", "25.10-py3")),
    ],
)
async def test_where_an_image_lies(
    monkeypatch: pytest.MonkeyPatch, image: str, asked: tuple[str, str, str]
) -> None:
    seen: list[tuple[str, str, str]] = []

    async def query(host: str, name: str, tag: str, *rest: object) -> str:
        seen.append((host, name, tag))
        return SHA

    monkeypatch.setattr(image_registry, "_query_registry", query)
    assert (await image_registry.resolve_image(image)).by_digest.endswith(f"@{SHA}")
    assert seen == [asked]
