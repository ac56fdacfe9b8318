"""Parses the source of an artifact in go-getter's syntax; pure.

    [getter::]url[//folder inside][?parameter=value&...]

Parameters with a meaning are taken out of the address: `archive`, `checksum`, `filename`, for git `ref`, `sshkey` and
`depth`, for Mercurial `rev` and `sshkey`. An address without a scheme is a path, or names a host of repositories
(github.com/...) or of Google's objects (www.googleapis.com/storage/v1/...).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from yurt.sdk.artifacts import TREE_KIND, ArtifactGetter
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value, no_entries, replace

HTTP: Final = "http"
GIT: Final = "git"
FILE: Final = "file"
S3: Final = "s3"
GCS: Final = "gcs"
HG: Final = "hg"
GETTERS: Final = (HTTP, GIT, FILE, S3, GCS, HG)
REPOSITORIES: Final = (GIT, HG)
REPOSITORY_SCHEMES: Final[Mapping[str, tuple[str, ...]]] = {
    GIT: ("git", "ssh", "http", "https"), HG: ("ssh", "http", "https"),
}  # fmt: skip
ARCHIVES: Final = {
    "tar.gz": "tar.gz", "tgz": "tar.gz", "tar.bz2": "tar.bz2", "tbz2": "tar.bz2", "tar.xz": "tar.xz", "txz": "tar.xz",
    "tar": "tar", "zip": "zip", "gz": "gz", "bz2": "bz2", "xz": "xz",
    "tar.zst": "tar.zst", "tzst": "tar.zst", "zst": "zst",
}  # fmt: skip
"""Kinds of archives by their names; `gz`, `bz2`, `xz` and `zst` hold one file."""
TREE_ARCHIVES: Final = ("tar.gz", "tar.bz2", "tar.xz", "tar.zst", "tar", "zip")
ZSTANDARD_ARCHIVES: Final = ("tar.zst", "zst")
NO_ARCHIVE: Final = ("false", "0", "f")
HASH_LENGTHS: Final = {32: "md5", 40: "sha1", 64: "sha256", 128: "sha512"}
REPOSITORY_HOSTS: Final = ("github.com/", "gitlab.com/", "bitbucket.org/")
NAME_BYTES_MAX: Final = 255
_FORCED = re.compile(r"^([A-Za-z0-9]+)::(.+)$", re.DOTALL)
_SSH_FORM = re.compile(r"^(?:[\w.-]+@)[\w.-]+:(?!/)[^?]+")
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*://")
_S3_HOST = re.compile(r"(?:^|\.)s3[.-](?:dualstack\.)?([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com")
_S3_DEFAULT_REGION: Final = "us-east-1"
_GOOGLE_PATH: Final = "/storage/v1/"
_GOOGLE_DETECTED: Final = "www.googleapis.com/storage/v1/"
_GOOGLE_STORAGE: Final = "storage.googleapis.com"
_REVISION = re.compile(r"^[A-Za-z0-9_.@][A-Za-z0-9_.@/-]*$")
"""The name or hash of a Mercurial revision: the pattern excludes revision expressions, which need other characters."""
_COMMIT = re.compile(r"^[^-\s:~^?*\[\\][^\s:~^?*\[\\]*$")


class Checksum(Value):
    """An expected checksum: `kind` is md5, sha1, sha256 or sha512; or the URL of a checksum file."""

    kind: str = ""
    digest: str = ""
    list_url: str = ""


class S3Access(Value):
    """Credentials for an S3-compatible store; without a key the agent's variables count, or anonymous access."""

    region: str = _S3_DEFAULT_REGION
    key_id: str = ""
    secret: str = ""
    token: str = ""


class GoogleAccess(Value):
    """Credentials for Google Cloud Storage from the operator: the text of a credentials file."""

    credentials: str = ""


class ArtifactSource(Value):
    """A parsed source. `archive` is one of `ARCHIVES`, or empty; `ref` is a git ref or a Mercurial revision."""

    getter: str
    url: str
    inside: str = ""
    archive: str = ""
    checksum: Checksum | None = None
    file_name: str = ""
    ref: str = ""
    depth: int = 0
    ssh_key: str = ""
    s3: S3Access | None = None
    google: GoogleAccess | None = None
    parameters: Mapping[str, str] = no_entries()
    """The parameters for a package's getter, besides the address."""

    @property
    def shown(self) -> str:
        """The URL without possible secrets: user, password, parameters."""
        return shown_url(self.url)


def shown_url(url: str) -> str:
    """A URL without user, password and parameters."""
    bare = url.partition("?")[0].partition("#")[0]
    scheme, mark, rest = bare.partition("://")
    if not mark:
        return bare
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def parse_source(
    text: str, options: Mapping[str, str] | None = None, added: Mapping[str, ArtifactGetter] | None = None
) -> ArtifactSource:
    """Parse a source and its options; raises Invalid when it is not supported. `added` are the getters of packages."""
    added = added or {}
    text = text.strip()
    if "\0" in text or "\n" in text:
        raise Invalid("an artifact's source cannot hold line breaks or NUL characters")
    forced = _FORCED.match(text)
    name, rest = (forced.group(1).lower(), forced.group(2)) if forced else ("", text)
    address, inside, parameters = _split(rest)
    parameters |= options or {}
    getter, url = (name, address) if name in added else _detected(name, address, added)
    if any(part == ".." for part in inside.split("/")):
        raise Invalid(f"the folder inside the artifact, {inside!r}, leads out of it; write it without '..'")
    file_name = parameters.pop("filename", "") or unquote(urlsplit(url).path).rstrip("/").rpartition("/")[2]
    source = ArtifactSource(
        getter=getter,
        url=url,
        inside=inside.strip("/"),
        archive="" if has_tree(getter, added) else _archive(parameters.pop("archive", ""), file_name),
        checksum=_checksum(parameters.pop("checksum", "")),
        file_name=_checked_name(file_name),
    )
    if getter in REPOSITORIES:
        return _repository_source(source, parameters)
    if getter in added:
        return _package_source(source, added[getter], parameters)
    if getter == GCS:
        return replace(source, google=GoogleAccess())
    return _with_query(_s3_source(source, parameters) if getter == S3 else source, parameters)


def has_tree(getter: str, added: Mapping[str, ArtifactGetter]) -> bool:
    """Whether a getter makes a folder instead of a file."""
    return getter in REPOSITORIES or (getter in added and added[getter].makes == TREE_KIND)


def _package_source(source: ArtifactSource, getter: ArtifactGetter, parameters: Mapping[str, str]) -> ArtifactSource:
    if getter.makes == TREE_KIND and source.checksum is not None:
        raise Invalid(f'an artifact of "{getter.name}" is a folder and has no checksum')
    if source.checksum is not None and source.checksum.list_url:
        raise Invalid(f'an artifact of "{getter.name}" needs its checksum itself, not the address of a list')
    return replace(source, parameters=parameters)


def _split(text: str) -> tuple[str, str, dict[str, str]]:
    """URL, subdirectory and parameters."""
    base, _, query = text.partition("?")
    start = base.find("://") + 3 if "://" in base else 0
    cut = base.find("//", start)
    inside = base[cut + 2 :] if cut >= 0 else ""
    return (base[:cut] if cut >= 0 else base), inside, dict(parse_qsl(query, keep_blank_values=True))


def _detected(name: str, address: str, added: Iterable[str]) -> tuple[str, str]:
    """The getter for a URL, and the full URL."""
    if name and name not in (*GETTERS, "https"):
        getters = ", ".join(("http", "https", "git", "hg", "s3", "gcs", "file", *sorted(added)))
        raise Invalid(f'unknown kind of artifact "{name}::"; this node has {getters}')
    if name == S3 or address.startswith("s3://"):
        return S3, _object_address(address)
    if name == GCS or address.startswith(("gs://", _GOOGLE_DETECTED)):
        return GCS, _google_address(address)
    if not _SCHEME.match(address):
        return _without_scheme(name, address)
    scheme, _, rest = address.partition("://")
    scheme = scheme.lower()
    if name in REPOSITORIES or scheme in ("git", "ssh"):
        return _repository(name or GIT, scheme, address)
    if FILE in (scheme, name):
        return FILE, rest
    if scheme not in ("http", "https"):
        raise Invalid(f'artifacts cannot be downloaded by "{scheme}"; use http, https or git')
    if not urlsplit(address).hostname:
        raise Invalid(f"the artifact's source {shown_url(address)!r} names no host")
    return HTTP, f"{scheme}://{rest}"


def _repository(name: str, scheme: str, address: str) -> tuple[str, str]:
    schemes = REPOSITORY_SCHEMES[name]
    if scheme not in schemes:
        raise Invalid(f"a repository of {name} cannot be fetched by {scheme}; use {', '.join(sorted(schemes))}")
    if not urlsplit(address).hostname:
        raise Invalid(f"the artifact's source {shown_url(address)!r} names no host")
    return name, address


def _object_address(address: str) -> str:
    """The address of an object: `https://host/...`, `s3://host/...`, or `s3://bucket/...` of Amazon's own store."""
    scheme, _, rest = address.rpartition("://")
    host, slash, path = rest.partition("/")
    if not slash or not path or not host:
        raise Invalid(f"{shown_url(address)!r} names no object; write s3::https://HOST/BUCKET/KEY")
    if scheme.lower() in ("http", "https"):
        return address
    if scheme.lower() not in ("", "s3"):
        raise Invalid(f"an object cannot be fetched by {scheme}; use s3::https://...")
    is_bucket = "." not in host and ":" not in host
    return f"https://{host}.s3.amazonaws.com/{path}" if is_bucket else f"https://{rest}"


def _google_address(address: str) -> str:
    """The address of an object's content in Google's JSON API.

    Written as `gs://BUCKET/KEY`, `https://www.googleapis.com/storage/v1/BUCKET/KEY`,
    `https://storage.googleapis.com/BUCKET/KEY`, or `http(s)://HOST/storage/v1/BUCKET/KEY` for another host that speaks
    the API. `#NUMBER` at the end asks for that generation of the object.
    """
    bare, _, generation = address.partition("#")
    scheme, host, path = urlsplit(bare if "://" in bare else f"https://{bare}")[:3]
    if scheme == "gs":
        scheme, host, path = "https", _GOOGLE_STORAGE, f"{_GOOGLE_PATH}{host}{path}"
    elif host == _GOOGLE_STORAGE and not path.startswith(_GOOGLE_PATH):
        path = f"{_GOOGLE_PATH.rstrip('/')}{path}"
    bucket, _, key = path.removeprefix(_GOOGLE_PATH).partition("/")
    is_valid = scheme in ("http", "https") and path.startswith(_GOOGLE_PATH) and host
    if not is_valid or not bucket or not key or key.endswith("/"):
        raise Invalid(
            f"{shown_url(address)!r} names no object; write gcs::https://www.googleapis.com/storage/v1/BUCKET/KEY"
        )
    if generation and not generation.isdigit():
        raise Invalid(f"{generation[:32]!r} is not the generation of an object; write a number after '#'")
    host = _GOOGLE_STORAGE if host == "www.googleapis.com" else host
    content = f"alt=media&generation={generation}" if generation else "alt=media"
    return f"{scheme}://{host}{_GOOGLE_PATH}b/{quote(bucket, safe='')}/o/{quote(unquote(key), safe='')}?{content}"


def _without_scheme(name: str, address: str) -> tuple[str, str]:
    if _SSH_FORM.match(address) and name in ("", GIT):
        user_host, _, path = address.partition(":")
        return GIT, f"ssh://{user_host}/{path}"
    if address.startswith(REPOSITORY_HOSTS) and name in ("", GIT):
        return GIT, f"https://{'/'.join(address.split('/')[:3])}"
    if name in REPOSITORIES:
        raise Invalid(
            f"{shown_url(address)!r} is not the address of a repository; write {name}::https://..."
            + (" or user@host:path" if name == GIT else " or hg::ssh://user@host/path")
        )
    if name in (HTTP, "https"):
        raise Invalid(f"the artifact's source {shown_url(address)!r} has no scheme; write http:// or https://")
    return FILE, address


def _archive(name: str, file_name: str) -> str:
    """The requested kind of archive, or the one of the file's ending."""
    if name:
        if name.lower() in NO_ARCHIVE:
            return ""
        if name not in ARCHIVES:
            raise Invalid(f'unknown kind of archive "{name}"; use false, {", ".join(ARCHIVES)}')
        kind = ARCHIVES[name]
    else:
        endings = [ending for ending in ARCHIVES if file_name.endswith(f".{ending}")]
        kind = ARCHIVES[max(endings, key=len)] if endings else ""
    return kind


def _checksum(text: str) -> Checksum | None:
    """`md5:...`, `sha256:...`, a bare digest, or `file:` and the address of a list."""
    if not text:
        return None
    kind, _, value = text.rpartition(":") if not text.startswith("file:") else ("file", "", text[5:])
    if kind == "file":
        if not value.startswith(("http://", "https://")):
            raise Invalid("a list of checksums can be fetched by http and https only")
        return Checksum(list_url=value)
    return digest_of(kind, value)


def digest_of(kind: str, value: str) -> Checksum:
    """A checksum of a kind, or of the kind that its length implies."""
    value = value.strip().lower()
    hash_kind = kind.lower() or HASH_LENGTHS.get(len(value), "")
    if HASH_LENGTHS.get(len(value)) != hash_kind or not re.fullmatch(r"[0-9a-f]+", value):
        raise Invalid(
            f'"{kind + ":" if kind else ""}{value[:12]}..." is not a checksum; write md5:, sha1:, sha256: or sha512: '
            "and as many hexadecimal digits as it has"
        )
    return Checksum(kind=hash_kind, digest=value)


def _checked_name(name: str) -> str:
    """A safe file name; `download` when the URL has none."""
    if name in ("", ".", ".."):
        return "download"
    if "/" in name or "\0" in name or len(name.encode()) > NAME_BYTES_MAX:
        raise Invalid(f"{name[:64]!r} cannot be the name of a file; give one with the option `filename`")
    return name


def _s3_source(source: ArtifactSource, parameters: dict[str, str]) -> ArtifactSource:
    """The access from the parameters; the remaining parameters are for the store."""
    if parameters.pop("aws_profile", ""):
        raise Invalid("aws_profile is not available: give aws_access_key_id and aws_access_key_secret")
    host = urlsplit(source.url).hostname or ""
    found = _S3_HOST.search(host)
    access = S3Access(
        region=parameters.pop("region", "") or (found[1] if found else _S3_DEFAULT_REGION),
        key_id=parameters.pop("aws_access_key_id", ""),
        secret=parameters.pop("aws_access_key_secret", ""),
        token=parameters.pop("aws_access_token", ""),
    )
    if bool(access.key_id) != bool(access.secret):
        raise Invalid("aws_access_key_id and aws_access_key_secret belong together")
    version = parameters.pop("version", "")
    if version:
        parameters["versionId"] = version
    return replace(source, s3=access)


def _with_query(source: ArtifactSource, parameters: Mapping[str, str]) -> ArtifactSource:
    """The URL with the parameters for its server."""
    if source.getter not in (HTTP, S3):
        return source
    scheme, host, path, _, _ = urlsplit(source.url)
    url = urlunsplit((scheme, host, quote(path, safe="/%:@!$&'()*+,;=~-._"), urlencode(parameters), ""))
    return replace(source, url=url)


def _repository_source(source: ArtifactSource, parameters: Mapping[str, str]) -> ArtifactSource:
    if source.checksum is not None:
        name = "ref" if source.getter == GIT else "rev"
        raise Invalid(f"a repository has no checksum; give the commit as `{name}` instead")
    ref, depth = parameters.get("ref" if source.getter == GIT else "rev", ""), parameters.get("depth", "0") or "0"
    is_hg = source.getter == HG
    if is_hg and "#" in source.url:
        raise Invalid(f"the address of {source.shown} has a '#'; name the revision by `rev`")
    if ref and is_hg and not _REVISION.fullmatch(ref):
        raise Invalid(
            f"{ref[:64]!r} is not a revision: write a hash, or a branch, bookmark or tag of letters, digits and ./_@-; "
            "expressions of revisions are not taken"
        )
    if ref and not _COMMIT.match(ref):
        raise Invalid(f"{ref[:64]!r} is not a branch, tag or commit")
    if not depth.isdigit():
        raise Invalid(f"`depth` is a number of commits, not {depth[:16]!r}")
    if int(depth) and is_hg:
        raise Invalid("Mercurial clones the whole history; leave `depth` out")
    return replace(source, ref=ref, depth=int(depth), ssh_key=parameters.get("sshkey", ""))
