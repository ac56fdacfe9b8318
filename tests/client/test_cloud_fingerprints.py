"""Fingerprints of clouds, with their metadata addresses served on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yurt.client.fingerprint import clouds
from yurt.client.fingerprint.clouds import CloudFingerprint
from yurt.client.fingerprint.fingerprints import clouds_of
from yurt.sdk.errors import Unavailable
from yurt.sdk.fingerprints import node_attributes
from yurt.testing.fakes import FakeServerPort, eventually

from .conftest import MakeClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]
AWS: Mapping[str, str] = {
    "ami-id": "ami-1", "instance-type": "m7g.large", "instance-life-cycle": "spot",
    "placement/availability-zone": "eu-west-1a", "instance-id": "i-07", "hostname": "ip-10-0-0-7", "mac": "02:00",
    "local-ipv4": "10.0.0.7", "public-ipv4": "203.0.113.7",
}  # fmt: skip
GCE: Mapping[str, Any] = {
    "id": 7, "hostname": "a.internal", "cpuPlatform": "Intel Ice Lake", "machineType": "projects/1/machineTypes/n2",
    "zone": "projects/1/zones/europe-west1-b", "scheduling": {"automaticRestart": "TRUE"},
    "networkInterfaces": [{"network": "p/networks/default", "ip": "10.0.0.7",
                           "accessConfigs": [{"externalIp": "203.0.113.7"}]}],
    "tags": ["web", "unique.rack"],
    "attributes": {"team": "shop", "ssh-keys": "anna:ssh-ed25519 A\nbob:ssh-ed25519 B", "a b": "c", "long": "x" * 2000},
}  # fmt: skip
AZURE: Mapping[str, Any] = {
    "compute": {"vmId": "v-7", "name": "vm7", "location": "westeurope", "vmSize": "D2", "zone": "1",
                "tagsList": [{"name": "team", "value": "shop"}]},
    "network": {"interface": [{"macAddress": "00AA", "ipv4": {"ipAddress": [
        {"privateIpAddress": "10.0.0.7", "publicIpAddress": "203.0.113.7"}]}, "ipv6": {"ipAddress": []}}]},
}  # fmt: skip
DROPLET: Mapping[str, Any] = {
    "droplet_id": 7, "hostname": "d7", "region": "ams3",
    "interfaces": {"public": [{"ipv4": {"ip_address": "203.0.113.7"}, "mac": "04:01"}],
                   "private": [{"ipv4": {"ip_address": "10.0.0.7"}}]},
}  # fmt: skip


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves a metadata address; its URL."""
    servers: list[TestServer] = []

    async def start(handler: Handler) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        server = TestServer(app)
        await server.start_server()
        servers.append(server)
        return str(server.make_url("/"))

    yield start
    for server in servers:
        await server.close()


async def found(name: str, address: str) -> dict[str, str]:
    fingerprint = CloudFingerprint(name, address)
    async for each in fingerprint.fingerprint():
        return node_attributes(fingerprint.name, each)
    raise AssertionError("no answer")


def json_at(path: str, header: str, document: Mapping[str, Any]) -> Handler:
    """Answers only what has the header that keeps forged requests out, under one path."""

    async def answer(request: web.Request) -> web.Response:
        is_meant = request.path == path and (not header or header in request.headers)
        return web.json_response(document) if is_meant else web.Response(status=403)

    return answer


def aws(*, has_tokens: bool) -> Handler:
    async def answer(request: web.Request) -> web.Response:
        if request.method == "PUT":
            is_right = has_tokens and request.path == "/latest/api/token"
            return web.Response(text="secret") if is_right else web.Response(status=404)
        if has_tokens and request.headers.get("X-aws-ec2-metadata-token") != "secret":
            return web.Response(status=401)
        value = AWS.get(request.path.removeprefix("/latest/meta-data/"))
        return web.Response(status=404) if value is None else web.Response(text=value + "\n")

    return answer


@pytest.mark.parametrize("has_tokens", [True, False])
async def test_aws_is_asked_with_a_token_where_it_gives_one(serve: Serve, has_tokens: bool) -> None:
    address = await serve(aws(has_tokens=has_tokens))
    assert await found("aws", f"{address}latest/meta-data/") == {
        "platform.aws.ami-id": "ami-1",
        "platform.aws.instance-type": "m7g.large",
        "platform.aws.instance-life-cycle": "spot",
        "platform.aws.placement.availability-zone": "eu-west-1a",
        "unique.platform.aws.hostname": "ip-10-0-0-7",
        "unique.platform.aws.instance-id": "i-07",
        "unique.platform.aws.local-ipv4": "10.0.0.7",
        "unique.platform.aws.mac": "02:00",
        "unique.platform.aws.public-ipv4": "203.0.113.7",
    }


async def test_gce_gives_tags_networks_and_attributes_but_no_long_texts(serve: Serve) -> None:
    assert await found("gce", await serve(json_at("/", "Metadata-Flavor", GCE))) == {
        "unique.platform.gce.id": "7",
        "unique.platform.gce.hostname": "a.internal",
        "platform.gce.cpu-platform": "Intel Ice Lake",
        "platform.gce.machine-type": "n2",
        "platform.gce.zone": "europe-west1-b",
        "platform.gce.scheduling.automatic-restart": "TRUE",
        "platform.gce.network.default": "true",
        "unique.platform.gce.network.default.ip": "10.0.0.7",
        "unique.platform.gce.network.default.external-ip.0": "203.0.113.7",
        "platform.gce.tag.web": "true",
        "unique.platform.gce.tag.rack": "true",
        "platform.gce.attr.team": "shop",
    }


async def test_azure_gives_its_size_place_addresses_and_tags(serve: Serve) -> None:
    assert await found("azure", await serve(json_at("/", "Metadata", AZURE))) == {
        "unique.platform.azure.id": "v-7",
        "unique.platform.azure.name": "vm7",
        "platform.azure.location": "westeurope",
        "platform.azure.vm-size": "D2",
        "platform.azure.zone": "1",
        "unique.platform.azure.mac": "00AA",
        "unique.platform.azure.local-ipv4": "10.0.0.7",
        "unique.platform.azure.public-ipv4": "203.0.113.7",
        "platform.azure.tag.team": "shop",
    }


async def test_digitalocean_gives_region_and_addresses(serve: Serve) -> None:
    address = await serve(json_at("/metadata/v1.json", "", DROPLET))
    assert await found("digitalocean", f"{address}metadata/v1/") == {
        "unique.platform.digitalocean.id": "7",
        "unique.platform.digitalocean.hostname": "d7",
        "platform.digitalocean.region": "ams3",
        "unique.platform.digitalocean.mac": "04:01",
        "unique.platform.digitalocean.private-ipv4": "10.0.0.7",
        "unique.platform.digitalocean.public-ipv4": "203.0.113.7",
    }


@pytest.mark.parametrize("cloud", ["aws", "azure", "digitalocean", "gce"])
@pytest.mark.parametrize(("status", "text"), [(500, "broken"), (200, "[]"), (200, '{"compute": 7, "scheduling": 7}')])
async def test_an_address_of_something_else_is_a_failure(serve: Serve, cloud: str, status: int, text: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        is_aws = cloud == "aws"
        return web.Response(status=404 if is_aws and status == 200 else status, text=text)

    with pytest.raises(Unavailable, match=f'does not answer as expected: .*"env_{cloud}" excludes'):
        await found(cloud, await serve(answer))


def test_the_cloud_is_known_by_its_firmware_or_by_a_variable(tmp_path: Path) -> None:
    assert clouds_of({}, tmp_path / "none") == {}
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n")
    assert clouds_of({}, tmp_path) == {"aws": ""}
    (tmp_path / "sys_vendor").write_text("QEMU\n")
    (tmp_path / "chassis_asset_tag").write_text("7783-7084-3265-9085-8269-3286-77\n")
    assert clouds_of({"GCE_ENV_URL": "http://127.0.0.1/"}, tmp_path) == {"azure": "", "gce": "http://127.0.0.1/"}


async def test_a_node_gets_the_facts_later_and_does_not_wait_for_them(
    run_client: MakeClient, server: FakeServerPort, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clouds, "REQUEST_LIMIT_S", 60.0)
    may_answer = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        await may_answer.wait()
        return web.json_response(DROPLET)

    monkeypatch.setenv("DO_ENV_URL", await serve(answer) + "metadata/v1/")
    async with run_client() as client:
        assert client.is_ready
        assert not platform(server)
        may_answer.set()
        await eventually(lambda: platform(server).get("platform.digitalocean.region") == "ams3")


async def test_an_excluded_cloud_is_not_asked(
    run_client: MakeClient, server: FakeServerPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DO_ENV_URL", "http://127.0.0.1:9/")
    async with run_client(options={"fingerprint.denylist": "env_digitalocean"}):
        assert not platform(server)


def platform(server: FakeServerPort) -> dict[str, str]:
    (node,) = server.nodes.values()
    return {name: value for name, value in node.attributes.items() if "platform" in name}
