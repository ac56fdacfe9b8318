"""Words about the options of the docker and podman drivers."""

from __future__ import annotations

from collections.abc import Mapping

from docs.generator.markdown import notes

ABOUT = {
    "docker": "Runs a container of a Docker engine, on this machine or by TCP. The node tells whether the engine "
    "works, and how to get one.",
    "podman": "Runs a container of podman by its socket, that of root or of a user. It takes podman 4 or later.",
}


def spaced(words: Mapping[str, str]) -> dict[str, str]:
    """Options inside blocks as the page names them: `auth>username` is `auth > username`."""
    return {name.replace(">", " > "): text for name, text in words.items()}


def paths(table: str) -> dict[str, str]:
    """Notes whose options may be inside blocks."""
    return spaced(notes(table))


BOTH = paths("""
image                  The image; with the tag `latest`, or none, it is asked for again at each start.
args                   Arguments of `command`, or of the image's entry point.
auth>username        Who pulls the image.
auth>password        The password, or a token.
auth_soft_fail         Pull without credentials when these are refused.
cap_add                Linux capabilities to add, within `allow_caps`.
cap_drop               Linux capabilities to take away; `all` for every one.
cgroupns               `private` or `host`.
command                The program, instead of the image's.
cpu_cfs_period         Microseconds of the period in which `cpu_hard_limit` counts.
cpu_hard_limit         `cpu` is a limit, not only a share.
cpuset_cpus            Cores it may use, as `0-2`; those that another task reserves are left out.
dns_options            Lines of resolv.conf's options.
entrypoint             Instead of the image's.
extra_hosts            Lines for /etc/hosts, as `name:address`; in a network of the group, of all its tasks.
force_pull             Pull although the image is here.
group_add              Further groups of its user.
hostname               Its host name.
image_pull_timeout     How long its image may take.
init                   A first process that reaps children and hands on signals.
interactive            Keep the standard input open.
ipc_mode               `private`, `host` or `container:NAME`; the last two if the agent allows it.
labels                 Labels of the container.
mac_address            Its hardware address.
network_aliases        Its names in a network made by a user.
oom_score_adj          How willingly the kernel kills it when memory runs out.
pid_mode               `host` or `container:NAME`, if the agent allows it.
pids_limit             How many processes it may have.
port_map               Ports inside by label; `ports` with `to` in the `network` block is newer.
ports                  Labels of the group's ports that are published.
privileged             All rights of the host's root, if the agent allows it.
readonly_rootfs        The image's files cannot be changed.
security_opt           Profiles of seccomp, AppArmor and SELinux; `no-new-privileges`.
sysctl                 Kernel settings of its name spaces.
tty                    A terminal; there is then no standard error of its own.
ulimit                 Limits, as `nofile = "1024:2048"`.
uts_mode               `host`, if the agent allows it.
volumes                `source:/target:options`; a source outside the allocation if the agent allows it.
""")
BOTH_AGENT = paths("""
auth>config                          A file of credentials, as `login` writes it.
auth>helper                          A credential helper: `docker-credential-` is put before it.
extra_labels                           Of `job_id`, `job_name`, `task_group_name`, `task_name`, `namespace`.
gc>image                             Remove images that this client brought when no task needs them.
gc>image_delay                       How long after the last task.
gc>container                         Remove the containers of ended tasks.
gc>dangling_containers>enabled     Remove containers of this client that no task knows.
gc>dangling_containers>period      How often.
gc>dangling_containers>creation_grace  How old they must be.
gc>dangling_containers>dry_run     Only log them.
volumes>enabled                      Tasks may mount host paths; on with `-dev`.
volumes>selinuxlabel                 A label for every mount: `z` or `Z`.
allow_privileged                       Tasks may be privileged, and have any `security_opt`.
allow_security_opt                     Patterns of `security_opt` that tasks may have: `seccomp=/etc/profiles/*`.
allow_caps                             Capabilities that tasks may have; `all` for every one.
allowed_modes>pid                    Values of `pid_mode` that share a name space.
allowed_modes>ipc                    The same for `ipc_mode`.
allowed_modes>uts                    The same for `uts_mode`.
image_pull_timeout                     How long a pull may take.
pids_limit                             How many processes a task may have at most.
disable_log_collection                 The output stays with the engine.
""")
MOUNT = notes("""
type            `bind`, `volume` or `tmpfs`.
target          An absolute path inside.
source          The path of the host, or the volume's name.
readonly        It cannot be written.
bind_options>propagation      How mounts made later travel, as `rslave`.
tmpfs_options>size            Bytes.
tmpfs_options>mode            Mode bits of the top folder.
volume_options>no_copy        The image's files are not copied into a new volume.
volume_options>labels         Labels of a new volume.
volume_options>driver_config>name     The volume driver, if the agent allows volumes.
volume_options>driver_config>options  Its options.
""")
NOTES = {
    "docker": {
        **BOTH,
        **spaced({f"{block}>{name}": text for block in ("mount", "mounts") for name, text in MOUNT.items()}),
        **paths("""
advertise_ipv6_address     Services at the driver's address get the IPv6 one.
auth>email               Sent along.
auth>server_address      The registry that the credentials are for.
container_exists_attempts  How often to clear a container that bears the name.
devices>host_path        A device of the host.
devices>container_path   Where it is inside; the same path by default.
devices>cgroup_permissions  Letters of `rwm`.
dns_search_domains         Domains for short names.
dns_servers                Name servers.
healthchecks>disable     The image's own health check is off.
ipv4_address               Its address in a network made by a user.
ipv6_address               The same for IPv6.
isolation                  Has a meaning on Windows alone.
load                       An archive in the task's folder that holds the image.
logging>type             The engine's log driver.
logging>driver           The old name of `type`.
logging>config           Its options.
memory_hard_limit          MiB that it may never exceed; `memory` is then a reservation.
network_mode               `bridge`, `host`, `none`, `container:NAME` or a network.
runtime                    The OCI runtime, among `allow_runtimes`.
shm_size                   Bytes of /dev/shm.
storage_opt                Options of the storage driver, as `size`.
userns_mode                `host`, if the agent allows it.
volume_driver              The driver of the named volumes in `volumes`.
work_dir                   An absolute path inside.
"""),
    },
    "plugin docker": {
        **BOTH_AGENT,
        **paths("""
endpoint                   `unix:///path` or `tcp://host:port`; else `DOCKER_HOST`, else Docker's own socket.
tls>cert                 The client's certificate.
tls>key                  Its key.
tls>ca                   Who signed the engine's.
logging>type             The log driver of tasks that name none.
logging>config           Its options.
nvidia_runtime             The runtime of tasks with GPUs.
allow_runtimes             Runtimes that tasks may name.
infra_image                The image of containers that keep the network of a group.
infra_image_pull_timeout   How long that image may take.
container_exists_attempts  How often to clear a container that bears a task's name.
oom_score_adj              For tasks that say nothing.
pull_activity_timeout      A pull of which nothing is heard for so long is given up.
windows_allow_insecure_container_admin  Has no effect on Linux.
allowed_modes>userns     Values of `userns_mode` that share a name space.
allowed_modes>cgroup     Values of `cgroupns` that share a name space.
"""),
    },
    "podman": {
        **BOTH,
        **paths("""
image                 A name in a registry, or `docker-archive:FILE` or `oci-archive:FILE` in the task's folder.
apparmor_profile      An AppArmor profile of the host; `unconfined` for none.
auth>tls_verify     False takes any certificate, and registries without TLS.
devices               `/dev/x:/dev/y:rwm`, or a CDI name.
dns                   Name servers.
dns_search            Domains for short names.
init_path             The program of `init`, a file of the host: within `volumes` or `allow_privileged`.
logging>driver      `nomad` and `k8s-file` are collected; `journald`, `none` and `passthrough` are left to podman.
logging>options     Its options; `max-size` is when podman begins a new file.
memory_reservation    As `100m`: what it is left when memory is short.
memory_swap           As `100m`: memory and swap together.
memory_swappiness     0 to 100.
network_mode          `bridge`, `host`, `none`, `slirp4netns`, `pasta`, `task:T`, `container:C`, `ns:PATH` or a network.
selinux_opts          Labels, as `type:my_t`.
shm_size              As `64m`: size of /dev/shm.
socket                The name of one of the agent's engines.
tmpfs                 `/target:options`.
userns                `auto`, `keep-id`, `nomap`, `private`.
working_dir           An absolute path inside.
"""),
    },
    "plugin podman": {
        **BOTH_AGENT,
        **paths("""
socket_path            The engine's socket; default is that of root.
socket>name          What tasks call it; one block has none.
socket>socket_path   The socket, that of a user say.
logging>driver       The log driver of tasks that name none.
logging>options      Its options.
allowed_modes>userns Values of `userns` that share a name space.
allowed_modes>cgroup Values of `cgroupns` that share a name space.
client_http_timeout    Taken, and without effect: each call has a limit of its own.
dns_servers            Name servers of tasks that name none.
recover_stopped        Start containers again that a start of the machine ended, rather than making new ones.
"""),
    },
}  # fmt: skip
