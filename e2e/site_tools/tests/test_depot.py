import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.sdk.artifacts import ArtifactGetter
from yurt.testing.suites.getter_suite import ArtifactGetterSuite


class TestDepot(ArtifactGetterSuite):
    address = "tools/hello.txt"
    missing = "tools/gone.txt"

    @pytest.fixture
    def depot(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            path.chmod(0o755)  # downloads run as nobody where the agent is root
            (path / "tools").mkdir()
            (path / "tools" / "hello.txt").write_text("hello\n")
            yield path

    @pytest.fixture
    def getter(self, depot: Path) -> ArtifactGetter:
        return ArtifactGetter(name="depot", function="yurt_site_tools.depot:download", config={"folder": str(depot)})

    @pytest.fixture
    def extra_paths(self, depot: Path) -> tuple[str, ...]:
        return (f"d:r:{depot}",)
