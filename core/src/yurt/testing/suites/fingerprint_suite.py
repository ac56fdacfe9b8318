"""Conformance suite for node fingerprints: subclass it and provide the object.

    class TestMine(NodeFingerprintSuite):
        @pytest.fixture
        def fingerprint(self) -> NodeFingerprint:
            return Mine()

The suite holds it to the contract that `yurt.sdk.fingerprints` writes down: it answers at once with valid attributes,
may be asked again, can be cancelled and never blocks the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from yurt.sdk.fingerprints import RESERVED, NodeFingerprint, node_attributes
from yurt.testing.suites.steps import NAME, kept

Answers = AsyncIterator[Mapping[str, str]]


class NodeFingerprintSuite:
    """The tests of a fingerprint's contract."""

    @pytest.fixture
    def fingerprint(self) -> NodeFingerprint:
        """The fingerprint under test, in a place where it finds something."""
        raise NotImplementedError

    def test_its_name_is_valid(self, fingerprint: NodeFingerprint) -> None:
        assert isinstance(fingerprint, NodeFingerprint)
        assert NAME.fullmatch(fingerprint.name) and fingerprint.name not in RESERVED

    async def test_it_answers_at_once_with_valid_attributes(self, fingerprint: NodeFingerprint) -> None:
        found = await kept(_first(fingerprint))
        assert found and node_attributes(fingerprint.name, found)
        await fingerprint.close()

    async def test_it_answers_again_when_it_is_asked_again(self, fingerprint: NodeFingerprint) -> None:
        first, second = await kept(_first(fingerprint)), await kept(_first(fingerprint))
        assert first and second and set(first) == set(second)
        await fingerprint.close()

    async def test_it_can_be_cancelled(self, fingerprint: NodeFingerprint) -> None:
        asking = asyncio.ensure_future(_all(fingerprint))
        await asyncio.sleep(0.05)
        asking.cancel()
        done, _ = await asyncio.wait({asking}, timeout=10)
        assert done
        await fingerprint.close()
        await fingerprint.close()


async def _first(fingerprint: NodeFingerprint) -> Mapping[str, str]:
    answers = fingerprint.fingerprint()
    try:
        return await anext(answers)
    finally:
        await _end(answers)


async def _all(fingerprint: NodeFingerprint) -> None:
    async for _ in fingerprint.fingerprint():
        pass


async def _end(answers: Answers) -> None:
    if hasattr(answers, "aclose"):
        await answers.aclose()
