"""The `audit` block: what is wrong with it is told before the agent starts, all at once."""

from pathlib import Path
from typing import Any

import pytest
from yurt.agent.blocks.audit import audit_trail
from yurt.agent.config import AgentConfig, make_config
from yurt.agent.config_check import check
from yurt.agent.config_files import read_files
from yurt.agent.config_keys import ROOT
from yurt.audit.settings import AuditSinkSettings
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Invalid


def config(audit: dict[str, Any]) -> AgentConfig:
    checked, problems = check({"audit": audit, "data_dir": "/nowhere", "server": {"enabled": True}}, ROOT)
    assert not problems
    return make_config(checked, {}, is_dev=False)


def test_every_mistake_is_told_at_once() -> None:
    sink = {
        "type": "syslog", "format": "xml", "delivery_guarantee": "maybe", "mode": "0999", "path": "audit.log",
    }  # fmt: skip
    filtered = {"type": "RPCEvent", "endpoints": ["v1/jobs"], "stages": ["Begun"], "operations": ["FETCH"]}
    with pytest.raises(Invalid) as caught:
        config({"enabled": True, "sink": {"a": sink}, "filter": {"f": filtered, "empty": {}}})
    assert str(caught.value).splitlines() == [
        'audit sink "a": type "syslog" must be "file".',
        'audit sink "a": format "xml" must be "json".',
        'audit sink "a": delivery_guarantee "maybe" must be "enforced" or "best-effort".',
        'audit sink "a": mode "0999" must be an octal number such as "0600".',
        'audit sink "a": path "audit.log" must be an absolute path.',
        'audit filter "f": type "RPCEvent" must be "HTTPEvent".',
        'audit filter "f": stage "Begun" must be one of OperationReceived, OperationComplete, *.',
        'audit filter "f": operation "FETCH" must be one of GET, HEAD, POST, PUT, DELETE, OPTIONS, *.',
        'audit filter "f": endpoint "v1/jobs" must begin with "/" or "*".',
        *(
            f'audit filter "empty": {key} is empty, so the filter would match nothing; write ["*"] for all of them.'
            for key in ("endpoints", "stages", "operations")
        ),
    ]


@pytest.mark.parametrize(
    ("sinks", "text"),
    [
        ({"a": {}, "b": {}}, "two sinks write to (the default)"),
        ({"a": {"path": "/x/a.log"}, "b": {"path": "/x/a.log"}}, "two sinks write to /x/a.log"),
        ({"a": {"mode": "0400"}}, "it must include 0200"),
    ],
)
def test_sinks_that_cannot_work_are_refused(sinks: dict[str, Any], text: str) -> None:
    with pytest.raises(Invalid) as caught:
        config({"enabled": True, "sink": sinks})
    assert text in str(caught.value)


def test_mistakes_of_access_blocks_are_told_at_their_places(tmp_path: Path) -> None:
    """The value of the last file counts; a key that no file has is told at its block."""
    first, second = tmp_path / "a.hcl", tmp_path / "b.hcl"
    first.write_text('data_dir = "/x"\nserver {\n  enabled = true\n}\naudit {\n  sink "a" {\n    mode = "x"\n  }\n}\n')
    second.write_text(
        'acl {\n  token_min_expiration_ttl = "0s"\n  replication_token = "t"\n}\n'
        'audit {\n  sink "a" {\n    mode = "0999"\n  }\n  filter "f" {\n    stages = ["*", "No"]\n'
        '    operations = ["*"]\n  }\n}\n'
    )
    data, sources = read_files([str(first), str(second)])
    with pytest.raises(Invalid) as caught:
        make_config(data, {}, is_dev=False, sources=sources)
    beginnings = (
        "2:3: acl.token_min_expiration_ttl", "3:3: acl.replication_token must", '7:5: audit sink "a": mode "0999"',
        '9:10: audit filter "f": endpoints is empty', '10:5: audit filter "f": stage "No"',
    )  # fmt: skip
    for line, beginning in zip(str(caught.value).splitlines(), beginnings, strict=True):
        assert line.startswith(f"{second}:{beginning}")


@pytest.mark.parametrize("given", [{}, {"enabled": False}, {"enabled": False, "sink": {"a": {}}}])
def test_nothing_is_written_where_it_is_not_enabled(tmp_path: Path, given: dict[str, Any]) -> None:
    assert audit_trail(config(given).raw["audit"], tmp_path, RealEnv(), None) is None
    assert not (tmp_path / "audit").exists()


def test_without_a_sink_there_is_the_usual_one(tmp_path: Path) -> None:
    trail = audit_trail(config({"enabled": True}).raw["audit"], tmp_path, RealEnv(), None)
    assert trail is not None
    path = str(tmp_path / "audit" / "audit.log")
    assert [each.settings for each in trail.sinks] == [AuditSinkSettings(name="audit", path=path)]


def test_settings_are_taken_over(tmp_path: Path) -> None:
    sink = {
        "type": "file", "format": "json", "delivery_guarantee": "best-effort", "path": str(tmp_path / "a.log"),
        "mode": "0640", "rotate_bytes": 100, "rotate_duration": "1h", "rotate_max_files": 7,
    }  # fmt: skip
    filtered = {"type": "HTTPEvent", "endpoints": ["/v1/metrics"], "stages": ["*"], "operations": ["get"]}
    audit = {"enabled": True, "sink": {"a": sink}, "filter": {"f": filtered}}
    trail = audit_trail(config(audit).raw["audit"], tmp_path, RealEnv(), None)
    assert trail is not None
    assert trail.sinks[0].settings == AuditSinkSettings(
        name="a", path=str(tmp_path / "a.log"), is_enforced=False, mode=0o640, rotate_bytes=100, rotate_s=3600.0,
        rotate_max_files=7,
    )  # fmt: skip
    assert trail.omits("GET", "OperationComplete", "/v1/metrics")


def test_an_agent_whose_audit_log_cannot_be_opened_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("in the way")
    with pytest.raises(Invalid, match="choose another path, or make it writable for the agent"):
        audit_trail(config({"enabled": True}).raw["audit"], tmp_path, RealEnv(), None)
