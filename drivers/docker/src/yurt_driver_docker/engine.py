"""Connects to a Docker engine: the `docker` package behind the shared `Engine`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from yurt.sdk.containers.address import EngineAddress, Tls
from yurt.sdk.containers.engine import Engine, failure
from yurt.sdk.containers.packages import import_whole

from yurt_driver_docker.config import ENGINE

T = TypeVar("T")


class DockerLibrary:
    """The `docker` package; imported in a thread, on first use."""

    def new_client(self, target: EngineAddress, timeout_s: float) -> Any:
        """A client; it queries the engine's version."""
        docker = import_whole("docker")
        tls: Any = False
        if target.is_secure:
            pair = (target.tls.cert, target.tls.key) if target.tls.cert else None
            tls = docker.tls.TLSConfig(client_cert=pair, ca_cert=target.tls.ca or None, verify=True)
        url = f"unix://{target.socket_path}" if target.socket_path else target.endpoint
        try:
            return docker.APIClient(base_url=url, version="auto", timeout=timeout_s, tls=tls)
        except docker.errors.DockerException as error:
            raise OSError(str(error)) from None

    def do(self, act: Callable[[Any], T], client: Any) -> T:
        """Call a client and translate its errors."""
        docker, requests = import_whole("docker"), import_whole("requests")
        try:
            return act(client)
        except docker.errors.APIError as error:
            status = error.response.status_code if error.response is not None else 500
            raise failure(ENGINE, status, str(error.explanation or error)) from None
        except (docker.errors.DockerException, requests.RequestException) as error:
            raise OSError(str(error)) from None


def new_engine(endpoint: str, tls: Tls) -> Engine:
    """The engine at an endpoint."""
    return Engine(ENGINE, EngineAddress(endpoint, tls), DockerLibrary())
