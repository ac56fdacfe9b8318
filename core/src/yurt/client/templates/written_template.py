"""One template of a task with its written text: renders it again and writes its file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import blake2b

from yurt.client.task_env import node_values
from yurt.client.templates import files
from yurt.client.templates.context import TemplateContext
from yurt.client.templates.envfile import read_env
from yurt.client.templates.render_protocol import Question, QuestionAnswer, Rendered, RenderRequest
from yurt.client.templates.render_target import RenderTarget, TemplatePlace, node_addresses, text_of
from yurt.sdk.errors import Invalid
from yurt.sdk.templates import by_function

Answers = Mapping[Question, QuestionAnswer]


class WrittenTemplate:
    """One template with its last written text."""

    def __init__(self, target: RenderTarget, place: TemplatePlace, context: TemplateContext) -> None:
        self.target = target
        self.questions: tuple[Question, ...] = ()
        """The questions of its last rendering."""
        self.env: Mapping[str, str] = {}
        """The environment variables that it defines."""
        self.complaint = ""
        """The reason of the last failed rendering, as reported to the task."""
        self._digest: bytes | None = None
        self._place = place
        self._context = context

    @property
    def is_followed(self) -> bool:
        """Whether the template is rendered again when its answers change."""
        return not (self.target.template.once and self._digest is not None)

    def differs(self, output: bytes) -> bool:
        """Whether a text differs from the written one."""
        return _digest(output) != self._digest

    async def read_back(self) -> None:
        """Take the file of an earlier agent as the written text, because the task has read it."""
        body = await asyncio.to_thread(files.current, self.target.root, self.target.path)
        if body is None:
            return
        self._digest = _digest(body)
        try:
            self.env = self._env_of(body)
        except Invalid:
            self.env = {}

    async def render(self, answers: Answers) -> Rendered:
        """Render the template with these answers."""
        context, target, place = self._context, self.target, self._place
        try:
            text = await asyncio.to_thread(text_of, target, place, context.settings)
        except Invalid as error:
            return Rendered(error=str(error))
        request = RenderRequest(
            name=target.name,
            text=text,
            left=target.template.left_delim or "{{",
            right=target.template.right_delim or "}}",
            env={**node_values(context.node(), context.region), **place.env},
            namespace=place.namespace,
            is_missing_key_error=target.template.err_missing_key,
            denied=context.settings.denied_functions,
            provided=tuple(by_function(context.providers)),
            answers=tuple((question, answers[question]) for question in self.questions if question in answers),
            now=context.env.now(),
            addresses=await asyncio.to_thread(node_addresses) if b"sockaddr" in text else {},
        )
        rendered = await context.renderer.render(request)
        if not rendered.error:
            self.questions = rendered.asked
        return rendered

    async def write(self, body: bytes) -> None:
        """Write a text to the file, unless it is unchanged; raises Invalid."""
        target = self.target
        try:
            env = self._env_of(body)
            found = await asyncio.to_thread(files.current, target.root, target.path)
            if found != body:
                await asyncio.to_thread(
                    files.write, target.root, target.path, body, mode=target.mode, owner=target.owner
                )
        except Invalid as error:
            raise Invalid(f"Template failed: {target.name}: {error}") from None
        self.env = env
        self._digest = _digest(body)

    def _env_of(self, body: bytes) -> Mapping[str, str]:
        return read_env(body) if self.target.template.envvars else {}


def _digest(body: bytes) -> bytes:
    return blake2b(body, digest_size=16).digest()
