"""Artifacts of S3-compatible stores: Amazon's own example of a signature, and a store on loopback that checks it."""

from __future__ import annotations

import datetime
import http.server
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.client.artifacts import task_artifacts
from yurt.client.artifacts.fetch_request import ArtifactLimits, Fetch
from yurt.client.artifacts.http import request_of
from yurt.client.artifacts.signing import signed_headers
from yurt.client.artifacts.sources import S3, S3Access, parse_source
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.sdk.value import replace
from yurt.structs.task import TaskArtifact

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
LIMITS = ArtifactLimits(env_names=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
ALLOC = "12345678-0000-4000-8000-000000000001"


def test_the_signature_of_amazons_own_example() -> None:
    access = S3Access(region="us-east-1", key_id=KEY, secret=SECRET)
    now = datetime.datetime(2013, 5, 24, tzinfo=datetime.UTC)
    made = signed_headers(
        "https://examplebucket.s3.amazonaws.com/test.txt", access, now, headers={"Range": "bytes=0-9"}
    )
    assert made["Authorization"].endswith(
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def test_a_query_is_part_of_what_is_signed() -> None:
    access = S3Access(region="us-east-1", key_id=KEY, secret=SECRET)
    now = datetime.datetime(2013, 5, 24, tzinfo=datetime.UTC)
    made = signed_headers("https://examplebucket.s3.amazonaws.com?lifecycle", access, now)
    assert made["Authorization"].endswith("fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543")


@pytest.mark.parametrize(
    ("text", "url", "region"),
    [
        ("s3::https://s3.amazonaws.com/bucket/a.txt", "https://s3.amazonaws.com/bucket/a.txt", "us-east-1"),
        ("s3::https://b.s3-eu-west-1.amazonaws.com/a", "https://b.s3-eu-west-1.amazonaws.com/a", "eu-west-1"),
        ("s3::https://b.s3.ap-south-1.amazonaws.com/a", "https://b.s3.ap-south-1.amazonaws.com/a", "ap-south-1"),
        ("s3://bucket/deep/key", "https://bucket.s3.amazonaws.com/deep/key", "us-east-1"),
        ("s3::http://127.0.0.1:9000/b/k?region=eu", "http://127.0.0.1:9000/b/k", "eu"),
        ("s3::https://s3.amazonaws.com/b/k?version=3", "https://s3.amazonaws.com/b/k?versionId=3", "us-east-1"),
    ],
)
def test_addresses_of_objects(text: str, url: str, region: str) -> None:
    source = parse_source(text)
    assert source.s3 is not None
    assert (source.getter, source.url, source.s3.region) == (S3, url, region)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("s3://bucket", "names no object"),
        ("s3::ftp://host/bucket/key", "cannot be fetched by ftp"),
        ("s3::https://h/b/k?aws_access_key_id=x", "belong together"),
        ("s3::https://h/b/k?aws_profile=me", "aws_profile is not available"),
    ],
)
def test_what_cannot_be_had_is_told(text: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        parse_source(text)


class Store(http.server.ThreadingHTTPServer):
    """Holds one object, for the holder of the key."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Signs what it was asked as the client should have, and compares."""

    server: Store

    def do_GET(self) -> None:
        stamp = datetime.datetime.strptime(self.headers.get("x-amz-date", "20000101T000000Z"), "%Y%m%dT%H%M%SZ")
        access = S3Access(region="eu", key_id=KEY, secret=SECRET, token=self.headers.get("x-amz-security-token", ""))
        expected = signed_headers(f"http://{self.server.address}{self.path}", access, stamp)["Authorization"]
        data = b"from the store"
        if self.headers.get("Authorization") != expected or not self.path.startswith("/bucket/my%20key"):
            self.send_error(403)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


async def fetch(tmp_path: Path, source: str, limits: ArtifactLimits = LIMITS, **options: str) -> Path:
    build_alloc_dir(str(tmp_path), ALLOC)
    dirs = build_task_dir(str(tmp_path), ALLOC, "web")
    artifact = TaskArtifact(getter_source=source, getter_options=options, relative_dest="local/")
    place = task_artifacts.TaskPlace(task_name="web", dirs=dirs)
    expected = task_artifacts.plan((artifact,), place, lookup=lambda _: None, limits=limits)
    await task_artifacts.fetch_all(expected, on_done=lambda _: None)
    return Path(dirs.local_dir)


async def test_an_object_is_fetched_with_the_jobs_key(tmp_path: Path, store: Store) -> None:
    options = {"aws_access_key_id": KEY, "aws_access_key_secret": SECRET, "aws_access_token": "t", "region": "eu"}
    local = await fetch(tmp_path, f"s3::http://{store.address}/bucket/my key?filename=got", **options)
    assert (local / "got").read_text() == "from the store"


async def test_a_wrong_key_is_told_without_the_key(tmp_path: Path, store: Store) -> None:
    options = {"aws_access_key_id": KEY, "aws_access_key_secret": "wrong-one", "region": "eu"}
    with pytest.raises(RecoverableError, match="answered 403") as caught:
        await fetch(tmp_path, f"s3::http://{store.address}/bucket/my key", **options)
    assert "wrong-one" not in str(caught.value)
    assert KEY not in str(caught.value)


@pytest.fixture
def operators_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")


def request_for(url: str, *hosts: str, is_insecure: bool = False) -> urllib.request.Request:
    """The request for an object, by an artifact with a header."""
    source = parse_source(f"s3::{url}")
    fetch = Fetch(
        source=source, root="", own="", destination="", staging="", headers={"X-Mine": "1"}, is_insecure=is_insecure,
        limits=ArtifactLimits(s3_trusted_hosts=hosts),
    )  # fmt: skip
    return request_of(source.url, fetch)


@pytest.mark.usefixtures("operators_keys")
@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("https://s3.amazonaws.com/b/k", ()),
        ("https://b.s3.amazonaws.com/k", ()),
        ("https://b.with.dots.s3.eu-west-1.amazonaws.com:443/k", ()),
        ("https://b.s3-eu-west-1.amazonaws.com/k", ()),
        ("https://b.s3-fips.dualstack.us-gov-west-1.amazonaws.com/k", ()),
        ("https://a-1.s3-accesspoint.eu-west-1.amazonaws.com/k", ()),
        ("https://s3.cn-north-1.amazonaws.com.cn/b/k", ()),
        ("https://store.example/b/k", ("store.example",)),
        ("https://Store.example:443/b/k", ("https://store.example",)),
        ("https://store.example:9000/b/k", ("other.example", "store.example:9000")),
        ("http://store.example:9000/b/k", ("http://store.example:9000",)),
        ("https://[::1]:9000/b/k", ("[::1]:9000",)),
    ],
)
def test_keys_of_the_operator_sign_for_amazon_and_listed_stores_without_headers_of_the_job(
    url: str, hosts: tuple[str, ...]
) -> None:
    request = request_for(url, *hosts)
    assert request.has_header("Authorization") and request.get_header("X-amz-security-token") == "session"
    assert not request.has_header("X-mine")
    assert not request_for(url, *hosts, is_insecure=True).has_header("Authorization")


@pytest.mark.usefixtures("operators_keys")
@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("https://evil.example/b/k", ("store.example",)),
        ("https://store.example.evil.example/b/k", ("store.example",)),
        ("https://sub.store.example/b/k", ("store.example",)),
        ("https://store.example:8443/b/k", ("store.example",)),
        ("http://store.example/b/k", ("store.example",)),
        ("https://store.example@evil.example/b/k", ("store.example",)),
        ("http://b.s3.amazonaws.com/k", ()),
        ("https://b.s3.amazonaws.com:8443/k", ()),
        ("https://evil-1.eu-west-1.elb.amazonaws.com/k", ()),
        ("https://id.execute-api.eu-west-1.amazonaws.com/k", ()),
        ("https://s3.elb.amazonaws.com/k", ()),
        ("https://b.s3.amazonaws.com.evil.example/k", ()),
        ("https://evils3.amazonaws.com/k", ()),
    ],
)
def test_other_stores_get_nothing_of_the_operators_keys(url: str, hosts: tuple[str, ...]) -> None:
    request = request_for(url, *hosts)
    shown = str(request.header_items())
    assert KEY not in shown and "session" not in shown and request.has_header("X-mine")


@pytest.mark.usefixtures("operators_keys")
async def test_a_store_that_is_listed_gives_its_object_for_the_operators_keys(tmp_path: Path, store: Store) -> None:
    limits = replace(LIMITS, s3_trusted_hosts=(f"http://{store.address}",))
    local = await fetch(tmp_path, f"s3::http://{store.address}/bucket/my key?filename=got", limits, region="eu")
    assert (local / "got").read_text() == "from the store"


@pytest.mark.usefixtures("operators_keys")
async def test_a_refusal_tells_that_the_store_is_not_listed(tmp_path: Path, store: Store) -> None:
    with pytest.raises(RecoverableError, match=r"answered 403 .* without the keys of the node, .* s3_trusted_hosts"):
        await fetch(tmp_path, f"s3::http://{store.address}/bucket/my key", region="eu")


def test_keys_of_the_job_go_with_its_headers() -> None:
    source = parse_source(f"s3::https://store.example/b/k?aws_access_key_id={KEY}&aws_access_key_secret={SECRET}")
    fetch = Fetch(source=source, root="", own="", destination="", staging="", headers={"X-Mine": "1"})
    request = request_of(source.url, fetch)
    assert request.has_header("Authorization") and request.has_header("X-mine")
