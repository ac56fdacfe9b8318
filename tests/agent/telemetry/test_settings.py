"""The `telemetry` block: its values and its mistakes."""

from __future__ import annotations

import socket

import pytest
from yurt.agent.blocks.telemetry import host_and_port, telemetry_problems
from yurt.agent.config import make_config
from yurt.agent.telemetry.settings import sink_settings, telemetry_settings, trace_settings


def test_the_block_becomes_settings() -> None:
    made = telemetry_settings(
        make_config(
            {
                "telemetry": {
                    "prefix_filter": ["+nomad.nomad", "-nomad.raft"],
                    "filter_default": False,
                    "disable_hostname": True,
                    "publish_node_metrics": False,
                    "disable_allocation_hook_metrics": True,
                }
            },
            {},
            is_dev=True,
        )
    )
    published = (made.publishes_node, made.publishes_allocations, made.has_hook_metrics)
    assert (made.host, *published) == ("", False, True, False)
    assert made.prefixes == (("nomad.nomad", True), ("nomad.raft", False)) and not made.is_published


@pytest.mark.parametrize(
    ("given", "host"),
    [
        ({}, socket.gethostname()),
        ({"disable_hostname": True}, ""),
        ({"use_node_name": True}, "n1"),
        ({"use_node_name": True, "disable_hostname": True}, "n1"),
    ],
)
def test_the_label_host(given: dict[str, bool], host: str) -> None:
    config = make_config({"name": "n1", "telemetry": given}, {}, is_dev=True)
    assert telemetry_settings(config).host == host
    assert not sink_settings(config).is_used


def test_all_mistakes_are_told_at_once() -> None:
    found = telemetry_problems(
        {
            "prefix_filter": ["nomad.raft", "+ok"],
            "statsd_address": "host:port",
            "collection_interval": "0s",
        }
    )
    assert [problem.path[1] for problem in found] == [
        "prefix_filter",
        "statsd_address",
        "collection_interval",
    ]
    assert found[0].text == (
        'telemetry.prefix_filter[0]: "nomad.raft" must begin with + (publish) or - (leave out), '
        'for example "-nomad.raft".'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1:9125", ("10.0.0.1", 9125)),
        ("udp://stats", ("stats", 8125)),
        ("[::1]:99", ("::1", 99)),
        ("a:b", None),
        ("a/b", None),
    ],
)
def test_addresses_of_sinks(text: str, expected: tuple[str, int] | None) -> None:
    assert host_and_port(text, 8125) == expected


def test_the_collector_of_traces() -> None:
    block = {"endpoint": "http://127.0.0.1:4318/v1/traces", "sample_ratio": 0.5}
    assert telemetry_problems({"otlp": block}) == []
    made = trace_settings(make_config({"name": "n1", "telemetry": {"otlp": block}}, {}, is_dev=True))
    assert made is not None and (made.endpoint, made.sample_ratio) == (block["endpoint"], 0.5)
    assert made.resource["service.instance.id"] == "n1"
    assert trace_settings(make_config({}, {}, is_dev=True)) is None


def test_all_mistakes_about_the_collector_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.agent.blocks.telemetry.EXPORTER", "opentelemetry.no_such_exporter")
    found = telemetry_problems({"otlp": {"endpoint": "collector:4318", "ca_file": "/none.pem", "sample_ratio": 3.0}})
    assert [problem.path[1:] for problem in found] == [
        ("otlp", "endpoint"),
        ("otlp", "sample_ratio"),
        ("otlp", "ca_file"),
        ("otlp",),
    ]
    assert "pip install 'yurt[otlp]'" in found[-1].text and "/v1/traces" in found[0].text
    assert "needs an endpoint" in telemetry_problems({"otlp": {}})[0].text
