"""The system's certificates, read at the first TLS connection instead of at the start.

aiohttp makes its two default TLS contexts when it is imported, and each reads every authority that the system trusts:
60 ms and 3 MB of an agent whose own connections are plain, or verified by the cluster's authority, which is most.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class LateContext(ssl.SSLContext):
    """A context that reads the system's certificates before its first connection, and is a plain one from then on."""

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Read the certificates, then wrap as a plain context does."""
        return self.with_certificates().wrap_bio(*arguments, **named)

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        """Read the certificates, then wrap as a plain context does."""
        return self.with_certificates().wrap_socket(*arguments, **named)

    def with_certificates(self) -> ssl.SSLContext:
        """The same context, complete."""
        context: ssl.SSLContext = self
        context.__class__ = ssl.SSLContext
        context.set_default_verify_paths()
        return context


@contextmanager
def read_late() -> Iterator[None]:
    """Contexts made in the `with` block read the system's certificates at their first connection.

    It is for the import of a library that makes contexts then: no other thread may make one at the same time.
    """
    found: list[ssl.SSLContext] = []

    def remember(context: ssl.SSLContext) -> None:
        found.append(context)

    ssl.SSLContext.set_default_verify_paths = remember  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        del ssl.SSLContext.set_default_verify_paths
        for context in found:
            context.__class__ = LateContext
