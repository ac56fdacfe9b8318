"""java does what every driver does, with real virtual machines: isolated by runc, and plain."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.testing.driver_suite import DriverCases, DriverFactory, DriverSuite
from yurt_driver_java.driver import java_driver, plain_driver

pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed (apt install default-jre-headless)"),
    pytest.mark.skipif(shutil.which("javac") is None, reason="javac is missing (apt install default-jdk-headless)"),
]
FAST = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx32m"]
SOURCE = """
import sun.misc.Signal;

public class Main {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "exit": System.exit(Integer.parseInt(args[1])); break;
            case "print": System.out.println(args[1]); break;
            case "flood":
                for (int i = 0; i < Integer.parseInt(args[1]) / 50; i++) System.out.println(String.format("%049d", i));
                break;
            case "stubborn":
                for (String name : new String[] {"TERM", "INT"}) Signal.handle(new Signal(name), signal -> {});
                System.out.println("deaf");
                Thread.sleep(1000000);
                break;
            case "catch":
                Signal.handle(new Signal("HUP"), signal -> System.out.println("caught"));
                System.out.println("ready");
                Thread.sleep(1000000);
                break;
            default: Thread.sleep(1000000);
        }
    }
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Main.class."""
    folder = tmp_path_factory.mktemp("java")
    (folder / "Main.java").write_text(SOURCE)
    compiler = ["javac", "-XDignore.symbol.file", "-nowarn", "Main.java"]
    subprocess.run(compiler, cwd=folder, check=True, capture_output=True)
    return folder


def cases_of(class_path: str) -> DriverCases:
    def main(*args: str) -> dict[str, object]:
        return {"class": "Main", "class_path": class_path, "jvm_options": FAST, "args": list(args)}

    return DriverCases(
        ends=lambda code: main("exit", str(code)),
        runs=main("wait"),
        prints=lambda text: main("print", text),
        floods=lambda size: main("flood", str(size)),
        ignores_signals=main("stubborn"),
        ignores_when="deaf",
        cannot_start={"args": ["x"]},
        start_error="jar_path",
        executes=main("wait"),
        catches=main("catch"),
        many=5,
    )


def shared_folder(folder: Path, compiled: Path) -> Path:
    """The tasks' shared folder, with the class in it."""
    shared = folder / "alloc" / "alloc"
    shared.mkdir(parents=True)
    shutil.copy(compiled / "Main.class", shared)
    return shared


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="isolation takes root on Linux")
@pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed (apt install runc)")
class TestIsolatedJava(DriverSuite):
    @pytest.fixture
    def make_driver(self) -> DriverFactory:
        return java_driver

    @pytest.fixture
    def cases(self, tmp_path: Path, compiled: Path) -> DriverCases:
        shared_folder(tmp_path, compiled)
        return cases_of("/alloc")


class TestPlainJava(DriverSuite):
    @pytest.fixture
    def tmp_path(self) -> Iterator[Path]:
        """A folder that a task may enter which runs as another user than pytest."""
        with tempfile.TemporaryDirectory(prefix="yurt-java-", ignore_cleanup_errors=True) as folder:
            Path(folder).chmod(0o755)
            yield Path(folder)

    @pytest.fixture
    def make_driver(self) -> DriverFactory:
        return plain_driver

    @pytest.fixture
    def cases(self, tmp_path: Path, compiled: Path) -> DriverCases:
        return cases_of(str(shared_folder(tmp_path, compiled)))
