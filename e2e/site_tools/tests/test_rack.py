from pathlib import Path

import pytest
from yurt.sdk.fingerprints import NodeFingerprint
from yurt.testing.suites.fingerprint_suite import NodeFingerprintSuite
from yurt_site_tools.rack import Rack


class TestRack(NodeFingerprintSuite):
    @pytest.fixture
    def fingerprint(self, tmp_path: Path) -> NodeFingerprint:
        (tmp_path / "rack").write_text("row = 7\nunique.slot = 12\n")
        return Rack(tmp_path / "rack")
