"""The package that docs/howto/write-a-hook.md and its neighbours show: the pages quote it whole, it imports only the
SDK, and its parts pass the conformance suites. e2e/test_site_tools.py runs jobs with it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from yurt.testing.page_package import lay_package, page_files

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "e2e" / "site_tools"
FILES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text()
    for path in PACKAGE.rglob("*.*")
    if path.is_file() and "__pycache__" not in path.parts  # the e2e tests have compiled it
}
PAGES = ("a-hook", "a-fingerprint", "a-command", "an-artifact-getter", "a-log-engine")
SOURCES = {name: text for name, text in FILES.items() if name.endswith((".toml", ".py"))}


def test_the_pages_quote_the_package() -> None:
    pages = [ROOT / "docs" / "howto" / f"write-{what}.md" for what in PAGES]
    quoted = {name: text for page in pages for name, text in page_files(page).items()}
    assert {name: text for name, text in quoted.items() if name.endswith((".toml", ".py"))} == SOURCES


def test_the_package_imports_only_the_sdk() -> None:
    text = "".join(text for name, text in SOURCES.items() if name.startswith("src/"))
    imported = set(re.findall(r"^(?:from|import) (yurt\.\S+)", text, re.MULTILINE))
    assert imported and all(name.startswith("yurt.sdk.") for name in imported)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package, on the path of what the test starts."""
    lay_package(PACKAGE, tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), *sys.path]))


@pytest.mark.usefixtures("installed")
def test_the_suites_of_the_package_pass(tmp_path: Path) -> None:
    options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", f"--rootdir={tmp_path}", "-c", os.devnull]
    command = [sys.executable, "-m", "pytest", *options, str(PACKAGE / "tests")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.usefixtures("installed")
def test_the_doctor_names_the_parts_of_the_package(tmp_path: Path) -> None:
    roles = {"server": {"enabled": True}, "client": {"enabled": True}}
    (tmp_path / "rack").write_text("row = 7\n")
    plugins = {"plugin": {"rack": {"config": {"file": str(tmp_path / "rack")}}}}
    config = {"data_dir": str(tmp_path / "data"), "bind_addr": "127.0.0.1", "ports": {"http": 0}, **roles, **plugins}
    path = tmp_path / "agent.json"
    path.write_text(json.dumps(config))

    command = [sys.executable, "-m", "yurt.cli.main", "doctor", "-json", "-config", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    found = {each["subject"]: (each["state"], each["detail"]) for each in json.loads(done.stdout)}
    assert found["task hook facts"] == ("ok", "is called right before configuration")
    assert found["allocation hook licences"] == ("ok", "is called last")
    assert found["service provider directory"] == ("ok", 'registers services with provider = "directory"')
    assert found["fingerprint rack"] == ("ok", "finds rack.row")
