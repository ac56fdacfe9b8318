"""The import contracts hold, and each of them fails on a deliberate breach."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"yurt": "core/src/yurt", "yurt_jobspec": "jobspec/src/yurt_jobspec"}
BREACHES = [
    ("layers", "yurt/state/breach.py", "import yurt.fsm"),
    ("scheduler-layers", "yurt/scheduler/placing/breach.py", "import yurt.scheduler.explain"),
    ("client-layers", "yurt/client/allocations/breach.py", "import yurt.client.client"),
    ("client-layers", "yurt/client/tasks/breach.py", "import yurt.client.fingerprint.node"),
    ("client-layers", "yurt/client/services/breach.py", "import yurt.client.tasks.task_runner"),
    ("client-layers", "yurt/client/hooks/breach.py", "import yurt.client.node_calls"),
    ("client-layers", "yurt/client/volumes/breach.py", "import yurt.client.context"),
    ("client-layers", "yurt/client/networks/breach.py", "import yurt.client.allocations.alloc_table"),
    ("client-layers", "yurt/client/devices/breach.py", "import yurt.client.tasks.task_runner"),
    ("client-layers", "yurt/client/templates/breach.py", "import yurt.client.config"),
    ("client-layers", "yurt/client/artifacts/breach.py", "import yurt.client.templates.files"),
    ("client-layers", "yurt/client/csi/breach.py", "import yurt.client.drivers.driver_table"),
    ("client-layers", "yurt/client/drivers/breach.py", "import yurt.client.fingerprint.node"),
    ("client-layers", "yurt/client/servers/breach.py", "import yurt.client.devices.manager"),
    ("client-layers", "yurt/client/files/breach.py", "import yurt.client.artifacts.task_artifacts"),
    ("client-layers", "yurt/client/fingerprint/breach.py", "import yurt.client.client"),
    ("agent-layers", "yurt/agent/cluster/breach.py", "import yurt.agent.node"),
    ("agent-layers", "yurt/agent/blocks/breach.py", "import yurt.agent.config"),
    ("http-layers", "yurt/http/forwarding/breach.py", "import yurt.http.resources.job_by_id"),
    ("http-layers", "yurt/http/edge/breach.py", "import yurt.http.forwarding.forward"),
    ("http-layers", "yurt/http/cluster_routes/breach.py", "import yurt.http.agent_routes.agent"),
    ("server-layers", "yurt/server/views/breach.py", "import yurt.server.resources.jobs"),
    ("server-layers", "yurt/server/log/breach.py", "import yurt.server.keys.keyring"),
    ("server-layers", "yurt/server/keys/breach.py", "import yurt.server.scheduling.worker"),
    ("server-layers", "yurt/server/scheduling/breach.py", "import yurt.server.resources.jobs"),
    ("server-layers", "yurt/server/resources/breach.py", "import yurt.server.clients.node_ports"),
    ("server-layers", "yurt/server/clients/breach.py", "import yurt.server.leadership.term"),
    ("server-layers", "yurt/server/leadership/breach.py", "import yurt.server.operations.jobs"),
    ("server-layers", "yurt/server/operations/breach.py", "import yurt.server.server"),
    ("sans-io", "yurt/scheduler/breach.py", "import asyncio"),
    ("jobspec-alone", "yurt_jobspec/breach.py", "import yurt.structs"),
    ("testing-not-shipped", "yurt/server/breach.py", "import yurt.testing"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages' sources, laid side by side where a breach may be written."""
    folder = tmp_path_factory.mktemp("copy")
    for name, path in PACKAGES.items():
        shutil.copytree(ROOT / path, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(folder: Path, contract: str) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the copy, which comes first on the path."""
    code = (
        "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command as c; "
        f"c(['--contract', '{contract}', '--no-cache'])"
    )
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=110, check=False
    )


@pytest.mark.parametrize("contract", sorted({contract for contract, _, _ in BREACHES}))
def test_each_breach_of_a_contract_is_seen(copy: Path, contract: str) -> None:
    breaches = {copy / place: line for of, place, line in BREACHES if of == contract}
    before = lint(copy, contract)

    for path, line in breaches.items():
        path.write_text(f'"""A breach."""\n\n{line}\n')
    try:
        after = lint(copy, contract)
    finally:
        for path in breaches:
            path.unlink()

    assert before.returncode == 0, before.stdout + before.stderr
    assert after.returncode == 1, after.stdout + after.stderr
    names = [".".join(path.relative_to(copy).with_suffix("").parts) for path in breaches]
    assert [name for name in names if name not in after.stdout.replace("\n", "")] == [], after.stdout
