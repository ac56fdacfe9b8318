"""The doctor looks at a host as the agent with that configuration would."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from yurt.cli.main import main
from yurt.executor import container_executor


def test_plugins_are_asked_with_their_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "agent.hcl"
    config.write_text(
        'plugin "raw_exec" {\n config {\n enabled = true\n }\n}\nplugin "dokcer" {\n config {}\n}\n'
        f'data_dir = "{tmp_path}/data"\nbind_addr = "127.0.0.1"\nports {{\n http = 0\n}}\n'
        "server {\n enabled = true\n}\nclient {\n enabled = true\n}\n"
    )

    main(["doctor", "-json", "-config", str(config)])

    findings = json.loads(capsys.readouterr().out)
    states = {item["subject"]: item["state"] for item in findings}
    assert states["driver raw_exec"] == "ok"
    (unused,) = [item for item in findings if "dokcer" in item["detail"]]
    assert (unused["state"], unused["detail"][-24:]) == ("note", '; did you mean "docker"?')


def test_artifact_isolation_that_is_switched_off_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "agent.hcl"
    config.write_text(
        f'data_dir = "{tmp_path}/data"\nbind_addr = "127.0.0.1"\nports {{\n http = 0\n}}\n'
        "server {\n enabled = true\n}\n"
        "client {\n enabled = true\n artifact {\n disable_filesystem_isolation = true\n }\n}\n"
    )

    main(["doctor", "-json", "-config", str(config)])

    (found,) = [item for item in json.loads(capsys.readouterr().out) if item["subject"] == "artifact isolation"]
    assert found["state"] == "note" and "disable_filesystem_isolation" in found["detail"]


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="isolation takes root on Linux")
@pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed (apt install runc)")
def test_a_host_that_filters_no_system_calls_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_executor, "kernel_filter_problem", lambda: "the kernel has no seccomp filters")

    main(["doctor", "-json", "-dev"])

    (found,) = [item for item in json.loads(capsys.readouterr().out) if item["subject"] == "driver exec"]
    assert (found["state"], found["fix"]) == ("note", "install a runc and a kernel that have seccomp")
    assert "without a filter of system calls: the kernel has no seccomp filters" in found["detail"]
