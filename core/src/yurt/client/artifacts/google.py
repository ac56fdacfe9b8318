"""Access to objects of Google Cloud Storage; blocking, in the child process.

A download is tried with the operator's credentials where there are some: an access token in the variable
GOOGLE_OAUTH_ACCESS_TOKEN, or the file that GOOGLE_APPLICATION_CREDENTIALS names. Both count when the agent's
`artifact { set_environment_variables }` lets downloads see them. Otherwise the object is asked for as the public may
read it, and when that is refused, with the token of the machine's service account, which Google's metadata address
gives to any process of a virtual machine there.

A job chooses the host of its objects. So tokens go to Google's hosts of storage only, by https with a verified
certificate: an `insecure` artifact is asked for as the public may. No header of the job goes with a token.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from yurt.client.artifacts.fetch_request import Fetch
from yurt.client.artifacts.sources import GoogleAccess
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.sdk.value import replace

TOKEN_VARIABLE: Final = "GOOGLE_OAUTH_ACCESS_TOKEN"
FILE_VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
METADATA_VARIABLE: Final = "GCE_METADATA_HOST"
METADATA_ADDRESS: Final = "169.254.169.254"
METADATA_PATH: Final = "/computeMetadata/v1/instance/service-accounts/default/token"
METADATA_LIMIT_S: Final = 3.0
TOKEN_LIMIT_S: Final = 30.0
TOKEN_LIFETIME_S: Final = 600
SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_only"
TOKEN_ADDRESS: Final = "https://oauth2.googleapis.com/token"
GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
FILE_BYTES_MAX: Final = 64 * 1024
ANSWER_BYTES_MAX: Final = 64 * 1024
HOSTS: Final = ("storage.googleapis.com", "www.googleapis.com")
PRIVATE_HOST: Final = re.compile(r"storage-[a-z0-9-]+\.p\.googleapis\.com")
"""The private address of Google's storage in an operator's network (Private Service Connect)."""
HTTPS_PORT: Final = 443
REFUSED: Final = (401, 403)


def with_credentials(fetch: Fetch) -> Fetch:
    """The fetch with the text of the operator's credentials file, which the confined worker cannot read itself."""
    path = os.environ.get(FILE_VARIABLE, "")
    if fetch.source.google is None or not path or not may_have_token(fetch):
        return fetch
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(FILE_BYTES_MAX)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "") or error
        raise Invalid(f"the agent's {FILE_VARIABLE} names {path}, which cannot be read: {reason}") from None
    return replace(fetch, source=replace(fetch.source, google=GoogleAccess(credentials=text)))


def load(access: GoogleAccess) -> None:
    """Import what signing needs, before the process is confined."""
    if access.credentials:
        _signing()


def _signing() -> Any:
    return importlib.import_module("yurt.client.artifacts.google_keys")


def is_trusted(url: str) -> bool:
    """Whether tokens may be sent to an address: only to Google's storage hosts, by https at the default port."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        return False
    host = parts.hostname or ""
    is_google = host in HOSTS or PRIVATE_HOST.fullmatch(host) is not None
    return is_google and parts.scheme == "https" and port in (None, HTTPS_PORT)


def may_have_token(fetch: Fetch) -> bool:
    """Whether tokens may be sent to a source: its address is trusted, and its certificate is verified."""
    return not fetch.is_insecure and is_trusted(fetch.source.url)


def operators_token(fetch: Fetch, made: urllib.request.OpenerDirector) -> str:
    """An access token from the operator's settings; empty when there are none or the address is not Google's."""
    access = fetch.source.google
    if access is None or not may_have_token(fetch):
        return ""
    token = os.environ.get(TOKEN_VARIABLE, "")
    if token or not access.credentials:
        return token
    request = token_request(access.credentials, int(time.time()))  # noqa: TID251 - Google's clock judges it
    return _token(made, request, TOKEN_LIMIT_S)


def token_request(credentials: str, now_s: int) -> urllib.request.Request:
    """The request that exchanges a credentials file, of a service account or of `gcloud auth`, for a token."""
    try:
        account = json.loads(credentials)
        kind = account["type"]
        if kind == "service_account":
            return _request_of_account(account, now_s)
        if kind == "authorized_user":
            form = {name: account[name] for name in ("client_id", "client_secret", "refresh_token")}
            return _form_request(account.get("token_uri") or TOKEN_ADDRESS, {**form, "grant_type": "refresh_token"})
    except (ValueError, TypeError, KeyError) as error:
        raise Invalid(f"the file that {FILE_VARIABLE} names is not a file of Google credentials: {error!r}") from None
    raise Invalid(
        f"the file that {FILE_VARIABLE} names is of type {kind!r}; "
        "artifacts use service_account and authorized_user, or the variable " + TOKEN_VARIABLE
    )


def _request_of_account(account: Mapping[str, Any], now_s: int) -> urllib.request.Request:
    address = account.get("token_uri") or TOKEN_ADDRESS
    claims = {
        "iss": account["client_email"],
        "scope": SCOPE,
        "aud": address,
        "iat": now_s,
        "exp": now_s + TOKEN_LIFETIME_S,
    }
    assertion = _signing().signed_assertion(
        claims, key_pem=account["private_key"], key_id=account.get("private_key_id", "")
    )
    return _form_request(address, {"grant_type": GRANT, "assertion": assertion})


def _form_request(address: str, form: Mapping[str, str]) -> urllib.request.Request:
    return urllib.request.Request(address, data=urlencode(form).encode(), method="POST")


def metadata_token() -> str:
    """A token of the machine's service account; empty where no metadata address of Google answers."""
    host = os.environ.get(METADATA_VARIABLE, "") or METADATA_ADDRESS
    request = urllib.request.Request(f"http://{host}{METADATA_PATH}", headers={"Metadata-Flavor": "Google"})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        return _token(direct, request, METADATA_LIMIT_S, needs_flavor=True)
    except RecoverableError:
        return ""


def _token(
    made: urllib.request.OpenerDirector, request: urllib.request.Request, limit_s: float, *, needs_flavor: bool = False
) -> str:
    """The token in an answer; raises RecoverableError without the answer's text, which may contain secrets."""
    host = urlsplit(request.full_url).netloc
    try:
        with made.open(request, timeout=limit_s) as answer:
            if needs_flavor and answer.headers.get("Metadata-Flavor") != "Google":
                raise RecoverableError(f"{host} is not Google's metadata address")
            return str(json.loads(answer.read(ANSWER_BYTES_MAX))["access_token"])
    except urllib.error.HTTPError as error:
        error.close()
        raise RecoverableError(f"{host} gave no access token: {error.code} {error.reason}") from None
    except (urllib.error.URLError, HTTPException, OSError, ssl.SSLError, ValueError, TypeError, KeyError) as error:
        raise RecoverableError(f"{host} gave no access token: {getattr(error, 'reason', None) or error!r}") from None
