"""A key encryption key in the transit engine of Vault or OpenBao, which never leaves that server.

Two calls of its HTTP API are used, `encrypt` and `decrypt` of a named key. A token is read from its file for each call
where one is named, so that whatever renews it needs no restart of the agent.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from yurt.sdk.errors import Invalid, Unavailable

TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 1024 * 1024
TEXT_MAX: Final = 300
REFUSED: Final = (400, 403, 404)
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


class TransitProvider:
    """Wraps keys with `encrypt` and unwraps them with `decrypt`."""

    def __init__(self, provider_id: str, settings: Mapping[str, str]) -> None:
        self._id = provider_id
        self._settings = settings
        self._url = urlsplit(settings["address"])
        self._mount = settings.get("mount_path", "transit").strip("/")

    def wrap(self, key: bytes, *, context: str) -> str:
        """The wrapped key, `vault:v1:...`; raises Invalid or Unavailable."""
        answer = self._ask("encrypt", {"plaintext": base64.b64encode(key).decode()})
        wrapped = answer.get("ciphertext")
        if not isinstance(wrapped, str) or not wrapped:
            raise Unavailable(f"{self._where}: the answer to encrypt holds no ciphertext")
        return wrapped

    def unwrap(self, wrapped: str, *, context: str) -> bytes:
        """The key; raises Invalid if the server refuses, Unavailable if it does not answer."""
        answer = self._ask("decrypt", {"ciphertext": wrapped})
        try:
            return base64.b64decode(answer.get("plaintext", ""), validate=True)
        except (ValueError, TypeError):
            raise Unavailable(f"{self._where}: the answer to decrypt holds no plaintext") from None

    @property
    def _where(self) -> str:
        return f'keyring "{self._id}" at {self._settings["address"]}'

    def _ask(self, operation: str, body: Mapping[str, str]) -> Mapping[str, Any]:
        path = f"{self._url.path.rstrip('/')}/v1/{quote(self._mount)}/{operation}/{quote(self._settings['key_name'])}"
        headers = {"Content-Type": "application/json", "X-Vault-Request": "true", "X-Vault-Token": self._token()}
        if namespace := self._settings.get("namespace", ""):
            headers["X-Vault-Namespace"] = namespace
        connection = self._connection()
        try:
            connection.request("POST", path, json.dumps(body), headers)
            answer = connection.getresponse()
            status, data = answer.status, answer.read(ANSWER_BYTES_MAX + 1)
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"{self._where} does not answer: {error}") from None
        finally:
            connection.close()
        return self._checked(operation, status, data)

    def _checked(self, operation: str, status: int, data: bytes) -> Mapping[str, Any]:
        try:
            document = json.loads(data) if len(data) <= ANSWER_BYTES_MAX else None
        except ValueError:
            document = None
        if status == 200 and isinstance(document, dict) and isinstance(document.get("data"), dict):
            content: Mapping[str, Any] = document["data"]
            return content
        # What the server says of a refusal names the reason and no secret; an answer of a proxy may hold anything.
        errors = document.get("errors") if isinstance(document, dict) else None
        why = "; ".join(map(str, errors))[:TEXT_MAX] if isinstance(errors, list) and errors else "no reason was given"
        text = f"{self._where} answers {operation} with {status}: {why}"
        raise Invalid(text) if status in REFUSED else Unavailable(text)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port or 80, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(host, port or 443, timeout=TIMEOUT_S, context=self._tls())

    def _tls(self) -> ssl.SSLContext:
        settings = self._settings
        try:
            context = ssl.create_default_context(cafile=settings.get("tls_ca_cert") or None)
            if certificate := settings.get("tls_client_cert", ""):
                context.load_cert_chain(certificate, settings.get("tls_client_key") or None)
        except (OSError, ssl.SSLError) as error:
            raise Invalid(f"{self._where}: a certificate or key file cannot be used: {error}") from None
        return context

    def _token(self) -> str:
        if path := self._settings.get("token_file", ""):
            try:
                return Path(path).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise Invalid(f"{self._where}: the token file {path} cannot be read: {error}") from None
        return self._settings.get("token", "")
