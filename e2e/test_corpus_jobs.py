"""Job files that others wrote run: parsed as they are, with only the driver changed to one that every machine has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, register, wait_for
from yurt_jobspec import parse_job

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus" / "jobspecs"
NEEDS = (
    "Services",
    "Templates",
    "Artifacts",
    "Vault",
    "Consul",
    "VolumeMounts",
    "Identity",
    "Identities",
    "CSIPluginConfig",
)
"""Task blocks that ask for something outside this machine, or that an isolating driver must give."""


def cases() -> list[tuple[str, Path]]:
    """(id, file) of the corpus's real job files that parse without variables."""
    if not CORPUS.is_dir():
        return []
    rows = [json.loads(line) for line in (CORPUS / "manifest.jsonl").read_text().splitlines()]
    bases = {row["id"]: CORPUS / row["group"] / row["name"] for row in rows if is_plain(row)}
    return [(name, Path(f"{base}.hcl")) for name, base in bases.items() if Path(f"{base}.json").exists()]


def is_plain(row: dict[str, Any]) -> bool:
    """A real job file that needs no variables and no files beside it."""
    needs = row["vars"] or row["var_files"] or Path(f"{CORPUS / row['group'] / row['name']}.files").exists()
    return row["group"].startswith("real-") and not needs


def made_local(job: dict[str, Any]) -> dict[str, Any]:
    """The job with its tasks run by `raw_exec` as a sleeping shell, and without what needs other machines."""
    job |= {"Datacenters": ["*"], "NodePool": "default", "Namespace": "default", "Region": "global"}
    job["Constraints"] = job["Affinities"] = job["Periodic"] = job["ParameterizedJob"] = None
    for group in job["TaskGroups"]:
        group |= {
            "Count": 1,
            "Volumes": None,
            "Services": None,
            "Networks": None,
            "Constraints": None,
            "Consul": None,
            "Scaling": None,
        }
        for task in group["Tasks"]:
            for block in NEEDS:
                task.pop(block, None)
            task["Constraints"] = None
            task |= {"Driver": "raw_exec", "Config": {"command": "/bin/sleep", "args": ["1000"]}, "User": ""}
            task["Resources"] = {"CPU": 10, "MemoryMB": 10}
            if (task.get("Lifecycle") or {}).get("Hook") and not task["Lifecycle"].get("Sidecar"):
                task["Config"] = {"command": "/bin/true"}
    return job


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of other people's job files is not beside this checkout")
def test_real_job_files_run_on_a_machine_of_their_own(dev_agent: Agent) -> None:
    tried = 0
    for name, path in cases()[:40]:
        job = made_local(parse_job(path.read_text(), filename=path.name, base_dir=path.parent))
        if job.get("Type") in ("batch", "sysbatch"):
            continue
        tried += 1
        register(dev_agent, job)
        groups = len(job["TaskGroups"])

        def runs(job_id: str = job["ID"], count: int = groups) -> bool:
            live = [a for a in dev_agent.allocs(job_id) if a["ClientStatus"] == "running"]
            return len(live) == count

        wait_for(f"{name} to run", runs)
        dev_agent.call("DELETE", f"/v1/job/{job['ID']}?purge=true")

    assert tried >= 5
