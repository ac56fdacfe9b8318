"""The messages and services of CSI."""

from __future__ import annotations

from typing import Final

from yurt.runtime.proto_api import Message, ProtoApi, ProtoMethod

__all__ = ["Message", "ProtoMethod", "enum_name", "message_class", "methods"]

_API: Final = ProtoApi("yurt.client.csi", "csi.proto", "csi.v1")

enum_name, message_class, methods = _API.enum_name, _API.message_class, _API.methods
