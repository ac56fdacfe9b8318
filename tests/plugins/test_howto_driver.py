"""The driver that docs/howto/write-a-driver.md makes: taken from the page, installed outside this checkout, and
used.

With hatchling at hand the package is built as a wheel by its own build backend, and the wheel is unpacked. Without it
(the checkout's own environment has none, and a test uses no network) the same files are laid out as an installer
would: the module, and a .dist-info folder with METADATA and entry_points.txt made from the page's pyproject.toml.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from yurt.testing.page_package import lay_package, page_files, write_sources

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "write-a-driver.md"
FILES = page_files(PAGE)
MODULE = "src/yurt_driver_script/__init__.py"
MODULE_LINES_MAX = 40

USE = """
import asyncio, os, sys
from yurt.plugins import PluginManager
from yurt.sdk.driver import AgentPaths, PluginContext, TaskDirs, TaskRequest, TaskResources
from yurt.sdk.schema import decode_config

async def main(folder):
    manager = PluginManager()
    paths = AgentPaths(state_dir=folder, run_dir=folder)
    loaded = manager.load(lambda name: PluginContext(dev=True, paths=paths))
    status = next(status for status in loaded.statuses if status.name == "script")
    print(status.state, status.distribution, status.version)
    driver = loaded.drivers["script"]
    print(sys.modules["yurt_driver_script"].__file__)
    request = TaskRequest(
        task_id="a/hello/0", alloc_id="a", task_name="hello", job_id="hello", group_name="hello", namespace="default",
        config=decode_config(driver.task_config, {"script": "echo hello from $NOMAD_TASK_NAME"}),
        env={"PATH": os.environ["PATH"], "NOMAD_TASK_NAME": "hello"},
        dirs=TaskDirs(
            alloc_dir=folder, shared_dir=folder, task_dir=folder, local_dir=folder, secrets_dir=folder, logs_dir=folder
        ),
        resources=TaskResources(memory_mb=64),
    )
    await driver.start_task(request)
    print((await driver.wait_task("a/hello/0")).exit_code)
    await driver.destroy_task("a/hello/0")
    await manager.close()

asyncio.run(main(sys.argv[1]))
"""


class Installed(NamedTuple):
    """The package: where its sources are, where it is installed, and how that was done."""

    sources: Path
    site: Path
    way: str


def build_wheel(sources: Path, site: Path) -> None:
    """Build with the package's own backend, and unpack."""
    code = "from hatchling.build import build_wheel; print(build_wheel('dist'))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=sources, capture_output=True, text=True, check=True)
    (sources / "dist").mkdir(exist_ok=True)
    with zipfile.ZipFile(sources / "dist" / answer.stdout.split()[-1]) as wheel:
        wheel.extractall(site)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The page's package, installed into a folder of its own."""
    sources, site = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("site") / "packages"
    write_sources(FILES, sources)
    if importlib.util.find_spec("hatchling"):
        build_wheel(sources, site)
        return Installed(sources, site, "wheel")
    lay_package(sources, site)
    return Installed(sources, site, "dist-info")


def run(installed: Installed, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter outside the checkout, with the package on its path."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed.site), *sys.path])}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=installed.sources,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_plugin_module_is_short() -> None:
    assert len(FILES[MODULE].splitlines()) < MODULE_LINES_MAX


def test_the_page_imports_only_the_sdk_and_the_public_test_kit() -> None:
    imported = set(re.findall(r"^(?:from|import) (yurt\.\S+)", "\n".join(FILES.values()), re.MULTILINE))
    assert {name for name in imported if not name.startswith("yurt.sdk.")} == {"yurt.testing.driver_suite"}


def test_the_driver_is_found_and_runs_a_task(installed: Installed, tmp_path: Path) -> None:
    answer = run(installed, "-c", USE, str(tmp_path))
    assert answer.returncode == 0, answer.stderr
    status, module, exit_code = answer.stdout.splitlines()
    assert status == "ok yurt-driver-script 0.1.0"
    assert Path(module).is_relative_to(installed.site)
    assert exit_code == "0"
    assert (tmp_path / "hello.stdout.0").read_text() == "hello from hello\n"


def test_the_driver_passes_the_suite_by_the_test_of_the_page(installed: Installed) -> None:
    answer = run(
        installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(installed.sources), "tests"
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert " passed" in answer.stdout
