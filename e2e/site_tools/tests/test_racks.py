from types import ModuleType

import pytest
from yurt.testing.suites.command_suite import CommandSuite
from yurt_site_tools import racks


class TestRacks(CommandSuite):
    word = "racks"

    @pytest.fixture
    def module(self) -> ModuleType:
        return racks
