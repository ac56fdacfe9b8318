"""The commands on variables, against fixed answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from yurt.cli.commands.var.specification import as_hcl, read_spec
from yurt.cli.errors import CliError

VARIABLE = {
    "Namespace": "default", "Path": "app/db", "CreateIndex": 5, "ModifyIndex": 9, "CreateTime": 1, "ModifyTime": 2,
    "Items": {"user": "anna", "note": 'two\nlines, ${x} and "quotes"'},
}  # fmt: skip


def sent(api: Any) -> Any:
    return api.asked[-1]


def test_a_variable_written_as_hcl_reads_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "v.hcl"
    path.write_text(as_hcl(VARIABLE))
    assert read_spec(str(path), form="json") == VARIABLE


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("v.hcl", 'path = "a"\nitem { a = "b" }', 'unknown key "item"'),
        ("v.json", '{"Path": "a", "Itemz": {}}', 'unknown key "Itemz"'),
        ("v.json", "path", "not valid JSON"),
        ("v.json", '{"Items": {"a": [1]}}', 'item "a" is not a text'),
    ],
)
def test_a_file_that_is_none_is_refused_with_words(tmp_path: Path, name: str, text: str, word: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CliError, match=word):
        read_spec(str(path), form="json")


def test_put_sends_items_of_file_and_command_line_against_the_index_of_the_file(
    api: Any, run: Any, tmp_path: Path
) -> None:
    api.answers["/v1/var/app/db"] = VARIABLE
    (tmp_path / "v.hcl").write_text(as_hcl(VARIABLE))
    (tmp_path / "secret").write_text("from a file\n")
    code, out, _ = run("var", "put", f"@{tmp_path}/v.hcl", "user=bert", f"pass=@{tmp_path}/secret", "at=\\@x")
    method, path, _, body = sent(api)
    assert (code, method) == (0, "PUT") and "cas=9" in path
    assert body["Items"] == VARIABLE["Items"] | {"user": "bert", "pass": "from a file\n", "at": "@x"}  # type: ignore[operator]
    assert json.loads(out) == VARIABLE


@pytest.mark.parametrize(
    ("flags", "query"),
    [((), "cas=0"), (("-force",), ""), (("-check-index=7",), "cas=7"), (("-check-index", "0"), "cas=0")],
)
def test_put_checks_the_index_unless_forced(api: Any, run: Any, flags: tuple[str, ...], query: str) -> None:
    api.answers["/v1/var/app/db"] = VARIABLE
    assert run("var", "put", *flags, "app/db", "a=b")[0] == 0
    assert sent(api)[1].partition("?")[2] == query


def test_a_conflict_is_told_with_both_indexes_and_a_way_out(api: Any, run: Any) -> None:
    api.answers["/v1/var/app/db"] = (409, json.dumps(VARIABLE))
    code, _, error = run("var", "put", "app/db", "a=b")
    assert code == 1
    assert "check-index (0) does not match the server-side index (9)" in error and "-force" in error
    api.answers["/v1/var/app/db"] = (409, json.dumps(VARIABLE | {"Lock": {"TTL": "15s"}}))
    assert "it is locked" in run("var", "put", "-force", "app/db", "a=b")[2]


@pytest.mark.parametrize(
    "words",
    [
        ("put", "app/db"), ("put", "app/db", "novalue"), ("put", "-force", "-check-index=1", "app/db", "a=b"),
        ("put", "-out=xml", "app/db", "a=b"), ("get", "-out=go-template", "app/db"), ("get", "-template={{", "app/db"),
        ("get", "-item=a", "-out=json", "app/db"), ("purge", "-check-index=x", "app/db"), ("init", "-out=xml"),
        ("lock", "-ttl=soon", "app/db", "true"), ("lock", "-backoff=soon", "app/db", "true"),
        ("lock", "-backoff=²", "app/db", "true"),
        ("put", "-in=xml", "-", "a=b"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_asks_nothing(api: Any, run: Any, words: tuple[str, ...]) -> None:
    assert run("var", *words)[0] != 0
    assert not api.asked


def test_get_prints_an_item_or_the_variable_in_any_form(api: Any, run: Any) -> None:
    api.answers["/v1/var/app/db"] = VARIABLE
    assert run("var", "get", "-item=user", "app/db")[1] == "anna\n"
    missing = run("var", "get", "-item=usr", "app/db")
    assert missing[0] == 1 and "user" in missing[2]
    table = run("var", "get", "-out=table", "app/db")[1]
    assert "Check Index" in table and "user" in table
    assert run("var", "get", "-template", "{{ .Items.user }}", "app/db")[1] == "anna\n"
    assert run("var", "get", "app/other")[2].startswith("Variable not found\n")


def test_list_prints_paths_or_a_table_and_names_the_next_page(api: Any, run: Any) -> None:
    api.answers["/v1/vars"] = [VARIABLE]
    assert run("var", "list", "app")[1] == "app/db\n"
    assert run("var", "list", "-out=table")[1].splitlines()[0].split() == ["Namespace", "Path", "Last", "Updated"]
    api.answers["/v1/vars"] = []
    assert run("var", "list", "-out=table")[1] == "No variables found\n"


def test_a_lock_is_released_after_the_command_and_its_code_is_kept(api: Any, run: Any) -> None:
    api.answers["/v1/var/app/db"] = VARIABLE | {"Lock": {"ID": "the-id", "TTL": "15s", "LockDelay": "15s"}}
    code, out, _ = run("var", "lock", "-out=json", "app/db", "exit 3")
    assert code == 3 and "the-id" not in out
    assert [entry[1].partition("?")[2] for entry in api.asked] == ["lock-acquire=", "lock-release="]
    assert sent(api)[3]["Lock"] == {"ID": "the-id"}
    api.answers["/v1/var/app/db"] = (409, json.dumps(VARIABLE))
    assert "held by somebody else" in run("var", "lock", "-early-return", "app/db", "true")[2]


def test_the_pause_between_tries_for_a_lock_is_a_duration(api: Any, run: Any) -> None:
    api.answers["/v1/var/app/db"] = (500, "no leader")
    assert run("var", "lock", "-backoff=1ms", "-max-retry=2", "app/db", "true")[0] == 1
    assert len(api.asked) == 3


def test_init_writes_an_example_that_reads_back(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("var", "init")[0] == 0
    assert run("var", "init")[0] == 1
    assert run("var", "init", "-out=json", "mine.json")[0] == 0
    for name in ("spec.nv.hcl", "mine.json"):
        assert read_spec(name, form="json")["Items"] == {"key1": "value 1", "key2": "value 2"}


def test_root_keys_are_rotated_and_removed(api: Any, run: Any) -> None:
    key = {"KeyID": "k" * 36, "State": "active", "CreateTime": 0, "PublishTime": 0}
    api.answers["/v1/operator/keyring/rotate"] = {"Key": key, "Index": 5}
    assert "kkkkkkkk" in run("operator", "root", "keyring", "rotate", "-full")[1]
    assert sent(api)[1] == "/v1/operator/keyring/rotate?full=true"
    run("operator", "root", "keyring", "rotate", "-prepublish=1h")
    assert "publish_time=" in sent(api)[1]


def test_a_root_key_is_removed_by_the_part_of_its_id_that_lists_show(api: Any, run: Any) -> None:
    ids = ["10524033-3695-4d21-999c-6ed52a359d53", "10e13325-0f6b-4b53-8a1e-0a3c1b7d2f11"]
    api.answers["/v1/operator/keyring/keys"] = [{"KeyID": each, "State": "inactive"} for each in ids]
    api.answers[f"/v1/operator/keyring/key/{ids[0]}"] = {}
    code, out, _ = run("operator", "root", "keyring", "remove", "-force", "10524033")
    assert (code, out) == (0, f"Removed encryption key {ids[0]}\n")
    assert sent(api)[:2] == ("DELETE", f"/v1/operator/keyring/key/{ids[0]}?force=true")
    for given, reason in (("10", "Prefix matched multiple root keys"), ("ff", "`yurt operator root keyring list`")):
        code, _, err = run("operator", "root", "keyring", "remove", given)
        assert code == 1 and reason in err
    assert [each[0] for each in api.asked].count("DELETE") == 1


def test_job_files_kept_as_variables_are_listed_and_written(
    api: Any, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    api.answers["/v1/vars"] = [{"Path": "nomad/job-templates/web"}]
    assert run("job", "init", "-list-templates")[1] == "web\n"
    api.answers["/v1/var/nomad/job-templates/web"] = VARIABLE | {"Items": {"template": 'job "web" {}'}}
    assert run("job", "init", "-template=web", "web.nomad.hcl")[0] == 0
    assert (tmp_path / "web.nomad.hcl").read_text() == 'job "web" {}'
    api.answers["/v1/var/nomad/job-templates/web"] = VARIABLE
    assert 'has no item "template"' in run("job", "init", "-template=web", "other.hcl")[2]
