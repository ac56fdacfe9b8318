"""Agents that speak to each other and to users by TLS, with certificates that `yurt tls` made."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, wait_for, yurt
from yurt.testing.unique_ports import free_ports


class TlsAgent(Agent):
    """An agent that takes users with a certificate only: it is asked by the command line."""

    keys: Path

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "NOMAD_ADDR": self.address.replace("http://", "https://"),
            "NOMAD_CACERT": str(self.keys / "nomad-agent-ca.pem"),
            "NOMAD_CLIENT_CERT": str(self.keys / "global-cli-nomad.pem"),
            "NOMAD_CLIENT_KEY": str(self.keys / "global-cli-nomad-key.pem"),
        }

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        return "ready at https://" in self.log.read_text()

    def json(self, *words: str) -> Any:
        """The answer of a command that prints JSON."""
        done = self.cli(*words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority and three certificates."""
    folder = tmp_path_factory.mktemp("keys")
    for words in (["ca", "create"], *(["cert", "create", f"-{role}"] for role in ("server", "client", "cli"))):
        yurt("tls", *words, cwd=folder).check_returncode()
    return folder


def make_agent(folder: Path, keys: Path, role: str, rpc: int, **blocks: Any) -> TlsAgent:
    """A server or a client with its certificate."""
    (folder / role).mkdir()
    tls = {
        "http": True,
        "rpc": True,
        "verify_https_client": True,
        "ca_file": str(keys / "nomad-agent-ca.pem"),
        "cert_file": str(keys / f"global-{role}-nomad.pem"),
        "key_file": str(keys / f"global-{role}-nomad-key.pem"),
    }
    agent = TlsAgent(folder / role, data_dir=folder / role / "data", name=role, extra={"tls": tls} | blocks)
    config = json.loads(agent.config.read_text())
    if role == "server":
        config["ports"]["rpc"] = rpc
    agent.config.write_text(json.dumps(config))
    agent.keys = keys
    return agent


def assert_clients_reach_nothing_that_rules_the_cluster(server: TlsAgent, client: TlsAgent) -> None:
    """The role of a client's certificate is that of its node, whoever asks its agent."""
    for words in (("operator", "root", "keyring", "list"), ("node", "intro", "create")):
        assert server.cli(*words).returncode == 0, words
        refused = client.cli(*words)
        assert refused.returncode == 1 and "ask a server at its own HTTP address" in refused.stderr, words


def test_agents_and_users_speak_by_tls_only(tmp_path: Path, keys: Path) -> None:
    (rpc,) = free_ports(1)
    server = make_agent(tmp_path, keys, "server", rpc, server={"enabled": True}, client={"enabled": False})
    client_block = {
        "enabled": True, "servers": [f"127.0.0.1:{rpc}"], "options": {"driver.raw_exec.enable": "1"},
    }  # fmt: skip
    client = make_agent(tmp_path, keys, "client", rpc, server={"enabled": False}, client=client_block)
    try:
        server.start()
        client.start()
        wait_for("a ready node", lambda: [n["Status"] for n in client.json("node", "status", "-json")] == ["ready"])
        job = tmp_path / "job.json"
        job.write_text(json.dumps({"Job": raw_exec_job("web", "/bin/sh", "-c", "echo hello; exec sleep 300")}))
        assert client.cli("job", "run", "-json", "-detach", str(job)).returncode == 0
        alloc = wait_for("an allocation", lambda: server.json("job", "allocs", "-json", "web"))[0]["ID"]
        wait_for("its output", lambda: server.cli("alloc", "logs", alloc).stdout == "hello\n")
        for agent in (server, client):
            said = agent.cli("alloc", "exec", "-t=false", alloc, "/bin/echo", "by TLS")
            assert (said.returncode, said.stdout) == (0, "by TLS\n"), said.stderr
        assert_clients_reach_nothing_that_rules_the_cluster(server, client)
        assert_nobody_else_is_let_in(server, keys, rpc)
        assert_a_renewed_certificate_counts(server, keys)
        assert server.cli("job", "stop", "-purge", "web").returncode == 0
    finally:
        client.interrupt()
        server.interrupt()


def assert_nobody_else_is_let_in(server: TlsAgent, keys: Path, rpc: int) -> None:
    """Neither without a certificate, nor with one whose name has no role, nor in plain text."""
    bare = {name: value for name, value in server.environment().items() if "CLIENT" not in name}
    refused = yurt("node", "status", cwd=server.folder, env=bare)
    assert refused.returncode == 1
    assert "certificate" in refused.stderr.lower()
    plain = yurt("node", "status", "-address", server.address, cwd=server.folder, env=bare)
    assert plain.returncode == 1
    wrong = make_agent(
        server.folder.parent / "server", keys, "client", rpc,
        server={"enabled": False}, client={"enabled": True, "servers": [f"127.0.0.1:{rpc}"]},
    )  # fmt: skip
    config = json.loads(wrong.config.read_text())
    config["tls"] |= {
        "cert_file": str(keys / "global-cli-nomad.pem"),
        "key_file": str(keys / "global-cli-nomad-key.pem"),
    }
    wrong.config.write_text(json.dumps(config))
    wrong.spawn()
    try:
        reason = "the certificate names cli.global.nomad"
        wait_for("the refusal", lambda: reason in wrong.log.read_text())
    finally:
        wrong.interrupt()


def assert_a_renewed_certificate_counts(server: TlsAgent, keys: Path) -> None:
    """After SIGHUP new connections see the new certificate."""
    import ssl

    def shown() -> str:
        return ssl.get_server_certificate(("127.0.0.1", server.port))

    before = shown()
    yurt("tls", "cert", "create", "-server", cwd=keys).check_returncode()
    for end in (".pem", "-key.pem"):
        os.replace(keys / f"global-server-nomad-1{end}", keys / f"global-server-nomad{end}")
    assert server.process is not None
    server.process.send_signal(signal.SIGHUP)
    wait_for("the new certificate", lambda: shown() != before)
    assert "tls files read again, new connections use them: certificate=" in server.log.read_text()
    assert server.json("node", "status", "-json")


def create_certificate(folder: Path, role: str, days: int) -> None:
    """A certificate of the role in the place of the one that is there."""
    yurt("tls", "cert", "create", f"-{role}", f"-days={days}", cwd=folder).check_returncode()
    for end in (".pem", "-key.pem"):
        if (folder / f"global-{role}-nomad-1{end}").exists():
            os.replace(folder / f"global-{role}-nomad-1{end}", folder / f"global-{role}-nomad{end}")


def test_the_overview_warns_of_certificates_that_end_until_they_are_renewed(tmp_path: Path) -> None:
    """A renewal is seen within a minute, without a restart: both agents look at theirs once a minute."""
    yurt("tls", "ca", "create", cwd=tmp_path).check_returncode()
    for role, days in (("server", 20), ("client", 10), ("cli", 365)):
        create_certificate(tmp_path, role, days)
    (rpc,) = free_ports(1)
    server = make_agent(tmp_path, tmp_path, "server", rpc, server={"enabled": True}, client={"enabled": False})
    joined = {"enabled": True, "servers": [f"127.0.0.1:{rpc}"]}
    client = make_agent(tmp_path, tmp_path, "client", rpc, server={"enabled": False}, client=joined)

    def warnings() -> list[tuple[str, str, str]]:
        found = server.json("operator", "api", "/v1/yurt/overview")["Attention"]
        return sorted((each["Kind"], each["Name"], each["Status"]) for each in found)

    try:
        server.start()
        client.start()
        both = [("node", "client", "expiring"), ("server", "server.global", "expiring")]
        wait_for("warnings of both agents", lambda: warnings() == both)
        for role in ("client", "server"):
            create_certificate(tmp_path, role, 365)
        wait_for("the renewed certificates of both", lambda: warnings() == [], 120)
    finally:
        client.interrupt()
        server.interrupt()


def test_files_that_do_not_fit_are_told_before_anything_starts(tmp_path: Path, keys: Path) -> None:
    file = tmp_path / "agent.json"
    config: dict[str, Any] = {"data_dir": str(tmp_path), "server": {"enabled": True}, "tls": {"rpc": True}}
    cases = (
        ({}, "tls needs ca_file, cert_file, key_file"),
        ({"key_file": "global-client-nomad-key.pem"}, "do not belong together"),
        ({"ca_file": "global-cli-nomad.pem"}, "not signed by the authority"),
        ({"cert_file": "absent.pem"}, "cert_file"),
        (
            {"cert_file": "global-client-nomad.pem", "key_file": "global-client-nomad-key.pem"},
            "server.global.nomad only",
        ),
    )
    whole = {"ca_file": "nomad-agent-ca.pem", "cert_file": "global-server-nomad.pem",
             "key_file": "global-server-nomad-key.pem"}  # fmt: skip
    for changes, text in cases:
        given = {name: str(keys / value) for name, value in (whole | changes).items()} if changes else {}
        file.write_text(json.dumps(config | {"tls": {"rpc": True} | given}))
        done = yurt("config", "validate", str(file), cwd=tmp_path)
        assert done.returncode == 1
        assert text in done.stderr
