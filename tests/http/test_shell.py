"""The shell of the web UI and its files: what is served, with which headers, and nothing else."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from yurt.http.ui_routes import shell
from yurt.http.ui_routes.shell import FILES, PageFiles
from yurt.testing.http_api import Api, serving


@pytest.fixture
def files(tmp_path: Path) -> PageFiles:
    (tmp_path / "app").mkdir()
    (tmp_path / "index.html").write_text('<script type="module" src="{{assets}}/app/main.js"></script><i>{{nonce}}</i>')
    (tmp_path / "app" / "main.js").write_text("export const a = 1;\n" * 200)
    (tmp_path / "app" / "types.d.json").write_text("{}")
    return PageFiles(tmp_path)


@pytest.fixture
def pages(api: Api, files: PageFiles) -> Api:
    app = api.client.server.app  # type: ignore[attr-defined]
    app[FILES]["pages"] = files
    return api


@pytest.mark.parametrize("path", ["/ui/", "/ui/jobs", "/ui/jobs/a%2Fb@x/versions", "/ui/no/such/page"])
async def test_every_path_answers_the_shell_with_a_strict_policy(pages: Api, files: PageFiles, path: str) -> None:
    answer = await pages.get(path)
    assert answer.status == 200 and f"/ui/a/{files.hash}/app/main.js" in answer.text and "<i></i>" in answer.text
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'; " in policy
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy and "trusted-types yurt" in policy
    assert answer.headers["Cache-Control"] == "no-cache" and answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_the_page_of_terminals_has_a_nonce_of_its_own_each_time(pages: Api) -> None:
    first, second = await pages.get("/ui/exec/web"), await pages.get("/ui/exec/web")
    nonce = first.text.partition("<i>")[2].partition("</i>")[0]
    assert len(nonce) == 32 and f"'nonce-{nonce}'" in first.headers["Content-Security-Policy"]
    assert nonce not in second.text
    assert "nonce" not in (await pages.get("/ui/executive")).headers["Content-Security-Policy"]


async def test_a_file_is_kept_for_ever_and_sent_compressed(pages: Api, files: PageFiles) -> None:
    path = f"/ui/a/{files.hash}/app/main.js"
    async with pages.client.get(path, headers={"Accept-Encoding": "gzip"}, auto_decompress=False) as zipped:
        raw = await zipped.read()
        assert zipped.headers["Content-Encoding"] == "gzip" and len(raw) < 400
        assert "immutable" in zipped.headers["Cache-Control"]
        assert zipped.headers["Content-Type"] == "text/javascript; charset=utf-8"
    plain = await pages.get(path, headers={"Accept-Encoding": "identity"})
    assert gzip.decompress(raw).decode() == plain.text and "Content-Encoding" not in plain.headers


@pytest.mark.parametrize(
    "path", ["app/none.js", "../index.html", "..%2F..%2Fhttp%2Fapp.py", "index.html", "app/types.d.json", "app"]
)
async def test_what_is_no_file_of_the_pages_is_not_found(pages: Api, files: PageFiles, path: str) -> None:
    assert (await pages.get(f"/ui/a/{files.hash}/{path}")).status in (200, 404)
    found = await pages.get(f"/ui/a/{files.hash}/{path}")
    assert found.status == 404 or found.headers["Content-Type"].startswith("text/html"), "the shell, by a path above"
    assert "def make_app" not in found.text
    assert (await pages.get("/ui/a/0000000000000000/app/main.js")).status == 404


async def test_the_hash_changes_with_any_file(tmp_path: Path, files: PageFiles) -> None:
    (tmp_path / "app" / "main.js").write_text("export const a = 2;\n")
    assert PageFiles(tmp_path).hash != files.hash


async def test_without_the_files_the_plain_pages_are_shown(api: Api, tmp_path: Path) -> None:
    app = api.client.server.app  # type: ignore[attr-defined]
    app[FILES]["pages"] = PageFiles(tmp_path / "empty")
    answer = await api.get("/ui/jobs")
    assert (answer.status, answer.headers["Location"]) == (307, "/ui/plain/")
    assert (await api.get("/ui/plain/")).status == 200


async def test_the_operator_can_switch_the_pages_off() -> None:
    async with serving(facts={"ui_enabled": False}) as api:
        for path in ("/ui/", "/ui/a/x/app/main.js", "/ui/plain/"):
            answer = await api.get(path)
            assert (answer.status, answer.text.startswith("The pages are off")) == (404, True), path
        assert (await api.get("/v1/yurt/ui/config")).json["Enabled"] is False


async def test_the_configuration_tells_what_a_page_shows_before_a_sign_in() -> None:
    config = {
        "UI": {
            "ShowCliHints": False,
            "Label": {"Text": "<b>prod</b>", "BackgroundColor": "red"},
            "Consul": {"UiUrl": "https://consul"},
        },
        "Client": {"DisableRemoteExec": True},
    }
    async with serving(facts={"config": config}) as api:
        found = (await api.get("/v1/yurt/ui/config")).json
        assert found["Label"] == {"Text": "<b>prod</b>", "BackgroundColor": "red", "TextColor": ""}
        assert found["CLIHints"] is False
        assert (found["ConsulURL"], found["Exec"], found["ACL"], found["AuthMethods"]) == (
            "https://consul",
            False,
            False,
            [],
        )


def test_the_folder_of_the_pages_is_in_the_package() -> None:
    assert shell.FOLDER.name == "ui" and (shell.FOLDER.parent / "py.typed").is_file()
