"""Group networks with real agents, CNI plugins and engines: who reaches whom, and what is left on the host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.client.networks.settings import CNI_PATHS
from yurt.testing.agent import Agent, register, running_agent, wait_for
from yurt.testing.services.engines import DockerEngine, PodmanEngine, missing
from yurt.testing.unique_ports import free_ports, own_subnet

PLUGINS = next((folder for folder in CNI_PATHS if Path(folder, "bridge").exists()), "")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="network namespaces take root on Linux"),
    pytest.mark.skipif(not PLUGINS, reason="no CNI plugins are here (apt install containernetworking-plugins)"),
    pytest.mark.skipif(shutil.which("iptables") is None, reason="iptables is not installed (apt install iptables)"),
    pytest.mark.skipif(shutil.which("busybox") is None, reason="busybox is not installed (apt install busybox-static)"),
    pytest.mark.skipif(shutil.which("runc") is None, reason="runc is not installed (apt install runc)"),
]
(RUN, OWN_NET), (_, PAIRS_NET), (_, SIDE_NET) = (own_subnet() for _ in range(3))
"""Another run on this machine, or what is left of a killed one, has other names and addresses."""
BRIDGE, PAIRS, SIDE = (f"yurt-{name}{RUN}" for name in ("e2e", "pairs", "side"))
OWN_NET6 = f"fd72:7572:{0x4000 + RUN:x}"
SIDE_ADDRESS = f"{SIDE_NET}.1"
BOOKINGS = Path("/run/yurt/cni")
RECORDS = Path("/run/yurt/networks")
NAMESPACES = Path("/run/netns")
SECOND = 1_000_000_000
CYCLES = 12
NO_RESTART = {"Attempts": 0, "Mode": "fail", "Interval": 60 * SECOND, "Delay": SECOND}
HAS_IPV6 = Path("/proc/sys/net/ipv6/conf").exists() and shutil.which("ip6tables") is not None
BUSYBOX = shutil.which("busybox") or ""
SERVE = (
    'cd "$NOMAD_ALLOC_DIR"; echo "$NOMAD_TASK_NAME $NOMAD_ALLOC_ID" > index.html; '
    f"exec {BUSYBOX} httpd -f -p 0.0.0.0:8080"
)
SERVE_IPV6 = SERVE.replace("0.0.0.0", "[::]")


def task(name: str, driver: str, script: str, **more: Any) -> dict[str, Any]:
    config = {"command": "/bin/sh", "args": ["-c", script]}
    made = {"Name": name, "Driver": driver, "Config": config, "Resources": {"CPU": 20, "MemoryMB": 64}}
    return {**made, "KillTimeout": SECOND // 5, **more}


def job(job_id: str, network: dict[str, Any], *tasks: dict[str, Any], **group: Any) -> dict[str, Any]:
    made = {"Name": "g", "Count": 1, "Tasks": list(tasks), "Networks": [network], "RestartPolicy": NO_RESTART, **group}
    return {"ID": job_id, "Name": job_id, "Type": "service", "TaskGroups": [made]}


def bridge(*ports: dict[str, Any], **more: Any) -> dict[str, Any]:
    static = [port for port in ports if port.get("Value")]
    dynamic = [port for port in ports if not port.get("Value")]
    return {"Mode": "bridge", "ReservedPorts": static, "DynamicPorts": dynamic, **more}


def fetched(url: str) -> str | None:
    """The page, when somebody answers."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return str(answer.read().decode())
    except OSError:
        return None


def inside(agent: Agent, alloc: dict[str, Any], task_name: str, *command: str) -> str:
    """What a command says in a task, which may start later than the first task of its allocation."""

    def has_started() -> bool:
        states = agent.get(f"/v1/allocation/{alloc['ID']}")["TaskStates"]
        return states[task_name]["State"] != "pending"

    wait_for(f"the start of {task_name}", has_started)
    done = agent.cli("alloc", "exec", "-task", task_name, alloc["ID"], *command)
    return done.stdout + done.stderr


def asking(url: str) -> tuple[str, ...]:
    return (BUSYBOX, "wget", "-q", "-O", "-", url)


def whole(agent: Agent, alloc: dict[str, Any]) -> dict[str, Any]:
    """The allocation, when its address has been told."""

    def probe() -> dict[str, Any] | None:
        found: dict[str, Any] = agent.get(f"/v1/allocation/{alloc['ID']}")
        return found if (found["NetworkStatus"] or {}).get("Address") else None

    return wait_for("the address of an allocation", probe)


def port_of(agent: Agent, alloc: dict[str, Any], label: str) -> dict[str, Any]:
    ports = whole(agent, alloc)["AllocatedResources"]["Shared"]["Ports"]
    found: dict[str, Any] = next(port for port in ports if port["Label"] == label)
    return found


def traces(alloc_id: str) -> list[str]:
    """What of an allocation's network is on this host."""
    rules = [
        line
        for program in ("iptables-save", "ip6tables-save")
        for line in subprocess.run([program], capture_output=True, text=True, check=False).stdout.splitlines()
    ]
    found = [line for line in rules if alloc_id in line]
    return found + [str(path) for path in (NAMESPACES / alloc_id, RECORDS / alloc_id) if path.exists()]


def bookings(network: str) -> list[str]:
    """The addresses that are taken."""
    folder = BOOKINGS / network
    return [name for name in os.listdir(folder) if name[:1].isdigit()] if folder.is_dir() else []


def links() -> set[str]:
    """The interfaces of namespaces that are on the bridge of these tests; other agents of this host have their own."""
    command = ["ip", "-json", "link", "show", "master", BRIDGE]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {link["ifname"] for link in json.loads(told or "[]")}


def stopped(agent: Agent, job_id: str) -> None:
    """The job is over, and no trace of its networks is left."""
    allocs = agent.allocs(job_id)
    agent.call("DELETE", f"/v1/job/{job_id}?purge=true")
    for alloc in allocs:
        wait_for(f"no trace of {job_id}", lambda alloc=alloc: not traces(alloc["ID"]))


def agent_config(folder: Path, **client: Any) -> dict[str, Any]:
    """Ports of the loopback alone, and networks with names of their own."""
    (folder / "cni").mkdir(exist_ok=True)
    return {
        "client": {
            "enabled": True,
            "options": {"driver.raw_exec.enable": "1"},
            "network_interface": "lo",
            "bind_wildcard_default_host_network": False,
            "bridge_network_name": BRIDGE,
            "bridge_network_subnet": f"{OWN_NET}.0/24",
            "bridge_network_hairpin_mode": True,
            "cni_config_dir": str(folder / "cni"),
            **client,
        }
    }


def remove_networks() -> None:
    """The bridges of these tests, and their books."""
    for name in (BRIDGE, PAIRS, SIDE):
        subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)
        shutil.rmtree(BOOKINGS / name, ignore_errors=True)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("networks")
    config = agent_config(
        folder,
        bridge_network_subnet_ipv6=f"{OWN_NET6}::/64" if HAS_IPV6 else "",
        host_network={"side": {"interface": SIDE}, "absent": {"cidr": "198.51.100.0/24"}},
    )
    pairs = {
        "cniVersion": "1.0.0",
        "name": PAIRS,
        "plugins": [
            {
                "type": "ptp",
                "ipMasq": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(BOOKINGS),
                    "subnet": f"{PAIRS_NET}.0/24",
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
                "dns": {"nameservers": [f"{PAIRS_NET}.53"], "search": ["pairs.example"]},
            },
            {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
        ],
    }
    (folder / "cni" / "pairs.conflist").write_text(json.dumps(pairs))
    for command in (f"link add {SIDE} type bridge", f"address add {SIDE_ADDRESS}/24 dev {SIDE}", f"link set {SIDE} up"):
        subprocess.run(["ip", *command.split()], check=True)
    with running_agent(folder, data_dir=folder / "data", extra=config) as agent:
        yield agent
    remove_networks()


def test_a_node_offers_its_bridge_and_the_networks_of_the_configuration(agent: Agent) -> None:
    (node,) = agent.get("/v1/nodes")
    found = agent.get(f"/v1/node/{node['ID']}")
    modes = {network["Mode"] for network in found["NodeResources"]["Networks"]}
    assert {"host", "bridge", f"cni/{PAIRS}"} <= modes
    of_modes = {network["Mode"]: network for network in found["NodeResources"]["NodeNetworks"]}
    assert {"host", "bridge", f"cni/{PAIRS}"} <= of_modes.keys() and of_modes["bridge"]["Device"] == BRIDGE
    addresses = [
        (each["Alias"], each["Address"])
        for network in found["NodeResources"]["NodeNetworks"]
        for each in network["Addresses"] or ()
    ]
    assert ("default", found["Attributes"]["unique.network.ip-address"]) in addresses
    assert ("side", SIDE_ADDRESS) in addresses
    assert found["Attributes"]["plugins.cni.version.bridge"].startswith("v")
    assert found["Attributes"]["nomad.bridge.hairpin_mode"] == "true"


def test_tasks_of_a_group_share_a_loopback_and_answer_on_mapped_ports(agent: Agent) -> None:
    (static,) = free_ports(1)
    network = bridge({"Label": "fixed", "Value": static, "To": 8080}, {"Label": "web", "To": 8080}, Hostname="shop")
    register(agent, job("web", network, task("server", "raw_exec", SERVE), task("beside", "exec", "sleep 1000")))
    (alloc,) = agent.running("web", 1)
    status = whole(agent, alloc)["NetworkStatus"]
    assert status["Address"].startswith(f"{OWN_NET}.") and status["InterfaceName"] == "eth0"

    for label in ("fixed", "web"):
        port = port_of(agent, alloc, label)
        page = wait_for(
            f"an answer on {port['Value']}", lambda port=port: fetched(f"http://127.0.0.1:{port['Value']}/")
        )
        assert alloc["ID"] in page
    assert alloc["ID"] in inside(agent, alloc, "beside", *asking("http://127.0.0.1:8080/"))
    assert alloc["ID"] in inside(agent, alloc, "server", *asking("http://127.0.0.1:8080/"))
    told = inside(agent, alloc, "beside", "sh", "-c", "hostname; cat /etc/hosts; env")
    assert told.startswith("shop\n") and f"{status['Address']} shop" in told
    assert f"NOMAD_ALLOC_ADDR_web={status['Address']}:8080" in told and "NOMAD_PORT_web=8080" in told
    stopped(agent, "web")


def test_allocations_reach_each_other_and_themselves_by_the_ports_of_the_host(agent: Agent) -> None:
    register(agent, job("one", bridge({"Label": "web", "To": 8080}), task("server", "exec", SERVE)))
    register(agent, job("two", bridge(), task("client", "exec", "sleep 1000")))
    (one,), (two,) = agent.running("one", 1), agent.running("two", 1)
    address = whole(agent, one)["NetworkStatus"]["Address"]
    assert whole(agent, two)["NetworkStatus"]["Address"] != address
    wait_for("the server", lambda: fetched(f"http://{address}:8080/"))

    assert one["ID"] in inside(agent, two, "client", *asking(f"http://{address}:8080/"))
    assert one["ID"] in inside(agent, one, "server", *asking(f"http://{address}:8080/"))
    stopped(agent, "one")
    stopped(agent, "two")


def test_a_port_of_a_named_host_network_answers_there_alone_and_to_its_own_allocation(agent: Agent) -> None:
    network = bridge({"Label": "web", "To": 8080, "HostNetwork": "side"})
    register(agent, job("side", network, task("server", "exec", SERVE)))
    (alloc,) = agent.running("side", 1)
    port = port_of(agent, alloc, "web")
    assert port["HostIP"] == SIDE_ADDRESS
    url = f"http://{SIDE_ADDRESS}:{port['Value']}/"
    assert alloc["ID"] in wait_for("an answer", lambda: fetched(url))
    assert fetched(f"http://127.0.0.1:{port['Value']}/") is None
    assert alloc["ID"] in inside(agent, alloc, "server", *asking(url))
    stopped(agent, "side")


def test_a_host_network_without_an_address_is_not_offered(agent: Agent) -> None:
    (node,) = agent.get("/v1/nodes")
    assert list(agent.get(f"/v1/node/{node['ID']}")["HostNetworks"]) == ["side"]
    network = bridge({"Label": "web", "To": 8080, "HostNetwork": "absent"})
    assert 'missing host network "absent" for port' in plan_of(agent, network)


def test_a_group_without_network_has_a_loopback_and_nothing_else(agent: Agent) -> None:
    register(agent, job("alone", {"Mode": "none"}, task("server", "raw_exec", SERVE)))
    (alloc,) = agent.running("alone", 1)
    wait_for("its loopback", lambda: alloc["ID"] in inside(agent, alloc, "server", *asking("http://127.0.0.1:8080/")))
    assert inside(agent, alloc, "server", "ls", "/proc/self/net/dev_snmp6" if HAS_IPV6 else "/sys/class/net") in (
        "lo\n",
        "lo\r\n",
    )
    stopped(agent, "alone")


def test_a_cni_network_gives_addresses_ports_and_its_resolver(agent: Agent) -> None:
    network = bridge({"Label": "web", "To": 8080}) | {"Mode": f"cni/{PAIRS}", "CNI": {"Args": {"Colour": "green"}}}
    register(agent, job("pairs", network, task("server", "exec", SERVE)))
    (alloc,) = agent.running("pairs", 1)
    status = whole(agent, alloc)["NetworkStatus"]
    assert status["Address"].startswith(f"{PAIRS_NET}.") and status["DNS"]["Servers"] == [f"{PAIRS_NET}.53"]
    port = port_of(agent, alloc, "web")["Value"]
    assert alloc["ID"] in wait_for("an answer", lambda: fetched(f"http://127.0.0.1:{port}/"))
    assert f"nameserver {PAIRS_NET}.53\nsearch pairs.example\n" in inside(
        agent, alloc, "server", "cat", "/etc/resolv.conf"
    )
    stopped(agent, "pairs")
    assert not bookings(PAIRS)


def test_the_resolver_of_the_job_wins_in_every_mode(agent: Agent) -> None:
    dns = {"Servers": ["192.0.2.53"], "Searches": ["job.example"], "Options": ["ndots:2"]}
    for mode in ("bridge", "host"):
        register(agent, job(f"dns-{mode}", {"Mode": mode, "DNS": dns}, task("main", "exec", "sleep 1000")))
        (alloc,) = agent.running(f"dns-{mode}", 1)
        told = inside(agent, alloc, "main", "cat", "/etc/resolv.conf")
        assert "nameserver 192.0.2.53\nsearch job.example\noptions ndots:2\n" in told
        stopped(agent, f"dns-{mode}")


@pytest.mark.skipif(not HAS_IPV6, reason="this kernel has no IPv6")
def test_a_bridge_with_two_families_gives_both_addresses(agent: Agent) -> None:
    service = {"Name": "six", "Provider": "nomad", "PortLabel": "web", "AddressMode": "alloc_ipv6"}
    network = bridge({"Label": "web", "To": 8080})
    register(agent, job("six", network, task("server", "exec", SERVE_IPV6), Services=[service]))
    (alloc,) = agent.running("six", 1)
    address = whole(agent, alloc)["NetworkStatus"]["AddressIPv6"]
    assert address.startswith(f"{OWN_NET6}:")
    assert alloc["ID"] in wait_for("an answer by IPv6", lambda: fetched(f"http://[{address}]:8080/"))
    (instance,) = wait_for("the service", lambda: agent.get("/v1/service/six"))
    assert (instance["Address"], instance["Port"]) == (address, 8080)
    stopped(agent, "six")


def test_checks_and_services_use_the_address_of_the_allocation(agent: Agent) -> None:
    check = {"Type": "http", "Path": "/", "Interval": SECOND, "Timeout": SECOND, "AddressMode": "alloc"}
    service = {"Name": "shop", "Provider": "nomad", "PortLabel": "web", "AddressMode": "alloc", "Checks": [check]}
    network = bridge({"Label": "web", "To": 8080})
    register(agent, job("shop", network, task("server", "exec", SERVE), Services=[service]))
    (alloc,) = agent.running("shop", 1)
    (instance,) = wait_for("the service", lambda: agent.get("/v1/service/shop"))
    assert (instance["Address"], instance["Port"]) == (whole(agent, alloc)["NetworkStatus"]["Address"], 8080)

    def passes() -> bool:
        checks = agent.get(f"/v1/client/allocation/{alloc['ID']}/checks")
        return [each["Status"] for each in checks.values()] == ["success"]

    wait_for("the check", passes)
    stopped(agent, "shop")


def test_a_killed_agent_finds_the_same_namespace_again(tmp_path: Path) -> None:
    try:
        with running_agent(tmp_path, data_dir=tmp_path / "data", extra=agent_config(tmp_path)) as agent:
            network = bridge({"Label": "web", "To": 8080})
            register(agent, job("lasting", network, task("server", "exec", SERVE)))
            register(agent, job("ending", bridge(), task("main", "exec", "sleep 1000")))
            (alloc,), (other,) = agent.running("lasting", 1), agent.running("ending", 1)
            port = port_of(agent, alloc, "web")["Value"]
            wait_for("an answer", lambda: fetched(f"http://127.0.0.1:{port}/"))
            before = os.stat(NAMESPACES / alloc["ID"]).st_ino, whole(agent, alloc)["NetworkStatus"]

            agent.kill()
            wait_for("an answer without the agent", lambda: fetched(f"http://127.0.0.1:{port}/"))
            agent.start()

            (again,) = agent.running("lasting", 1)
            assert again["ID"] == alloc["ID"] and again["TaskStates"]["server"]["Restarts"] == 0
            assert (os.stat(NAMESPACES / alloc["ID"]).st_ino, whole(agent, alloc)["NetworkStatus"]) == before
            assert alloc["ID"] in wait_for("an answer again", lambda: fetched(f"http://127.0.0.1:{port}/"))
            restart = ("alloc", "restart", "-all-tasks", alloc["ID"])
            wait_for("the client to restart it", lambda: agent.cli(*restart).returncode == 0)
            wait_for("a second start", lambda: agent.allocs("lasting")[0]["TaskStates"]["server"]["Restarts"] == 1)
            assert os.stat(NAMESPACES / alloc["ID"]).st_ino == before[0]
            wait_for("an answer after a restart", lambda: fetched(f"http://127.0.0.1:{port}/"))
            stopped(agent, "lasting")
            stopped(agent, "ending")
            assert other["ID"] != alloc["ID"]
    finally:
        remove_networks()


def test_what_a_killed_dev_agent_left_goes_with_the_next_agent(tmp_path: Path, agent: Agent) -> None:
    gone = Agent(tmp_path, data_dir=None, extra=agent_config(tmp_path))
    gone.start()
    register(gone, job("left", bridge({"Label": "web", "To": 8080}), task("main", "exec", "sleep 1000")))
    (alloc,) = gone.running("left", 1)
    assert traces(alloc["ID"])
    gone.kill()

    (tmp_path / "next").mkdir()
    with running_agent(tmp_path / "next", data_dir=None, extra=agent_config(tmp_path / "next")):
        wait_for("no trace", lambda: not traces(alloc["ID"]))


def test_many_life_cycles_leave_nothing(agent: Agent) -> None:
    before = links(), bookings(BRIDGE)
    batch = job("many", bridge({"Label": "web", "To": 80}), task("main", "exec", "test -d /sys/class/net/eth0"))
    batch["Type"] = "batch"
    batch["TaskGroups"][0] |= {"Count": CYCLES, "EphemeralDisk": {"SizeMB": 20}}
    batch["TaskGroups"][0]["Tasks"][0] |= {
        "Resources": {"CPU": 1, "MemoryMB": 10},
        "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 1},
    }
    register(agent, batch)

    def all_complete() -> list[dict[str, Any]] | None:
        done = [alloc for alloc in agent.allocs("many") if alloc["ClientStatus"] == "complete"]
        return done if len(done) == CYCLES else None

    allocs = wait_for(f"{CYCLES} complete allocations", all_complete)
    assert not [trace for alloc in allocs for trace in traces(alloc["ID"])]
    assert (links(), bookings(BRIDGE)) == before
    stopped(agent, "many")


def plan_of(agent: Agent, network: dict[str, Any]) -> str:
    """What `job plan` says of a job with this network."""
    file = agent.folder / "asks.nomad.json"
    file.write_text(json.dumps({"Job": job("asks", network, task("main", "raw_exec", "true"))}))
    done = agent.cli("job", "plan", "-json", str(file))
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_plan_says_which_plugins_are_missing(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    config = agent_config(tmp_path, cni_path=str(empty))
    (tmp_path / "cni" / "broken.conflist").write_text("{")
    with running_agent(tmp_path, data_dir=None, extra=config) as agent:
        told = plan_of(agent, {"Mode": "bridge"})
        assert "missing network" in told and "CNI plugins bridge, firewall, portmap, host-local are in none of" in told
        assert "containernetworking-plugins" in told
        assert "broken.conflist is not JSON" in plan_of(agent, {"Mode": "cni/broken"})
        register(agent, job("waiting", {"Mode": "bridge"}, task("main", "raw_exec", "sleep 1000")))
        assert agent.allocs("waiting") == []

        for name in ("bridge", "host-local", "firewall", "portmap"):
            (empty / name).symlink_to(Path(PLUGINS) / name)
        agent.running("waiting", 1)
    remove_networks()


@pytest.mark.parametrize("driver", ["docker", "podman"])
def test_containers_and_processes_of_a_group_share_one_network(tmp_path: Path, driver: str) -> None:
    reason = (
        missing("dockerd", "containerd", "docker", "busybox") if driver == "docker" else missing("podman", "busybox")
    )
    if reason:
        pytest.skip(reason)
    engine = DockerEngine(tmp_path) if driver == "docker" else PodmanEngine(tmp_path)
    engine.start()
    try:
        engine.import_image()
        options = {"infra_image": engine.image} if driver == "docker" else {}
        address = (
            {"endpoint": engine.endpoint} if isinstance(engine, DockerEngine) else {"socket_path": str(engine.socket)}
        )
        extra = agent_config(tmp_path) | {"plugin": {driver: {"config": {**options, **address}}}}
        with running_agent(tmp_path, data_dir=tmp_path / "data", extra=extra) as agent:
            together(agent, engine, driver)
            if isinstance(engine, DockerEngine):
                advertised(agent, engine)
    finally:
        engine.stop()
        remove_networks()


def together(agent: Agent, engine: DockerEngine | PodmanEngine, driver: str) -> None:
    """A container that serves, and a process beside it; also over the death of the agent."""
    serve = 'mkdir /www; echo "$NOMAD_ALLOC_ID" > /www/index.html; exec httpd -f -p 8080 -h /www'
    container = task("server", driver, serve) | {
        "Config": {
            "image": engine.image, "command": "/bin/sh", "args": ["-c", serve], "extra_hosts": ["store.test:10.9.8.7"],
        }
    }  # fmt: skip
    network = bridge({"Label": "web", "To": 8080}, Hostname="shop")
    register(agent, job("mixed", network, container, task("beside", "exec", "sleep 1000")))
    (alloc,) = agent.running("mixed", 1)
    port = port_of(agent, alloc, "web")["Value"]
    assert alloc["ID"] in wait_for("an answer", lambda: fetched(f"http://127.0.0.1:{port}/"))
    assert alloc["ID"] in inside(agent, alloc, "beside", *asking("http://127.0.0.1:8080/"))
    address = whole(agent, alloc)["NetworkStatus"]["Address"]
    assert "shop\n127.0.0.1 localhost\n" in inside(
        agent, alloc, "server", "sh", "-c", "hostname; grep -h localhost /etc/hosts | head -1"
    )
    assert f"{address} shop" in inside(agent, alloc, "server", "cat", "/etc/hosts")
    for name in ("server", "beside"):
        assert "10.9.8.7 store.test" in inside(agent, alloc, name, "cat", "/etc/hosts")

    agent.kill()
    agent.start()
    agent.running("mixed", 1)
    assert alloc["ID"] in wait_for("an answer again", lambda: fetched(f"http://127.0.0.1:{port}/"))
    assert whole(agent, alloc)["NetworkStatus"]["Address"] == address
    stopped(agent, "mixed")
    wait_for("no container", lambda: not engine.containers())


def advertised(agent: Agent, engine: DockerEngine) -> None:
    """A container on the engine's own bridge whose service is known by its address there."""
    service = {"Name": "inner", "Provider": "nomad", "PortLabel": "8080", "AddressMode": "driver"}
    container = task("server", "docker", "") | {"Config": {"image": engine.image}, "Services": [service]}
    register(agent, job("inner", {"Mode": "host"}, container))
    agent.running("inner", 1)
    (instance,) = wait_for("the service", lambda: agent.get("/v1/service/inner"))
    ids = engine.containers()
    told = json.loads(engine.run("inspect", *ids).stdout)
    addresses = {each["NetworkSettings"]["Networks"].get("bridge", {}).get("IPAddress") for each in told}
    assert instance["Address"] in addresses and instance["Address"] and instance["Port"] == 8080
    stopped(agent, "inner")
