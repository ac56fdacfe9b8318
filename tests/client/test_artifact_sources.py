"""Artifact sources as go-getter writes them."""

from __future__ import annotations

import pytest
from yurt.client.artifacts.http import sum_in_list
from yurt.client.artifacts.sources import Checksum, parse_source, shown_url
from yurt.client.artifacts.task_artifacts import destination
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Invalid

SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_an_address_is_a_download_named_by_its_path():
    source = parse_source("https://host/a/tool-1.2")
    assert (source.getter, source.url, source.file_name, source.archive) == (
        "http", "https://host/a/tool-1.2", "tool-1.2", "",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.tar.gz", "tar.gz"),
        ("a.tgz", "tar.gz"),
        ("a.zip", "zip"),
        ("a.gz", "gz"),
        ("a.tar.xz", "tar.xz"),
        ("a.tar.zst", "tar.zst"),
        ("a.tzst", "tar.zst"),
        ("a.zst", "zst"),
        ("a", ""),
    ],
)
def test_the_name_tells_the_kind_of_archive(name: str, kind: str):
    assert parse_source(f"https://host/{name}").archive == kind


def test_an_archive_may_be_named_or_denied_by_a_parameter_which_the_server_never_sees():
    assert parse_source("https://host/x?archive=zip&token=1") == parse_source(
        "https://host/x?token=1", {"archive": "zip"}
    )
    source = parse_source("https://host/x.zip?archive=false&token=1")
    assert (source.archive, source.url) == ("", "https://host/x.zip?token=1")


def test_a_folder_inside_is_what_follows_two_slashes():
    source = parse_source("https://host/x.zip//bin/linux?checksum=md5:d41d8cd98f00b204e9800998ecf8427e")
    assert (source.url, source.inside) == ("https://host/x.zip", "bin/linux")
    assert source.checksum == Checksum(kind="md5", digest="d41d8cd98f00b204e9800998ecf8427e")


def test_the_length_of_a_bare_checksum_tells_its_kind():
    assert parse_source("https://host/x", {"checksum": SHA256.upper()}).checksum == Checksum(
        kind="sha256", digest=SHA256
    )


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("git::https://host/a/b.git", "https://host/a/b.git"),
        ("git@host.org:a/b.git", "ssh://git@host.org/a/b.git"),
        ("git::git@host.org:a/b.git", "ssh://git@host.org/a/b.git"),
        ("github.com/a/b", "https://github.com/a/b"),
        ("git::ssh://git@host/a/b", "ssh://git@host/a/b"),
    ],
)
def test_repositories_are_told_by_their_address(text: str, url: str):
    source = parse_source(text, {"ref": "v1.0", "depth": "3"})
    assert (source.getter, source.url, source.ref, source.depth) == ("git", url, "v1.0", 3)


GOOGLE = "https://storage.googleapis.com/storage/v1/b"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("gcs::https://www.googleapis.com/storage/v1/b/dir/a.txt", f"{GOOGLE}/b/o/dir%2Fa.txt?alt=media"),
        ("www.googleapis.com/storage/v1/b/a.txt", f"{GOOGLE}/b/o/a.txt?alt=media"),
        ("gs://b/dir/a.txt#17", f"{GOOGLE}/b/o/dir%2Fa.txt?alt=media&generation=17"),
        ("gcs::https://storage.googleapis.com/b/my a.txt", f"{GOOGLE}/b/o/my%20a.txt?alt=media"),
        ("gcs::http://127.0.0.1:1/storage/v1/b/a.txt", "http://127.0.0.1:1/storage/v1/b/b/o/a.txt?alt=media"),
    ],
)
def test_addresses_of_googles_objects(text: str, url: str):
    source = parse_source(text)
    assert (source.getter, source.url, source.file_name[-5:]) == ("gcs", url, "a.txt")


@pytest.mark.parametrize("text", ["hg::https://host/a/b", "hg::ssh://hg@host/a/b"])
def test_mercurial_repositories_are_named_by_their_getter(text: str):
    source = parse_source(text, {"rev": "v1.0"})
    assert (source.getter, source.url, source.ref) == ("hg", text.removeprefix("hg::"), "v1.0")


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("gcs::https://storage.example/bucket/key", {}, "names no object"),
        ("gcs::https://www.googleapis.com/storage/v1/b", {}, "names no object"),
        ("gcs::https:///storage/v1/b/k", {}, "names no object"),
        ("gcs::ftp://host/storage/v1/b/k", {}, "names no object"),
        ("gs://bucket/folder/", {}, "names no object"),
        ("gs://bucket/key#latest", {}, "not the generation"),
        ("hg::file:///srv/repo", {}, "cannot be fetched by file"),
        ("hg::bundle:/srv/repo", {}, "not the address of a repository"),
        ("hg::/srv/repo", {}, "not the address of a repository"),
        ("hg::https:///repo", {}, "names no host"),
        ("hg::https://host/x", {"rev": "--config=alias.clone=!touch x"}, "is not a revision"),
        ("hg::https://host/x", {"depth": "1"}, "whole history"),
        ("hg::https://host/x", {"checksum": SHA256}, "commit as `rev`"),
        ("ftp://host/x", {}, 'cannot be downloaded by "ftp"'),
        ("git::file:///srv/repo", {}, "cannot be fetched by file"),
        ("git::/srv/repo", {}, "not the address of a repository"),
        ("https:///x", {}, "names no host"),
        ("https://host/x", {"checksum": "sha256:abc"}, "is not a checksum"),
        ("https://host/x", {"checksum": "md5:" + SHA256}, "is not a checksum"),
        ("https://host/x", {"archive": "rar"}, "unknown kind of archive"),
        ("https://host/x", {"filename": "../../etc/passwd"}, "cannot be the name of a file"),
        ("https://host/x%2F..%2Fy", {}, "download"),
        ("https://host/x.zip//../..", {}, "leads out of it"),
        ("git::https://host/x", {"ref": "--upload-pack=touch /tmp/x"}, "not a branch, tag or commit"),
        ("git::https://host/x", {"ref": "-b"}, "not a branch, tag or commit"),
        ("git::https://host/x", {"depth": "-1"}, "number of commits"),
        ("git::https://host/x", {"checksum": SHA256}, "has no checksum"),
        ("https://host/x\n", {}, ""),
        ("https://host/\x00", {}, "NUL"),
    ],
)
def test_what_cannot_be_fetched_is_refused_with_its_reason(text: str, options: dict[str, str], reason: str):
    if reason in ("", "download"):
        assert parse_source(text, options).file_name in ("x", "y")
        return
    with pytest.raises(Invalid, match=reason):
        parse_source(text, options)


def test_errors_never_show_what_may_be_secret():
    assert shown_url("https://user:word@host/x?sig=secret#part") == "https://host/x"


DIRS = TaskDirs(
    alloc_dir="/a/id",
    shared_dir="/a/id/alloc",
    task_dir="/a/id/web",
    local_dir="/a/id/web/local",
    secrets_dir="/a/id/web/secrets",
    logs_dir="/a/id/alloc/logs",
)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("local/", "web/local"),
        ("", "web"),
        ("local/a/../b", "web/local/b"),
        ("../alloc/data", "alloc/data"),
        ("/a/id/alloc/data", "alloc/data"),
        ("/a/id/web/local/x", "web/local/x"),
        ("/etc", "web/etc"),
        ("/local/x", "web/local/x"),
    ],
)
def test_a_destination_begins_in_the_tasks_directory(text: str, place: str):
    assert destination(text, DIRS) == place


@pytest.mark.parametrize("text", ["../../other", "local/../../../x", "/a/id/../other", "../.."])
def test_a_destination_never_leaves_the_allocations_directory(text: str):
    with pytest.raises(Invalid, match="leaves the allocation's directory"):
        destination(text, DIRS)


@pytest.mark.parametrize(
    "text",
    [
        f"{SHA256}  tool\nffff  other\n",
        f"SHA256 (tool) = {SHA256}\n",
        f"{SHA256} *./dist/tool\n",
        f"# a comment\n\n{SHA256}\n",
    ],
)
def test_a_sum_is_found_in_a_list(text: str):
    assert sum_in_list(text, "tool", "https://host/SUMS").digest == SHA256


def test_a_list_without_the_file_is_told():
    with pytest.raises(Invalid, match="no checksum of tool"):
        sum_in_list(f"{SHA256}  other", "tool", "https://host/SUMS")
