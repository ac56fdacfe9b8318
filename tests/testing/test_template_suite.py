"""A provider that keeps the contract passes the suite of template providers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from yurt.sdk.errors import Invalid
from yurt.sdk.templates import TemplateAnswer, TemplateAsk, TemplateProvider
from yurt.testing.template_suite import TemplateProviderSuite


class Lengths:
    """Answers the length of a text."""

    name = "lengths"
    functions = ("lengths_of",)

    async def watch(self, ask: TemplateAsk) -> AsyncGenerator[TemplateAnswer, None]:
        if len(ask.arguments) != 1:
            raise Invalid("lengths_of wants one argument")
        yield TemplateAnswer(data=len(ask.arguments[0]))
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Nothing is held."""


class TestLengths(TemplateProviderSuite):
    """The suite on a provider of this test."""

    @pytest.fixture
    def provider(self) -> TemplateProvider:
        return Lengths()

    @pytest.fixture
    def asks(self) -> tuple[TemplateAsk, ...]:
        return (TemplateAsk(function="lengths_of", arguments=("four",)),)


async def test_a_provider_that_answers_more_than_it_may_fails_the_suite() -> None:
    class Large(Lengths):
        async def watch(self, ask: TemplateAsk) -> AsyncGenerator[TemplateAnswer, None]:
            yield TemplateAnswer(data="x" * (2 * 1024 * 1024))

    with pytest.raises(AssertionError):
        await TemplateProviderSuite().test_every_call_is_answered_within_bounds(
            Large(), (TemplateAsk(function="lengths_of", arguments=("four",)),)
        )
