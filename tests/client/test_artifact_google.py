"""Artifacts of Google Cloud Storage: a store, a token address and a metadata address on loopback."""

# ruff: noqa: ASYNC240 - small files of a test

from __future__ import annotations

import base64
import http.server
import io
import json
import threading
import urllib.request
from collections.abc import Iterator
from http.client import HTTPMessage
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from yurt.client.artifacts import google, task_artifacts
from yurt.client.artifacts import http as downloads
from yurt.client.artifacts.fetch_request import ArtifactLimits, Fetch
from yurt.client.artifacts.sources import parse_source
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.structs.task import TaskArtifact

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
KEY_PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


class Store(http.server.ThreadingHTTPServer):
    """Holds a public object and one for the bearer of the token `good`; gives that token to known accounts."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_address[1]}"
        self.requests: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.forms: list[dict[str, list[str]]] = []


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the JSON API, the token address and the metadata address do."""

    server: Store

    def do_GET(self) -> None:
        authorization = self.headers.get("Authorization", "")
        self.server.requests.append((self.path, authorization))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        if self.path == google.METADATA_PATH:
            self._answer(b'{"access_token": "good"}', flavor=self.headers["Metadata-Flavor"])
        elif self.path.startswith("/storage/v1/b/public/o/dir%2Ftool?alt=media"):
            self._answer(b"for all")
        elif self.path == "/storage/v1/b/private/o/tool?alt=media" and authorization == "Bearer good":
            self._answer(b"for one")
        else:
            self.send_error(401)

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.forms.append(form)
        self._answer(b'{"access_token": "good"}')

    def _answer(self, data: bytes, *, flavor: str = "") -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        if flavor:
            self.send_header("Metadata-Flavor", flavor)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch, store: Store) -> Store:
    """The store counts as one of Google's, and its address as the metadata address."""
    monkeypatch.setattr(google, "is_trusted", lambda _url: True)
    for name in (google.TOKEN_VARIABLE, google.FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(google.METADATA_VARIABLE, store.address)
    return store


def download(tmp_path: Path, source: str, headers: dict[str, str] | None = None, *, is_insecure: bool = False) -> bytes:
    """Download in this process."""
    fetch = Fetch(
        source=parse_source(source), root="", own="", destination="", staging=str(tmp_path),
        headers=headers or {}, is_insecure=is_insecure,
    )  # fmt: skip
    downloads.download(google.with_credentials(fetch), str(tmp_path / "file"))
    return (tmp_path / "file").read_bytes()


async def test_a_public_object_is_fetched_without_credentials(store: Store, tmp_path: Path) -> None:
    build_alloc_dir(str(tmp_path), "id")
    dirs: TaskDirs = build_task_dir(str(tmp_path), "id", "web")
    source = f"gcs::http://{store.address}/storage/v1/public/dir/tool#12"
    place = task_artifacts.TaskPlace(task_name="web", dirs=dirs)
    artifact = TaskArtifact(getter_source=source, relative_dest="local/")
    await task_artifacts.fetch_all(
        task_artifacts.plan((artifact,), place, lookup=lambda _: None, limits=ArtifactLimits()), on_done=lambda _: None
    )
    assert Path(dirs.local_dir, "tool").read_text() == "for all"
    assert store.requests == [("/storage/v1/b/public/o/dir%2Ftool?alt=media&generation=12", "")]


def test_a_token_of_the_operator_is_sent(trusted: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(google.TOKEN_VARIABLE, "good")
    assert download(tmp_path, f"gcs::http://{trusted.address}/storage/v1/private/tool") == b"for one"
    assert len(trusted.requests) == 1


def test_a_service_account_signs_for_its_token(trusted: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = {"type": "service_account", "client_email": "a@p", "private_key": KEY_PEM, "private_key_id": "k"}
    file = tmp_path / "credentials.json"
    file.write_text(json.dumps({**account, "token_uri": f"http://{trusted.address}/token"}))
    monkeypatch.setenv(google.FILE_VARIABLE, str(file))
    assert download(tmp_path, f"gcs::http://{trusted.address}/storage/v1/private/tool") == b"for one"
    (form,) = trusted.forms
    head, claims, signature = form["assertion"][0].split(".")
    decoded = [base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in (head, claims, signature)]
    KEY.public_key().verify(decoded[2], f"{head}.{claims}".encode(), padding.PKCS1v15(), SHA256())
    assert json.loads(decoded[0]) == {"alg": "RS256", "typ": "JWT", "kid": "k"}
    said = json.loads(decoded[1])
    assert (said["iss"], said["scope"], said["exp"] - said["iat"]) == ("a@p", google.SCOPE, google.TOKEN_LIFETIME_S)


def test_a_user_exchanges_its_refresh_token() -> None:
    text = json.dumps({"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"})
    request = google.token_request(text, 0)
    assert request.full_url == google.TOKEN_ADDRESS and isinstance(request.data, bytes)
    assert parse_qs(request.data.decode())["grant_type"] == ["refresh_token"]


def test_a_refused_object_is_asked_for_with_the_machines_token(trusted: Store, tmp_path: Path) -> None:
    assert download(tmp_path, f"gcs::http://{trusted.address}/storage/v1/private/tool") == b"for one"
    assert [authorization for _path, authorization in trusted.requests] == ["", "", "Bearer good"]


def test_no_other_host_sees_a_token(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(google.TOKEN_VARIABLE, "good")
    monkeypatch.setenv(google.METADATA_VARIABLE, store.address)
    with pytest.raises(RecoverableError, match="answered 401"):
        download(tmp_path, f"gcs::http://{store.address}/storage/v1/private/tool")
    assert [authorization for _path, authorization in store.requests] == [""]


HOSTILE = {"Host": "other.example", "X-Goog-User-Project": "p", "X-HTTP-Method-Override": "DELETE"}


@pytest.mark.parametrize("is_operators", [True, False])
def test_no_header_of_the_job_goes_with_a_token(
    trusted: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_operators: bool
) -> None:
    if is_operators:
        monkeypatch.setenv(google.TOKEN_VARIABLE, "good")
    assert download(tmp_path, f"gcs::http://{trusted.address}/storage/v1/private/tool", HOSTILE) == b"for one"
    sent = trusted.headers[-1]
    assert sent["authorization"] == "Bearer good" and sent["host"] == trusted.address
    assert not {"x-goog-user-project", "x-http-method-override"} & sent.keys()


def test_an_insecure_artifact_is_asked_for_without_credentials(
    trusted: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(google.TOKEN_VARIABLE, "good")
    monkeypatch.setenv(google.FILE_VARIABLE, str(tmp_path / "not-even-read"))
    with pytest.raises(RecoverableError, match=r"answered 401.*asked for without the credentials of the node"):
        download(tmp_path, f"gcs::http://{trusted.address}/storage/v1/private/tool", is_insecure=True)
    assert [authorization for _path, authorization in trusted.requests] == [""]
    assert download(tmp_path, f"gcs::http://{trusted.address}/storage/v1/public/dir/tool", is_insecure=True)


@pytest.mark.parametrize(
    ("target", "is_kept"),
    [
        ("https://h.example/y", True),
        ("https://h.example:443/y", True),
        ("http://h.example/y", False),
        ("http://h.example:443/y", False),
        ("https://h.example:8443/y", False),
        ("https://other.example/y", False),
    ],
)
def test_a_redirect_keeps_authorization_on_the_same_scheme_host_and_port(target: str, is_kept: bool) -> None:
    request = urllib.request.Request("https://h.example/x", headers={"Authorization": "Basic x"})
    following = downloads.Redirects().redirect_request(request, io.BytesIO(), 302, "Found", HTTPMessage(), target)
    assert following is not None and following.has_header("Authorization") is is_kept


def test_no_redirect_gets_a_token() -> None:
    request = downloads.request_with_token("https://user@h.example/x", "good")
    assert request.get_header("Authorization") == "Bearer good"
    following = downloads.Redirects().redirect_request(
        request, io.BytesIO(), 302, "Found", HTTPMessage(), "https://h.example/y"
    )
    assert following is not None and not following.has_header("Authorization")


@pytest.mark.parametrize(
    ("url", "is_trusted"),
    [
        ("https://storage.googleapis.com/storage/v1/b/b/o/k", True),
        ("https://www.googleapis.com:443/k", True),
        ("https://storage-x.p.googleapis.com/k", True),
        ("https://x.p.googleapis.com/k", False),
        ("https://storage.y.p.googleapis.com/k", False),
        ("https://pubsub.googleapis.com/k", False),
        ("https://storage.googleapis.com:8443/k", False),
        ("https://storage.googleapis.com:x/k", False),
        ("http://storage.googleapis.com/k", False),
        ("https://evilgoogleapis.com/k", False),
        ("https://storage.googleapis.com.example.org/k", False),
        ("https://storage.googleapis.com@example.org/k", False),
    ],
)
def test_tokens_go_to_googles_own_hosts_by_https(url: str, is_trusted: bool) -> None:
    assert google.is_trusted(url) is is_trusted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no json", "not a file of Google credentials"),
        ('{"type": "service_account"}', "not a file of Google credentials"),
        ('{"type": "service_account", "client_email": "a", "private_key": "x"}', "not a file of Google credentials"),
        ('{"type": "external_account"}', "is of type 'external_account'"),
    ],
)
def test_a_wrong_credentials_file_is_told_without_its_content(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        google.token_request(text, 0)
