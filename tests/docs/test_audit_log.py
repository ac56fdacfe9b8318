"""The page about the audit log names every field of a line, and no other one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from yurt.access import Identity, MadeDecision, ObjectName, Origin, Scope, needs
from yurt.audit.events import AuditedRequest, AuditedResponse, encode_request, line_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "audit-log.md"


def fields(value: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from fields(inner, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_every_field_of_a_line_is_explained_and_nothing_else() -> None:
    asked = AuditedRequest(
        id="r", operation="PUT", endpoint="/v1/jobs", route="/v1/jobs", namespace="default", origin=Origin(),
        identity=Identity(resolved_by="token"), object=ObjectName("job", "web"),
        decisions=(MadeDecision(needs.MANAGEMENT, Scope(), True),), decisions_omitted=1,
    )  # fmt: skip
    ended = AuditedResponse(status=200, is_refused=False, reason="", duration_s=0.1)
    line = line_of(encode_request(asked, str), event_id="e", stage="OperationComplete", at_ns=1, ended=ended)
    table = PAGE.read_text().partition("## Fields")[2].partition("## Data that are never recorded")[0]
    rows = [row for row in table.splitlines() if not row.startswith(("- ", "  "))]
    explained = [name for row in rows for name in re.findall(r"`([\w.]+)`", row.split(" | ")[0])]
    assert sorted(set(explained) - {"created_at", "event_type", "audit", "payload", "OperationReceived", "user_agent",
                                    "response"}) == sorted(fields(json.loads(line)["payload"]))  # fmt: skip
