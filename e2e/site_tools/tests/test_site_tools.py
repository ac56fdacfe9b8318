from collections.abc import Mapping
from pathlib import Path

import pytest
from yurt.sdk.hooks import AllocHook, TaskHook
from yurt.sdk.services import ServiceProvider
from yurt.testing.hook_suite import AllocHookSuite, ServiceProviderSuite, TaskHookSuite
from yurt_site_tools import ASKED, LICENCE, Directory, Facts, Licences


class TestFacts(TaskHookSuite):
    @pytest.fixture
    def hook(self) -> TaskHook:
        return Facts("here")

    @pytest.fixture
    def meta(self) -> Mapping[str, str]:
        return {ASKED: "long"}


class TestLicences(AllocHookSuite):
    @pytest.fixture
    def hook(self) -> AllocHook:
        return Licences({"cad": 1})

    @pytest.fixture
    def meta(self) -> Mapping[str, str]:
        return {LICENCE: "cad"}


class TestDirectory(ServiceProviderSuite):
    @pytest.fixture
    def provider(self, tmp_path: Path) -> ServiceProvider:
        return Directory(tmp_path)
