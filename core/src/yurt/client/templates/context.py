"""State shared by the templates of all tasks of a client."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from yurt.client.ports import ServerPort
from yurt.client.templates.renderer import Renderer
from yurt.client.templates.settings import TemplateSettings
from yurt.runtime.env import Env
from yurt.sdk.templates import TemplateProvider
from yurt.structs.node import Node


class TemplateContext(msgspec.Struct, frozen=True, kw_only=True):
    """`node` answers with the node as it is now; `providers` are template providers by name."""

    settings: TemplateSettings
    providers: Mapping[str, TemplateProvider]
    region: str
    env: Env
    node: Callable[[], Node]
    server: ServerPort
    renderer: Renderer = msgspec.field(default_factory=Renderer)
