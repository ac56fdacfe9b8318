"""Conformance suite for artifact getters: subclass it and provide the declaration.

    class TestMine(ArtifactGetterSuite):
        address = "tools/hello.txt"  # what it can download
        missing = "tools/gone.txt"   # what is not there

        @pytest.fixture
        def getter(self) -> ArtifactGetter:
            return ArtifactGetter(name="depot", function="my_package.depot:download")

The suite downloads in the confined process in which an agent does, so a getter that needs files outside of it, or
modules that it imports too late, fails here and not on a node.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from yurt.client.artifacts.fetch_request import ArtifactLimits, Fetch, PackageGetter
from yurt.client.artifacts.sources import parse_source
from yurt.client.artifacts.task_artifacts import fetch_one
from yurt.sdk.artifacts import FILE_KIND, ArtifactGetter, problem_of
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.sdk.value import replace

Download = Callable[..., Awaitable[None]]


class ArtifactGetterSuite:
    """The tests of an artifact getter's contract."""

    address: str
    """What the getter can download, without `name::`."""
    missing: str
    """An address that does not exist."""

    @pytest.fixture
    def getter(self) -> ArtifactGetter:
        """The getter under test; a subclass overrides this."""
        raise NotImplementedError

    @pytest.fixture
    def extra_paths(self) -> tuple[str, ...]:
        """Paths that the sandbox must allow: `client artifact.filesystem_isolation_extra_paths`."""
        return ()

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """An allocation's folder."""
        made = tmp_path / "alloc"
        (made / "task").mkdir(parents=True)
        return made

    @pytest.fixture
    def download(self, getter: ArtifactGetter, folder: Path, extra_paths: tuple[str, ...]) -> Download:
        """A function that downloads an address into the task's folder `got`."""

        async def run(address: str, **limits: int) -> None:
            bounds = ArtifactLimits(extra_paths=extra_paths, **limits)  # type: ignore[arg-type]
            await fetch_one(replace(self.fetch(getter, folder, address), limits=bounds))

        return run

    def fetch(self, getter: ArtifactGetter, folder: Path, address: str) -> Fetch:
        """A function that returns the download of an address."""
        return Fetch(
            source=parse_source(f"{getter.name}::{address}", {}, {getter.name: getter}),
            root=str(folder),
            own="task",
            destination="task/got",
            staging=str(folder / ".fetch"),
            package=PackageGetter(getter=getter, module_path=tuple(sys.path)),
        )

    def test_its_declaration_is_valid(self, getter: ArtifactGetter) -> None:
        assert problem_of(getter) == ""

    async def test_it_downloads_in_a_confined_process(self, download: Download, folder: Path) -> None:
        await download(self.address)
        assert [path for path in (folder / "task" / "got").rglob("*") if path.is_file()]
        assert sorted(os.listdir(folder)) == ["task"], "nothing but the artifact is left"

    async def test_what_is_missing_is_said_in_one_line(
        self, download: Download, getter: ArtifactGetter, folder: Path
    ) -> None:
        with pytest.raises((Invalid, RecoverableError)) as caught:
            await download(self.missing)
        text = str(caught.value)
        assert "\n" not in text and "Traceback" not in text and f"the getter {getter.name} failed" not in text
        assert not (folder / "task" / "got").exists()

    async def test_a_wrong_checksum_is_refused(self, download: Download, getter: ArtifactGetter) -> None:
        if getter.makes != FILE_KIND:
            pytest.skip("a folder has no checksum")
        with pytest.raises(RecoverableError, match="checksum"):
            await download(f"{self.address}?checksum=sha256:{'0' * 64}")

    async def test_what_is_too_large_is_refused(self, download: Download) -> None:
        with pytest.raises((Invalid, RecoverableError)):
            await download(self.address, http_max_bytes=1, unpacked_bytes_max=1)
