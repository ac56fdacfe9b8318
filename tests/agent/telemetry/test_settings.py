"""The `telemetry` block: its values and its mistakes."""

from __future__ import annotations

import socket

import pytest
from yurt.agent.blocks.telemetry import host_and_port, telemetry_problems
from yurt.agent.config import make_config
from yurt.agent.telemetry.settings import sink_settings, telemetry_settings


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
