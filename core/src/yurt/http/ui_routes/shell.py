"""The shell of the web UI and its files, which lie in the package `yurt.ui` as they are served.

Every path below `/ui` answers the same page, whose scripts read the path. Files have the hash of all of them in their
address: they may be kept for ever, and a page never mixes files of two versions. They are compressed once, when they
are asked for first. The shell names the modules of the page that the path leads to, so that a browser asks for all of
them at once.
"""

from __future__ import annotations

import base64
import hashlib
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import hdrs, web

import yurt
from yurt.http.call import FILES, Call, json_answer
from yurt.http.errors import Refused
from yurt.server.views.acl import AuthMethodRows

FOLDER: Final = Path(yurt.__file__).parent / "ui"
INDEX: Final = "index.html"
ASSETS: Final = "{{assets}}"
NONCE: Final = "{{nonce}}"
EARLY: Final = "{{early}}"
EARLY_SCRIPT: Final = "app/early.js"
"""The script that stands in the shell itself, which runs also where no other file of the page comes."""
MODULES: Final = "{{modules}}"
SCRIPT: Final = ".js"
VENDOR: Final = "vendor/"
EXEC: Final = "/ui/exec"
"""The page of terminals: the terminal makes style elements, which carry the nonce of the answer."""
HASH_DIGITS: Final = 16
TYPES: Final = {
    ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain", ".woff2": "font/woff2",
}  # fmt: skip
"""Types of files that are served; type declarations and version lists are for developers only."""
OFF: Final = "The pages are off: ui.enabled is false in the agent's configuration"


class File(NamedTuple):
    """A file as it is sent to browsers."""

    kind: str
    zipped: bytes


class PageFiles:
    """The files of the pages, read and compressed on first use."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        from yurt.http.ui_routes.modules import ModuleGraph  # Agents whose pages nobody opens do without.

        paths = [each for each in folder.rglob("*") if each.suffix in TYPES and each.is_file()]
        self._paths = {each.relative_to(folder).as_posix(): each for each in sorted(paths)}
        digest, texts = hashlib.sha256(), dict[str, str]()
        for name, path in self._paths.items():
            content = path.read_bytes()
            digest.update(f"{name}\0".encode() + hashlib.sha256(content).digest())
            if name.endswith(SCRIPT):
                texts[name] = "" if name.startswith(VENDOR) else content.decode()
        self.hash = digest.hexdigest()[:HASH_DIGITS]
        self.modules = ModuleGraph(texts)
        self.early = texts.get(EARLY_SCRIPT, "")
        self.index = (folder / INDEX).read_text() if (folder / INDEX).is_file() else ""
        """The shell; "" where the package was installed without the pages."""
        self._cache: dict[str, File] = {}

    def names(self) -> list[str]:
        """The paths of all files."""
        return list(self._paths)

    def shell(self, path: str, nonce: str) -> str:
        """The shell for a path below `/ui/`."""
        folder = f"/ui/a/{self.hash}"
        links = (f'<link rel="modulepreload" href="{folder}/{name}">' for name in self.modules.of_path(path))
        text = self.index.replace(MODULES, "\n".join(links)).replace(ASSETS, folder).replace(NONCE, nonce)
        return text.replace(EARLY, self.early)

    def cached(self, name: str) -> File | None:
        """A file that was asked for before, without waiting for the disk."""
        return self._cache.get(name)

    def find(self, name: str) -> File | None:
        """A file by its path; None for any other path."""
        path = self._paths.get(name)
        if path is None:
            return None
        cached = self._cache.get(name)
        if cached is None:
            import gzip  # Only once a browser asks.

            zipped = gzip.compress(path.read_bytes(), 9, mtime=0)
            cached = self._cache[name] = File(TYPES[path.suffix], zipped)
        return cached


async def files_of(call: Call) -> PageFiles:
    """The files of the pages."""
    cache = call.request.app[FILES]
    if not cache:
        cache.setdefault("pages", await call.context.env.in_thread(PageFiles))
    files = cache["pages"]
    assert isinstance(files, PageFiles)
    return files


def headers_of_pages(nonce: str = "", inline: str = "") -> dict[str, str]:
    """Browser restrictions on the pages: load from this agent only, create no markup from text, no framing.

    `nonce` allows style elements that carry it, and `inline` is the one script that may stand in the page itself.
    """
    style = f"'self' 'nonce-{nonce}'" if nonce else "'self'"
    script = "'self'"
    if inline:
        script += f" 'sha256-{base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()}'"
    return {
        hdrs.CONTENT_SECURITY_POLICY: f"default-src 'none'; script-src {script}; style-src {style}; "
        "img-src 'self' data:; "
        "connect-src 'self'; worker-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types yurt",
        hdrs.X_CONTENT_TYPE_OPTIONS: "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


def need_pages(call: Call) -> None:
    """Raises Refused (404) where the operator has switched the pages off."""
    if not call.agent.ui_enabled:
        raise Refused(404, OFF)


async def shell(call: Call) -> web.Response:
    """GET /ui/ and below: the page whose scripts show what the path names."""
    need_pages(call)
    files = await files_of(call)
    if not files.index:
        raise web.HTTPTemporaryRedirect("/ui/plain/")
    path = call.request.path
    nonce = call.context.env.uuid().replace("-", "") if path == EXEC or path.startswith(f"{EXEC}/") else ""
    text = files.shell(call.part("path"), nonce)
    headers = headers_of_pages(nonce, files.early) | {hdrs.CACHE_CONTROL: "no-cache"}
    return web.Response(text=text, content_type="text/html", headers=headers)


async def file(call: Call) -> web.Response:
    """GET /ui/a/:hash/:path: a file of the pages, cacheable without limit."""
    need_pages(call)
    files = await files_of(call)
    page_file = None
    if call.part("hash") == files.hash:
        path = call.part("path")
        page_file = files.cached(path) or await call.context.env.in_thread(partial(files.find, path))
    if page_file is None:
        raise Refused(404, "The pages have no such file; reload the page if the agent was updated")
    headers = headers_of_pages() | {hdrs.CACHE_CONTROL: "public, max-age=31536000, immutable"}
    if "gzip" in call.request.headers.get(hdrs.ACCEPT_ENCODING, "").lower():
        body = page_file.zipped
        headers[hdrs.CONTENT_ENCODING] = "gzip"
    else:
        import gzip

        body = await call.context.env.in_thread(partial(gzip.decompress, page_file.zipped))
    headers[hdrs.VARY] = hdrs.ACCEPT_ENCODING
    return web.Response(body=body, content_type=page_file.kind, charset="utf-8", headers=headers)


async def configuration(call: Call) -> web.Response:
    """GET /v1/yurt/ui/config: what the pages show before anybody signs in."""
    ui = call.agent.config.get("UI") or {}
    label, consul, vault = (ui.get(name) or {} for name in ("Label", "Consul", "Vault"))
    methods = None
    if call.has_server:
        rows = call.known_view().of(AuthMethodRows).all() if call.settings.acl.enabled else ()
        methods = [{"Name": row.name, "Type": row.type, "Default": row.default} for row in rows]
        methods.sort(key=lambda row: str(row["Name"]))
    client = call.agent.config.get("Client") or {}
    body = {
        "Region": call.agent.region,
        "ACL": call.agent.acl_enabled,
        "Enabled": call.agent.ui_enabled,
        "CLIHints": call.agent.ui_enabled and ui.get("ShowCliHints", True),
        "Label": {name: label.get(name, "") for name in ("Text", "BackgroundColor", "TextColor")},
        "ConsulURL": consul.get("UiUrl", ""),
        "VaultURL": vault.get("UiUrl", ""),
        "Exec": not client.get("DisableRemoteExec", False),
        "AuthMethods": methods,
    }
    return json_answer(call, body)


async def to_start(call: Call) -> web.Response:
    """GET / and /ui: to the start page, with the query."""
    query = call.request.query_string
    raise web.HTTPTemporaryRedirect("/ui/" + (f"?{query}" if query else ""))
