"""The messages and services of etcd's API."""

from __future__ import annotations

from typing import Final

from yurt.runtime.proto_api import Message, ProtoApi, ProtoMethod

__all__ = ["FILE", "Message", "ProtoMethod", "message", "message_class", "method"]

FILE: Final = "etcd.proto"
_API: Final = ProtoApi("yurt.storage.etcd", FILE, "etcdserverpb")

message, message_class, method = _API.message, _API.message_class, _API.method
