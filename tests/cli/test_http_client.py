"""The HTTP client asks as Nomad's, and every failure is one sentence."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from yurt.cli.api.client import AgentAddress, ApiClient
from yurt.cli.errors import ApiError, BrokenOff, Unreachable
from yurt.sdk.errors import Reason
from yurt.testing.unique_ports import quiet_port


def test_token_namespace_region_and_query_are_sent(api: Any) -> None:
    api.answers["/v1/jobs"] = []
    client = ApiClient(AgentAddress(address=api.address, token="secret", namespace="ns", region="eu", http_auth="u:p"))

    answer = client.read("/v1/jobs", {"prefix": "a b", "all": True, "none": None}, index=5, wait_s=1.0)
    client.close()

    _, path, headers, _ = api.asked[0]
    assert answer.index == 7
    assert path == "/v1/jobs?region=eu&namespace=ns&prefix=a%20b&all=true&index=5&wait=1000ms"
    assert headers["X-Nomad-Token"] == "secret"
    assert headers["Authorization"] == "Basic dTpw"


def test_an_error_of_the_agent_is_its_text(api: Any) -> None:
    api.answers["/v1/jobs"] = (500, "No cluster leader")
    client = ApiClient(AgentAddress(address=api.address))

    with pytest.raises(ApiError, match="No cluster leader") as caught:
        client.get("/v1/jobs")
    client.close()

    assert caught.value.status == 500


def test_nobody_there_says_how_to_start_an_agent() -> None:
    client = ApiClient(AgentAddress(address=f"http://127.0.0.1:{quiet_port()}"))

    with pytest.raises(Unreachable, match="Start one with `yurt agent -dev`"):
        client.get("/v1/jobs")


def test_a_kept_connection_that_was_closed_is_opened_again(api: Any) -> None:
    api.answers["/v1/jobs"] = []
    client = ApiClient(AgentAddress(address=api.address))
    client.get("/v1/jobs")
    kept = client._open
    assert kept is not None and kept.sock is not None
    kept.sock.shutdown(socket.SHUT_RDWR)

    assert client.get("/v1/jobs") == []
    client.close()


def test_an_agent_behind_a_unix_socket_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")

        thread = threading.Thread(target=serve)
        thread.start()
        client = ApiClient(AgentAddress(address=f"unix://{path}"))
        assert client.get("/v1/jobs") == []
        client.close()
        thread.join(timeout=5)


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="must begin with http://"):
        ApiClient(AgentAddress(address="ftp://x"))


def test_files_for_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    nothing, empty = str(tmp_path / "nothing.pem"), tmp_path / "empty.pem"
    empty.write_text("no certificate")
    address = "https://127.0.0.1:1"
    for settings, expected in (
        (AgentAddress(address=address, ca_cert=nothing), f"-ca-cert {nothing}: No such file"),
        (AgentAddress(address=address, ca_cert=str(empty)), "it holds no certificate"),
        (AgentAddress(address=address, client_cert=nothing), f"-client-cert {nothing}"),
        (AgentAddress(address=address, client_cert=str(empty)), "no certificate with its key"),
    ):
        with pytest.raises(Unreachable, match=re.escape(expected)):
            ApiClient(settings).read("/v1/jobs")


def test_an_answer_that_ends_before_its_end_is_not_taken_for_whole() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")

        serving = threading.Thread(target=answer)
        serving.start()
        client = ApiClient(AgentAddress(address=f"http://127.0.0.1:{listener.getsockname()[1]}"))
        pieces = client.stream("/v1/agent/monitor")
        assert next(pieces) == b"abc"
        with pytest.raises(BrokenOff, match="ended its answer before the end"):
            next(pieces)
        serving.join(timeout=5)


@pytest.mark.parametrize(("answer", "reason"), [
    ((404, "Unknown node", "unknown-node"), Reason.UNKNOWN_NODE),
    ((404, "Unknown node"), Reason.NOT_FOUND),
    ((429, "slow down", "of-a-later-version"), Reason.OVERLOADED),
    ((500, "No cluster leader"), Reason.FAILED),
])  # fmt: skip
def test_the_header_names_the_reason_and_without_it_the_status_does(
    api: Any, answer: tuple[Any, ...], reason: Reason
) -> None:
    api.answers["/v1/nodes"] = answer
    client = ApiClient(AgentAddress(address=api.address))
    with pytest.raises(ApiError) as caught:
        client.get("/v1/nodes")
    client.close()
    assert (caught.value.reason, caught.value.status, str(caught.value)) == (reason, answer[0], answer[1])
