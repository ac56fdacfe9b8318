"""Commands that scripts for Nomad call: snapshots of volumes, pausing, the gossip keyring, pages in a browser."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

import pytest

ALLOC_ID = "bbbbbbbb-0000-0000-0000-000000000000"
VOLUME = {"ID": "data", "Name": "data", "Namespace": "default", "PluginID": "ebs"}
SNAPSHOT = {
    "ID": "snap-1", "ExternalSourceVolumeID": "vol-9", "SourceVolumeID": "data", "SizeBytes": 1 << 30,
    "CreateTime": 1_700_000_000, "IsReady": True,
}  # fmt: skip


@pytest.fixture
def volume(api: Any) -> None:
    api.answers |= {
        "/v1/volumes": [VOLUME], "/v1/volume/csi/data": VOLUME, "/v1/volumes/snapshot": {"Snapshots": [SNAPSHOT]},
    }  # fmt: skip


@pytest.mark.usefixtures("volume")
def test_a_snapshot_is_asked_for_with_parameters_and_secrets(api: Any, run: Any) -> None:
    code, out, _ = run("volume", "snapshot", "create", "data", "nightly", "-parameter=a=1", "-secret", "k=v")

    assert code == 0 and out.splitlines()[0].split("  ")[0] == "Snapshot ID"
    method, _, _, body = api.asked[-1]
    assert method == "PUT" and body == {
        "Snapshots": [
            {
                "SourceVolumeID": "data",
                "PluginID": "ebs",
                "Name": "nightly",
                "Parameters": {"a": "1"},
                "Secrets": {"k": "v"},
            }
        ]
    }


@pytest.mark.usefixtures("volume")
def test_snapshots_are_listed_and_deleted_with_secrets_in_a_header(api: Any, run: Any) -> None:
    code, out, _ = run("volume", "snapshot", "list", "-plugin=ebs", "-secret=b=2", "-secret=a=1", "-verbose")
    _, path, headers, _ = api.asked[-1]
    assert code == 0 and out.splitlines()[1].split() == [
        "snap-1", "vol-9", "data", "1", "GiB", out.splitlines()[1].split()[5], "true",
    ]  # fmt: skip
    assert path == "/v1/volumes/snapshot?plugin_id=ebs&per_page=30"
    assert headers["X-Nomad-CSI-Secrets"] == "a=1,b=2"

    assert run("volume", "snapshot", "delete", "ebs", "snap-1") == (0, "Successfully deleted snapshot snap-1!\n", "")
    assert api.asked[-1][:2] == ("DELETE", "/v1/volumes/snapshot?plugin_id=ebs&snapshot_id=snap-1")


def test_a_wrong_secret_is_not_shown(run: Any) -> None:
    code, out, err = run("volume", "snapshot", "list", "-plugin=ebs", "-secret=geheim")

    assert code == 1 and "geheim" not in out + err and "-secret needs key=value" in err


@pytest.mark.usefixtures("volume")
def test_an_agent_that_makes_no_snapshots_says_so(api: Any, run: Any) -> None:
    api.answers["/v1/volumes/snapshot"] = (501, "not available in this version")

    assert run("volume", "snapshot", "list", "ebs")[2] == "Error: not available in this version\n"
    assert "yurt plugin status -type csi lists them" in run("volume", "snapshot", "list")[2]


def test_a_csi_volume_is_deleted_by_its_plugin(api: Any, run: Any, volume: None) -> None:
    api.answers["/v1/volume/csi/data/delete"] = {}

    assert run("volume", "delete", "-type=csi", "-secret=k=v", "data")[0] == 0
    method, path, headers, _ = api.asked[-1]
    assert (method, path.partition("?")[0]) == ("DELETE", "/v1/volume/csi/data/delete")
    assert headers["X-Nomad-CSI-Secrets"] == "k=v"
    for value in ("a,b", "a\nb"):
        code, _, err = run("volume", "delete", "-type=csi", f"-secret=k={value}", "data")
        assert (code, 'the secret "k" holds a comma or a control character' in err, value in err) == (1, True, False)
    assert '-type is host or csi, not "nfs"' in run("volume", "delete", "-type=nfs", "data")[2]


@pytest.fixture
def alloc(api: Any) -> None:
    job = {"ID": "web", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "main"}]}]}
    found = {
        "ID": ALLOC_ID, "JobID": "web", "TaskGroup": "g", "Job": job, "Namespace": "default", "Name": "web.g[0]",
        "ClientStatus": "running", "DesiredStatus": "run", "NodeID": "", "NodeName": "",
    }  # fmt: skip
    api.answers |= {
        "/v1/jobs": lambda query: [{"ID": "web", "Name": "web", "Namespace": "default"}] if "web" in query else [],
        "/v1/job/web": job, "/v1/job/web/allocations": [found],
        "/v1/allocations": [found], f"/v1/allocation/{ALLOC_ID}": found,
        f"/v1/client/allocation/{ALLOC_ID}/pause": {"ScheduleState": "pause"},
    }  # fmt: skip


@pytest.mark.usefixtures("alloc")
def test_a_task_is_paused_and_its_state_shown(api: Any, run: Any) -> None:
    assert run("alloc", "pause", "bbbb") == (0, "", "")
    assert api.asked[-1][3] == {"Task": "main", "ScheduleState": "pause"}
    assert run("alloc", "pause", "-state=run", "bbbb", "main")[0] == 0
    assert api.asked[-1][3] == {"Task": "main", "ScheduleState": "run"}
    assert run("alloc", "pause", "-status", "bbbb")[:2] == (0, "pause\n")
    assert run("alloc", "pause", "-status", "web")[:2] == (0, "pause\n")
    assert '-state is one of pause, run, scheduled, not "stop"' in run("alloc", "pause", "-state=stop", "bbbb")[2]


@pytest.mark.parametrize("verb", ["generate", "install", "list", "remove", "use"])
def test_the_gossip_keyring_leads_to_mutual_tls(run: Any, verb: str) -> None:
    key = [] if verb in ("generate", "list") else ["cg8StVXbQJ0gPvMd9o7yrg=="]
    code, _, err = run("operator", "gossip", "keyring", verb, *key)

    assert code == 1 and err.startswith(f"There is no gossip key to {verb}.")
    assert "yurt tls cert create -server" in err and "cg8St" not in err


@pytest.mark.usefixtures("alloc")
def test_ui_opens_the_page_of_what_is_shown(api: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    api.answers["/v1/var/app/db"] = {"Path": "app/db", "Namespace": "team a", "Items": {}}

    code, out, _ = run("alloc", "status", "-ui", "-short", "bbbb")
    assert run("var", "get", "-ui", "-namespace", "team a", "app/db")[0] == 0

    pages = [f"/ui/allocations/{ALLOC_ID}", "/ui/variables/app/db?namespace=team+a"]
    assert opened == [api.address + page for page in pages]
    assert code == 0 and out.endswith(f'==> Opening URL "{opened[0]}"\n')


@pytest.mark.usefixtures("alloc")
def test_a_machine_without_a_browser_fails_no_command(api: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    code, out, err = run("alloc", "status", "-ui", "-short", "bbbb")

    assert code == 0 and f"{api.address}/ui/" in out and "No browser could be started" in err


def test_file_functions_read_the_users_files_unless_they_are_restricted(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "note.txt").write_text("a note")
    folder = tmp_path / "jobs"
    folder.mkdir()
    path = folder / "x.nomad.hcl"
    path.write_text('job "x" {\n  meta {\n    a = file("../note.txt")\n  }\n}\n')

    assert '"a": "a note"' in run("job", "run", "-output", str(path))[1]
    refused = run("job", "run", "-output", "-file-access=folder", str(path))
    assert refused[0] == 1 and "files outside it may not be read" in refused[2]
    assert "disabled" in run("job", "run", "-output", "-file-access=none", str(path))[2]
    monkeypatch.setenv("YURT_FILE_ACCESS", "folder")
    assert run("job", "run", "-output", str(path))[0] == 1
    monkeypatch.setenv("YURT_FILE_ACCESS", "home")
    assert "YURT_FILE_ACCESS is one of all, folder, none" in run("job", "run", "-output", str(path))[2]
