"""Downloads a file by http or https with limits of size and time; blocking, in the child process."""

from __future__ import annotations

import base64
import datetime
import hashlib
import http.client
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from http.client import HTTPMessage
from typing import IO, Any, Final
from urllib.parse import urlsplit, urlunsplit

from yurt.client.artifacts.fetch_request import Fetch, time_limit
from yurt.client.artifacts.google import REFUSED, may_have_token, metadata_token, operators_token
from yurt.client.artifacts.signing import signed_headers
from yurt.client.artifacts.sources import Checksum, S3Access, digest_of, shown_url
from yurt.client.artifacts.trusted_hosts import SETTING, may_have_keys
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.sdk.value import replace

CHUNK_BYTES: Final = 256 * 1024
REDIRECTS_MAX: Final = 10
IDLE_LIMIT_S: Final = 60.0
SUMS_BYTES_MAX: Final = 1024 * 1024
PRIVATE_HEADERS: Final = (
    "authorization", "proxy-authorization", "www-authenticate", "cookie", "cookie2", "x-amz-security-token",
)  # fmt: skip
AGENT: Final = {"User-Agent": "yurt"}
PORTS: Final = {"http": 80, "https": 443}
NO_CREDENTIALS: Final = "; the artifact is `insecure`, so it was asked for without the credentials of the node"
NO_KEYS: Final = (
    "; it was asked for without the keys of the node, which only Amazon's S3 (by https) and the stores in {setting} "
    "get: list the store there, or give the job keys of its own (aws_access_key_id, aws_access_key_secret)"
)
_SUM_LINE = re.compile(r"^(?:(\w+) \((.+)\) = ([0-9A-Fa-f]+)|([0-9A-Fa-f]+)(?:\s+\*?(.+))?)$")


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a few redirects, only to http and https, and sends credentials to the same scheme, host and port only."""

    max_redirections = REDIRECTS_MAX

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """The next request."""
        target = urlsplit(newurl)
        if target.scheme not in ("http", "https"):
            raise Invalid(f"{shown_url(req.full_url)} redirects to {target.scheme}, which is not followed")
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and _origin(newurl) != _origin(req.full_url):
            for name in [name for name in following.headers if name.lower() in PRIVATE_HEADERS]:
                following.remove_header(name)
        return following


def _origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of a URL: where credentials for it belong."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise Invalid(f"{shown_url(url)} has a port that is not a number up to 65535") from None
    return parts.scheme, parts.hostname or "", port or PORTS.get(parts.scheme, 0)


def opener(*, is_insecure: bool) -> urllib.request.OpenerDirector:
    """An opener of URLs: with the environment's proxies, without `file` and `ftp`."""
    context = ssl.create_default_context()
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    made = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(context=context),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        Redirects(),
    ):
        made.add_handler(handler)
    return made


def request_of(url: str, fetch: Fetch) -> urllib.request.Request:
    """A request with the task's headers; user and password of the URL become a header.

    With keys of the operator it has no header of the task: such a header could turn the request into another one.
    """
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    bare = urlunsplit(parts._replace(netloc=host))
    headers = {**AGENT, **fetch.headers}
    if url == fetch.source.url and fetch.source.s3 is not None:
        access = _s3_access(fetch)
        own = AGENT if access.key_id != fetch.source.s3.key_id else headers
        headers = {**own, **(_s3_headers(bare, access) if access.key_id else {})}
    elif at:
        headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    return urllib.request.Request(bare, headers=headers)


def request_with_token(url: str, token: str) -> urllib.request.Request:
    """A request with a token of the operator or the machine, and nothing of the task's; no redirect gets the token."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    request = urllib.request.Request(urlunsplit(parts._replace(netloc=host)), headers=AGENT)
    request.add_unredirected_header("Authorization", f"Bearer {token}")
    return request


def _s3_access(fetch: Fetch) -> S3Access:
    """The job's keys; without them the operator's, where the store may have them; else none, for public objects."""
    access = fetch.source.s3 or S3Access()
    if access.key_id or not _has_operators_keys() or not _may_have_keys(fetch):
        return access
    key_id, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    return replace(access, key_id=key_id, secret=secret, token=os.environ.get("AWS_SESSION_TOKEN", ""))


def _has_operators_keys() -> bool:
    return bool(os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY"))


def _may_have_keys(fetch: Fetch) -> bool:
    return not fetch.is_insecure and may_have_keys(fetch.source.url, fetch.limits.s3_trusted_hosts)


def _s3_headers(url: str, access: S3Access) -> dict[str, str]:
    """The signature headers of a request."""
    now = datetime.datetime.fromtimestamp(time.time(), datetime.UTC)  # noqa: TID251 - the store's clock judges it
    return signed_headers(url, access, now)


def download(fetch: Fetch, path: str) -> None:
    """Write the response into a new file; raises RecoverableError, or Invalid when no retry can help."""
    source = fetch.source
    try:
        made = opener(is_insecure=fetch.is_insecure)
        expected = _expected(made, fetch)
        hashing = hashlib.new(expected.kind) if expected else None
        with _answer(made, fetch) as answer, open(path, "xb") as file:
            _copy(answer, file, fetch, hashing)
    except urllib.error.HTTPError as error:
        hint = _missing_credentials(fetch) if error.code in REFUSED else ""
        raise RecoverableError(f"{source.shown} answered {error.code} {error.reason}{hint}") from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error
        raise RecoverableError(f"{source.shown} cannot be read: {reason or type(error).__name__}") from None
    if expected and hashing and hashing.hexdigest() != expected.digest:
        raise RecoverableError(
            f"the checksum of {source.shown} is {expected.kind}:{hashing.hexdigest()}, not {expected.digest}; "
            "the file has changed, or the job names the wrong sum"
        )


def _missing_credentials(fetch: Fetch) -> str:
    """The reason why a refused request had no credentials of the operator; "" when it had them."""
    source = fetch.source
    is_s3 = source.s3 is not None and not source.s3.key_id
    if fetch.is_insecure and (is_s3 or source.google is not None):
        return NO_CREDENTIALS
    if is_s3 and _has_operators_keys() and not _may_have_keys(fetch):
        return NO_KEYS.format(setting=SETTING)
    return ""


def _answer(made: urllib.request.OpenerDirector, fetch: Fetch) -> Any:
    """The answer of the source; one of Google's is asked again with the machine's token when it is refused."""
    url = fetch.source.url
    token = operators_token(fetch, made)
    try:
        return _open(made, url, fetch, token=token)
    except urllib.error.HTTPError as error:
        may_ask = fetch.source.google is not None and not token and error.code in REFUSED and may_have_token(fetch)
        found = metadata_token() if may_ask else ""
        if not found:
            raise
        error.close()
        return _open(made, url, fetch, token=found)


def _open(made: urllib.request.OpenerDirector, url: str, fetch: Fetch, *, token: str = "") -> Any:
    request = request_with_token(url, token) if token else request_of(url, fetch)
    answer = made.open(request, timeout=min(IDLE_LIMIT_S, time_limit(fetch)[0]))
    if answer is None:
        raise Invalid(f"{shown_url(url)} cannot be opened: use http or https")
    return answer


def _copy(answer: Any, file: IO[bytes], fetch: Fetch, hashing: Any) -> None:
    limit = fetch.limits.http_max_bytes
    announced = answer.headers.get("Content-Length", "")
    limit_s, setting = time_limit(fetch)
    deadline = time.monotonic() + limit_s
    size = int(announced) if announced.isdigit() else 0
    if size > limit:
        raise Invalid(_too_large(fetch, limit))
    size = 0
    while data := answer.read(CHUNK_BYTES):
        size += len(data)
        if size > limit:
            raise Invalid(_too_large(fetch, limit))
        if time.monotonic() > deadline:
            raise RecoverableError(
                f"{fetch.source.shown} was not read within {limit_s:g} s (client artifact.{setting})"
            )
        if hashing is not None:
            hashing.update(data)
        file.write(data)
    if announced.isdigit() and size < int(announced):
        raise RecoverableError(f"{fetch.source.shown} ended after {size} of {announced} bytes")


def _too_large(fetch: Fetch, limit: int) -> str:
    return f"{fetch.source.shown} is larger than {limit} bytes (client artifact.http_max_size)"


def _expected(made: urllib.request.OpenerDirector, fetch: Fetch) -> Checksum | None:
    """The checksum, looked up in its checksum file when it names one."""
    checksum = fetch.source.checksum
    if checksum is None or not checksum.list_url:
        return checksum
    with _open(made, checksum.list_url, fetch) as answer:
        text = answer.read(SUMS_BYTES_MAX).decode(errors="replace")
    return sum_in_list(text, fetch.source.file_name, checksum.list_url)


def sum_in_list(text: str, file_name: str, list_url: str) -> Checksum:
    """The checksum of a file in the output of sha256sum(1) or BSD tools; one bare checksum is for any file."""
    bare = []
    for line in text.splitlines():
        found = _SUM_LINE.match(line.strip())
        if found is None:
            continue
        kind, bsd_name, bsd_sum, plain_sum, plain_name = found.groups()
        name = (bsd_name or plain_name or "").rpartition("/")[2]
        if name == file_name:
            return digest_of(kind or "", bsd_sum or plain_sum)
        if not name:
            bare.append(plain_sum)
    if len(bare) == 1:
        return digest_of("", bare[0])
    raise Invalid(f"the list {shown_url(list_url)} holds no checksum of {file_name}")
