"""The fixtures of python-nomad's own tests; it becomes `tests/conftest.py` beside them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import nomad
import pytest

common = import_module("tests.common")


def client(**more: Any) -> Any:
    return nomad.Nomad(host=common.IP, port=common.NOMAD_PORT, verify=False, token=common.NOMAD_TOKEN, **more)


@pytest.fixture
def nomad_setup() -> Any:
    return client()


@pytest.fixture
def nomad_setup_with_namespace() -> Any:
    return client(namespace=common.NOMAD_NAMESPACE)
