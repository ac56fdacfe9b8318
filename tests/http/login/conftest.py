"""An API with access control, and a provider that it trusts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from yurt.testing.login.site import Site, login_site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """An API with a policy `deploy`."""
    async with login_site(tmp_path) as made:
        yield made
