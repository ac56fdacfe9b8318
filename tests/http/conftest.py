"""A real server over a memory log, with the HTTP application on a loopback port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from yurt.testing.http_api import Api, add_ready_node, serving


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """The application over a leading server without nodes."""
    async with serving() as found:
        yield found


@pytest.fixture
async def api_with_node(api: Api) -> Api:
    """The same with one ready node."""
    await add_ready_node(api)
    return api
