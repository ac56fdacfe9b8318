"""Fingerprints of clouds: facts from the metadata address of AWS, GCE, Azure and DigitalOcean, under Nomad's names.

The cloud of the machine is determined before any request (`yurt.client.fingerprint.fingerprints`), so that machines
outside of clouds do not send requests to a link-local address. Each request has a time limit, no answer delays the
agent's start, and a failure is reported and retried like that of any fingerprint (`PackageFingerprints`).

Values that cannot be attributes (longer than 1,024 characters or of several lines, such as start scripts and SSH keys)
are left out.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from yurt.sdk.errors import Invalid, Unavailable
from yurt.sdk.fingerprints import UNIQUE, VALUE_CHARACTERS_MAX, node_attributes

if TYPE_CHECKING:
    from aiohttp import ClientSession

REQUEST_LIMIT_S: Final = 2.0
ANSWER_BYTES_MAX: Final = 256 * 1024
TOKEN_TTL_S: Final = 60
AWS_FACTS: Final = (
    "ami-id", "instance-type", "instance-life-cycle", "placement/availability-zone", "unique.hostname",
    "unique.instance-id", "unique.local-hostname", "unique.local-ipv4", "unique.mac", "unique.public-hostname",
    "unique.public-ipv4", "unique.public-ipv6",
)  # fmt: skip
"""The paths of AWS metadata that are read; a slash of a path becomes a dot of the attribute."""

Facts = Mapping[str, str]


class Cloud(NamedTuple):
    """The metadata requests of one cloud."""

    address: str
    ask: Callable[[ClientSession, str], Awaitable[Facts]]


class CloudFingerprint:
    """Reads the metadata address of one cloud once."""

    def __init__(self, name: str, address: str = "") -> None:
        self._cloud = CLOUDS[name]
        self._excluded_by = f"env_{name}"
        self._address = (address or self._cloud.address).rstrip("/") + "/"
        self.name = f"platform.{name}"

    async def fingerprint(self) -> AsyncIterator[Facts]:
        """The facts, once; raises Unavailable when the address does not answer or is not the cloud's."""
        import aiohttp

        limit = aiohttp.ClientTimeout(total=REQUEST_LIMIT_S)
        try:
            async with aiohttp.ClientSession(timeout=limit, trust_env=False) as session:
                found = await self._cloud.ask(session, self._address)
            if not (found.get("unique.id") or found.get("unique.instance-id")):
                raise ValueError("the machine's id is missing")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, AttributeError, TypeError) as error:
            raise Unavailable(
                f"the metadata address {self._address} does not answer as expected: {error or 'time-out'} "
                f'(client.options "fingerprint.denylist" = "{self._excluded_by}" excludes this fingerprint)'
            ) from None
        yield dict(self._publishable(found))

    def _publishable(self, found: Facts) -> Iterator[tuple[str, str]]:
        for key, value in found.items():
            if not value or len(value) > VALUE_CHARACTERS_MAX or not value.isprintable():
                continue
            try:
                node_attributes(self.name, {key: value})
            except Invalid:  # a tag's name may hold any character
                continue
            yield key, value

    async def close(self) -> None:
        """Does nothing: the fingerprint has no resources."""


async def _read(session: ClientSession, url: str, headers: Facts | None = None) -> str:
    """The text of a metadata path; empty where the cloud does not have it."""
    async with session.get(url, headers=headers, allow_redirects=False) as answer:
        if answer.status == 404:
            return ""
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        data = await answer.content.read(ANSWER_BYTES_MAX)
    return data.decode("utf-8", "replace").strip()


async def _read_json(session: ClientSession, url: str, headers: Facts | None = None) -> dict[str, Any]:
    document = json.loads(await _read(session, url, headers))
    if not isinstance(document, dict):
        raise ValueError("the answer is not a JSON object")
    return document


async def _ask_aws(session: ClientSession, address: str) -> Facts:
    import aiohttp

    token = ""
    root = address.removesuffix("meta-data/")
    try:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
        async with session.put(f"{root}api/token", headers=headers, allow_redirects=False) as answer:
            token = (await answer.text()).strip() if answer.status == 200 else ""
    except (aiohttp.ClientError, TimeoutError):
        pass  # Version 1 of the service has no tokens; a hop limit of 1 drops them inside containers.
    shown = {"X-aws-ec2-metadata-token": token} if token else None
    found = {}
    for fact in AWS_FACTS:
        found[fact.replace("/", ".")] = await _read(session, address + fact.removeprefix(UNIQUE), shown)
    return found


async def _ask_gce(session: ClientSession, address: str) -> Facts:
    instance = await _read_json(session, f"{address}?recursive=true", {"Metadata-Flavor": "Google"})
    scheduling = instance.get("scheduling", {})
    found = {
        "unique.id": str(instance["id"]) if "id" in instance else "",
        "unique.hostname": str(instance.get("hostname", "")),
        "cpu-platform": str(instance.get("cpuPlatform", "")),
        "machine-type": str(instance.get("machineType", "")).rpartition("/")[2],
        "zone": str(instance.get("zone", "")).rpartition("/")[2],
        "scheduling.automatic-restart": str(scheduling.get("automaticRestart", "")),
        "scheduling.on-host-maintenance": str(scheduling.get("onHostMaintenance", "")),
    }
    for interface in instance.get("networkInterfaces", ()):
        network = str(interface.get("network", "")).rpartition("/")[2]
        found[f"network.{network}"] = "true"
        found[f"unique.network.{network}.ip"] = str(interface.get("ip", ""))
        for number, access in enumerate(interface.get("accessConfigs", ())):
            found[f"unique.network.{network}.external-ip.{number}"] = str(access.get("externalIp", ""))
    found |= {_tag(str(tag), "tag"): "true" for tag in instance.get("tags", ())}
    return found | {_tag(str(key), "attr"): str(value) for key, value in instance.get("attributes", {}).items()}


def _tag(name: str, kind: str) -> str:
    """The key of a tag or attribute; `unique.` at its beginning moves to the beginning of the key."""
    return f"{UNIQUE}{kind}.{name.removeprefix(UNIQUE)}" if name.startswith(UNIQUE) else f"{kind}.{name}"


async def _ask_azure(session: ClientSession, address: str) -> Facts:
    document = await _read_json(session, f"{address}?api-version=2019-06-04&format=json", {"Metadata": "true"})
    compute = document.get("compute", {})
    found = {
        "unique.id": compute.get("vmId", ""),
        "unique.name": compute.get("name", ""),
        "location": compute.get("location", ""),
        "resource-group": compute.get("resourceGroupName", ""),
        "scale-set": compute.get("vmScaleSetName", ""),
        "vm-size": compute.get("vmSize", ""),
        "zone": compute.get("zone", ""),
    }
    for interface in document.get("network", {}).get("interface", ())[:1]:
        found["unique.mac"] = interface.get("macAddress", "")
        for family in ("ipv4", "ipv6"):
            for each in interface.get(family, {}).get("ipAddress", ())[:1]:
                found[f"unique.local-{family}"] = each.get("privateIpAddress", "")
                found[f"unique.public-{family}"] = each.get("publicIpAddress", "")
    tags = compute.get("tagsList", ())
    return found | {_tag(str(tag["name"]), "tag"): str(tag.get("value", "")) for tag in tags}


async def _ask_digitalocean(session: ClientSession, address: str) -> Facts:
    document = await _read_json(session, address.removesuffix("/") + ".json")
    found = {
        "unique.id": str(document.get("droplet_id", "")),
        "unique.hostname": document.get("hostname", ""),
        "region": document.get("region", ""),
    }
    for kind in ("private", "public"):
        for interface in document.get("interfaces", {}).get(kind, ())[:1]:
            for family in ("ipv4", "ipv6"):
                found[f"unique.{kind}-{family}"] = interface.get(family, {}).get("ip_address", "")
            if kind == "public":
                found["unique.mac"] = interface.get("mac", "")
    return found


CLOUDS: Final[Mapping[str, Cloud]] = {
    "aws": Cloud("http://169.254.169.254/latest/meta-data/", _ask_aws),
    "azure": Cloud("http://169.254.169.254/metadata/instance/", _ask_azure),
    "digitalocean": Cloud("http://169.254.169.254/metadata/v1/", _ask_digitalocean),
    "gce": Cloud("http://169.254.169.254/computeMetadata/v1/instance/", _ask_gce),
}
