"""Conformance suite for template providers: subclass it and provide a provider and calls that it can answer.

class TestMine(TemplateProviderSuite):
    @pytest.fixture
    def provider(self) -> TemplateProvider:
        return yurt_template_providers(PluginContext())[0]

    @pytest.fixture
    def asks(self) -> tuple[TemplateAsk, ...]:
        return (TemplateAsk(function="mine_get", arguments=("app/limit",)),)
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import msgspec
import pytest

from yurt.sdk.errors import YurtError
from yurt.sdk.templates import ANSWER_MAX_BYTES, TemplateAnswer, TemplateAsk, TemplateProvider, problem_of

ANSWER_LIMIT_S = 30.0


class TemplateProviderSuite:
    """The tests of a template provider's contract."""

    @pytest.fixture
    def provider(self) -> TemplateProvider:
        """The provider under test, connected to its source or to a fake of it."""
        raise NotImplementedError

    @pytest.fixture
    def asks(self) -> tuple[TemplateAsk, ...]:
        """Calls that the provider can answer."""
        raise NotImplementedError

    def test_its_functions_have_possible_names(self, provider: TemplateProvider) -> None:
        assert isinstance(provider, TemplateProvider)
        assert problem_of(provider) == ""

    async def test_every_call_is_answered_within_bounds(
        self, provider: TemplateProvider, asks: tuple[TemplateAsk, ...]
    ) -> None:
        assert {ask.function for ask in asks} <= set(provider.functions)
        for ask in asks:
            answer = await _first(provider, ask)
            assert isinstance(answer, TemplateAnswer)
            assert len(msgspec.msgpack.encode(answer.data)) <= ANSWER_MAX_BYTES
        await provider.close()

    async def test_a_call_without_arguments_is_answered_or_refused(
        self, provider: TemplateProvider, asks: tuple[TemplateAsk, ...]
    ) -> None:
        for ask in asks:
            try:
                await _first(provider, msgspec.structs.replace(ask, arguments=()))
            except YurtError as error:
                assert str(error)
        await provider.close()

    async def test_several_tasks_may_ask_the_same_and_stop_asking(
        self, provider: TemplateProvider, asks: tuple[TemplateAsk, ...]
    ) -> None:
        first, second = await asyncio.gather(_first(provider, asks[0]), _first(provider, asks[0]))
        assert first == second
        await provider.close()


async def _first(provider: TemplateProvider, ask: TemplateAsk) -> TemplateAnswer:
    """The first answer; then the caller stops asking."""
    async with asyncio.timeout(ANSWER_LIMIT_S), aclosing(provider.watch(ask)) as answers:
        return await anext(answers)
