"""The import contracts hold, and each of them fails on a deliberate breach."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "yurt": "core/src/yurt",
    "yurt_jobspec": "jobspec/src/yurt_jobspec",
    **{
        f"yurt_driver_{name}": f"drivers/{name}/src/yurt_driver_{name}"
        for name in ("docker", "exec", "java", "mock", "qemu", "raw_exec")
    },
}
BREACHES = [
    ("layers", "yurt/state/breach.py", "import yurt.fsm"),
    ("scheduler-layers", "yurt/scheduler/placing/breach.py", "import yurt.scheduler.explain"),
    ("http-layers", "yurt/http/forwarding/breach.py", "import yurt.http.resources.job"),
    ("http-layers", "yurt/http/edge/breach.py", "import yurt.http.forwarding.forward"),
    ("http-layers", "yurt/http/cluster_routes/breach.py", "import yurt.http.agent_routes.agent"),
    ("sans-io", "yurt/scheduler/breach.py", "import asyncio"),
    ("jobspec-alone", "yurt_jobspec/breach.py", "import yurt.structs"),
    ("drivers-sdk-only", "yurt_driver_mock/breach.py", "import yurt.structs.job"),
    ("core-names-no-plugin", "yurt/client/breach.py", "import yurt_driver_mock"),
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


@pytest.mark.parametrize(("contract", "place", "line"), BREACHES)
def test_a_breach_of_a_contract_is_seen(copy: Path, contract: str, place: str, line: str) -> None:
    before = lint(copy, contract)

    (copy / place).write_text(f'"""A breach."""\n\n{line}\n')
    try:
        after = lint(copy, contract)
    finally:
        (copy / place).unlink()

    assert before.returncode == 0, before.stdout + before.stderr
    assert after.returncode == 1, after.stdout + after.stderr
    assert "breach" in after.stdout
