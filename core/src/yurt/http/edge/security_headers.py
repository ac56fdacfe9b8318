"""Headers that keep responses inert: no browser executes content of tasks, jobs or agents.

Tasks choose the names and the bytes of their files and logs, and a browser that opens one takes the agent's address for
its origin. So every answer outside of the pages of /ui forbids to guess its type, and if it is shown, then in a sandbox
that loads nothing. Files and logs come as plain text, as bytes, or as the API's own JSON, whatever their names and
contents say. All this is decided where an answer leaves, by its path alone: no route can forget it, and an answer that
another agent gave is treated in the same way.
"""

from __future__ import annotations

from aiohttp import hdrs, web

PAGES = "/ui"
BELOW_PAGES = "/ui/"
TASK_CONTENT = "/v1/client/fs"
TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"
INERT_TYPES = ("text/plain", BYTES, "application/json")
INERT_HEADERS = {
    hdrs.X_CONTENT_TYPE_OPTIONS: "nosniff",
    hdrs.CONTENT_SECURITY_POLICY: "sandbox; default-src 'none'",
}
TEXT_TYPES = ("application/json", "application/javascript", "application/xml", "application/x-sh", "application/sql")


def make_inert(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers before an answer is sent; an operator's are kept unless a task controls the content."""
    path, headers = request.path, response.headers
    if path.startswith(TASK_CONTENT):
        headers.update(INERT_HEADERS)
        kind = headers.get(hdrs.CONTENT_TYPE, "").partition(";")[0].strip().lower()
        if kind not in INERT_TYPES:
            headers[hdrs.CONTENT_TYPE] = BYTES
    elif path != PAGES and not path.startswith(BELOW_PAGES):
        for name, value in INERT_HEADERS.items():
            headers.setdefault(name, value)


def inert_type(content_type: str) -> str:
    """The content type of a file: text when it decodes as text, else bytes."""
    kind = content_type.partition(";")[0].strip().lower()
    return TEXT if not kind or kind.startswith("text/") or kind in TEXT_TYPES else BYTES
