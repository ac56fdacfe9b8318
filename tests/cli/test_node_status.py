"""`node status`: what is shown of one node."""

from __future__ import annotations

from typing import Any

NODE_ID = "bbbbbbbb-0000-4000-8000-000000000000"


def test_a_second_agent_on_a_copied_data_directory_is_shown_with_both_addresses(api: Any, run: Any) -> None:
    details = {"refused_address": "10.0.0.8:1", "active_address": "10.0.0.7:2"}
    node = {
        "ID": NODE_ID, "Name": "n", "Datacenter": "dc1", "Status": "down", "SchedulingEligibility": "eligible",
        "Events": [{"Message": "Second agent", "Subsystem": "Cluster", "Details": details,
                    "Timestamp": "2026-01-01T00:00:00Z"}, {"Message": "later"}],
    }  # fmt: skip
    api.answers |= {
        "/v1/nodes": [node],
        f"/v1/node/{NODE_ID}": node,
        f"/v1/node/{NODE_ID}/allocations": [],
    }
    _, out, _ = run("node", "status", NODE_ID)
    (line,) = [line for line in out.splitlines() if line.startswith("Second Agent")]
    assert line.startswith("Second Agent    = refused at 10.0.0.8:1 ")
    assert line.endswith("ago; 10.0.0.7:2 is active")
