"""The messages on the wire: as the real compiler makes them, and byte by byte as the encoding's rules give them."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from yurt.goplugin.messages import (
    BASE_SERVICE,
    DEVICE_SERVICE,
    DRIVER_SERVICE,
    DRIVERS,
    FILES,
    HCLSPEC,
    driver_message,
    message_class,
    methods,
    read_files,
)
from yurt.runtime.proto_text import json_name, read_proto


@pytest.mark.parametrize("name", FILES)
def test_our_reader_makes_what_the_compiler_makes(name: str, tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    folder = str(resources.files("yurt.goplugin") / "proto")
    well_known = str(resources.files("grpc_tools") / "_proto")
    out = tmp_path / "set"
    assert protoc.main(["protoc", f"-I{folder}", f"-I{well_known}", f"--descriptor_set_out={out}", name]) == 0
    compiled = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    ours = {file.name: file for file in read_files()}[name]
    assert ours == compiled


def test_an_exit_result_byte_by_byte() -> None:
    result = driver_message("ExitResult", exit_code=3, signal=9, oom_killed=True)
    assert result.SerializeToString() == bytes([0x08, 3, 0x10, 9, 0x18, 1])


def test_a_stop_byte_by_byte() -> None:
    request = driver_message("StopTaskRequest", task_id="a/b", timeout={"seconds": 5, "nanos": 500}, signal="SIGINT")
    duration = bytes([0x08, 5, 0x10, 0xF4, 0x03])
    expected = b"\x0a\x03a/b" + b"\x12" + bytes([len(duration)]) + duration + b"\x1a\x06SIGINT"
    assert request.SerializeToString() == expected


def test_a_task_config_byte_by_byte() -> None:
    config = driver_message(
        "TaskConfig", id="i", msgpack_driver_config=b"\x80", env={"A": "1"}, stdout_path="/o", parent_job_id="p"
    )
    expected = (
        b"\x0a\x01i" + b"\x1a\x01\x80" + b"\x22\x06\x0a\x01A\x12\x011" + b"\x5a\x02/o" + b"\xb2\x01\x01p"
    )  # tag 22 needs two bytes: 22 << 3 | 2 = 178 = 0xb2 0x01
    assert config.SerializeToString() == expected


def test_a_spec_byte_by_byte() -> None:
    spec = message_class(f"{HCLSPEC}.Spec")()
    spec.default.primary.Attr.name = "n"
    spec.default.primary.Attr.type = "bool"
    spec.default.default.literal.value = "true"
    attribute = b"\x0a\x01n\x12\x04bool"
    primary = b"\x1a" + bytes([len(attribute)]) + attribute
    literal = b"\x52\x06\x0a\x04true"
    body = b"\x0a" + bytes([len(primary)]) + primary + b"\x12" + bytes([len(literal)]) + literal
    assert spec.SerializeToString() == b"\x4a" + bytes([len(body)]) + body


def test_services_have_the_paths_and_streams_that_hosts_call() -> None:
    driver = methods(DRIVER_SERVICE)
    assert driver["StartTask"].path == f"/{DRIVERS}.Driver/StartTask"
    assert {name for name, each in driver.items() if each.server_streams} == {
        "Fingerprint", "TaskStats", "TaskEvents", "ExecTaskStreaming",
    }  # fmt: skip
    assert driver["ExecTaskStreaming"].client_streams
    assert set(methods(BASE_SERVICE)) == {"PluginInfo", "ConfigSchema", "SetConfig"}
    assert methods(DEVICE_SERVICE)["Reserve"].request.DESCRIPTOR.fields[0].name == "device_ids"


def test_unknown_types_are_a_defect_that_is_named() -> None:
    with pytest.raises(AssertionError, match="Nowhere"):
        read_proto("x.proto", 'syntax = "proto3"; package p; message M { Nowhere field = 1; }', {})


def test_names_for_json_are_the_compilers() -> None:
    assert [json_name(name) for name in ("task_id", "ID", "a_b_c")] == ["taskId", "ID", "aBC"]
