"""The operator's settings of group networks, with Nomad's defaults."""

from __future__ import annotations

from yurt.sdk.value import Value

CNI_PATHS = ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni")
"""The search path of plugins: Nomad's folder, then those of Debian's and Fedora's packages."""


class NetworkSettings(Value):
    """Folders of plugins and of CNI configurations, and the bridge of `mode = "bridge"`.

    `binds_wildcard`: without host networks, mapped ports answer on every address of the host, not only on the one in
    the allocation's variables.
    """

    cni_paths: tuple[str, ...] = CNI_PATHS
    cni_config_dir: str = "/opt/cni/config"
    bridge_name: str = "nomad"
    bridge_subnet: str = "172.26.64.0/20"
    bridge_subnet_ipv6: str = ""
    bridge_hairpin_mode: bool = False
    binds_wildcard: bool = True
    preferred_family: str = ""
