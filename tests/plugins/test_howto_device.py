"""The device plugin that docs/howto/write-a-device-plugin.md makes: taken from the page, installed, and tested by the
page's own test.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from yurt.testing.page_package import lay_package, page_files, write_sources

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "write-a-device-plugin.md"
FILES = page_files(PAGE)
MODULE = "src/yurt_device_serial/__init__.py"
MODULE_LINES_MAX = 60

USE = """
import asyncio, os, sys
from yurt.plugins import PluginManager
from yurt.sdk.driver import PluginContext

async def main(folder):
    manager = PluginManager()
    loaded = manager.load(lambda name: PluginContext(), configs={"serial": {"folder": folder}})
    status = next(status for status in loaded.statuses if status.name == "serial")
    print(status.state, status.distribution, status.devices)
    async for found in loaded.devices["serial"].fingerprint():
        print([each.id for group in found.groups for each in group.instances])
        break
    await manager.close()

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The page's sources, and the folder into which they are laid as an installer would."""
    sources, site = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("site") / "packages"
    write_sources(FILES, sources)
    lay_package(sources, site)
    return sources, site


def run(package: tuple[Path, Path], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter outside the checkout, with the package on its path."""
    sources, site = package
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    return subprocess.run(
        [sys.executable, *arguments], cwd=sources, env=env, capture_output=True, text=True, timeout=100, check=False
    )


def test_the_plugin_module_is_short() -> None:
    assert len(FILES[MODULE].splitlines()) < MODULE_LINES_MAX


def test_the_page_imports_only_the_sdk_and_the_public_test_kit() -> None:
    imported = set(re.findall(r"^(?:from|import) (yurt\.\S+)", "\n".join(FILES.values()), re.MULTILINE))
    assert {name for name in imported if not name.startswith("yurt.sdk.")} == {"yurt.testing.device_suite"}


def test_the_plugin_is_found_and_offers_what_is_plugged_in(package: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "usb-one").symlink_to("/dev/null")
    answer = run(package, "-c", USE, str(tmp_path))

    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.splitlines() == ["ok yurt-device-serial ('serial',)", "['usb-one']"]


def test_the_plugin_passes_the_suite_by_the_test_of_the_page(package: tuple[Path, Path]) -> None:
    answer = run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(package[0]), "tests")

    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert re.search(r"\d+ passed", answer.stdout)
    assert "skipped" not in answer.stdout
