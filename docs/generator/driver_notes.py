"""Words about the drivers of the repository and their options; a driver without words is listed all the same."""

from __future__ import annotations

from docs.generator import container_notes
from docs.generator.markdown import notes

ABOUT = {
    **container_notes.ABOUT,
    "raw_exec": "Runs a command as a process of the host, with no isolation and with the rights of the agent's user "
    "or of the task's "
    "`user`. It is off until the agent's configuration (or `-dev`) enables it.",
    "exec": "Runs a command of the host in name spaces, a file system and cgroups of its own. It takes Linux, root "
    "and `runc`; without "
    "them the node says so.",
    "mock_driver": "Runs nothing: it behaves as its options say. For tests.",
}
ISOLATION = {
    **notes("""
default_pid_mode     Where a task says nothing.
default_ipc_mode     Where a task says nothing.
default_userns_mode  Where a task says nothing.
default_seccomp      Where a task says nothing.
allow_caps           Capabilities that tasks may have.
allowed_modes        Name spaces of the host, and exceptions from the filter of system calls, that tasks may ask for.
user_namespace       The ids of the host that stand for the users and groups of tasks with `userns_mode = "private"`.
"""),
    "user_namespace > first_host_id": "The host's id of their root, as 100000: no user of the host has it or the next.",
    "user_namespace > count": "How many ids follow.",
}
COMMAND = """
run_for                 How long it runs; empty ends at once.
exit_code               The exit code.
exit_signal             The signal that ended it.
exit_err_msg            An error of the driver at the end.
signal_error            Signals are answered with this error.
stdout_string           What it writes to standard output.
stdout_repeat           How often it writes that again.
stdout_repeat_duration  The time between.
stderr_string           What it writes to standard error.
stderr_repeat           How often it writes that again.
stderr_repeat_duration  The time between.
"""
NOTES = {
    **container_notes.NOTES,
    "raw_exec": notes("""
command             The program; looked for on the task's `PATH`. No shell comes between.
args                Its arguments.
work_dir            An absolute path; default is the task's folder.
cgroup_v1_override  Cgroups of the operator by controller, instead of the task's own.
cgroup_v2_override  A cgroup of the operator, instead of the task's own.
oom_score_adj       How willingly the kernel kills it when memory runs out.
denied_envvars      Names or patterns (`AWS_*`) of variables that it does not get.
"""),
    "plugin raw_exec": notes("""
enabled           Whether tasks may run at all.
denied_host_uids  Ids and ranges (`0,10-20`) of users that no task runs as.
denied_host_gids  The same for groups.
denied_envvars    Names or patterns of variables that no task gets.
dynamic_users     A task without `user` runs as a [dynamic user](../howto/run-tasks-as-dynamic-users.md) of its own and
                  not as the agent's.
"""),
    "exec": notes("""
command   The program, inside the task's file system.
args      Its arguments.
pid_mode  `private` or `host`.
ipc_mode  `private` or `host`.
cap_add   Linux capabilities to add, within `allow_caps`; a user other than root has these alone.
cap_drop  Linux capabilities to take away from root.
userns_mode  `private` or `host`: whether the task's users, root included, are ordinary users of the host.
seccomp   `default` or `unconfined`: whether system calls are filtered.
work_dir  An absolute path inside the task; default is `/`.
"""),
    "plugin exec": {
        **ISOLATION,
        **notes("""
no_pivot_root     Do not use `pivot_root`, where the root is a RAM disk.
denied_host_uids  Ids and ranges of users that no task runs as.
denied_host_gids  The same for groups.
dynamic_users     A task without `user` runs as a [dynamic user](../howto/run-tasks-as-dynamic-users.md) of its own and
                  not as `nobody`.
"""),
    },
    "plugin java": {
        **ISOLATION,
        **notes("""
allow_unisolated  Where the node cannot isolate, tasks are processes of the host, as those of `raw_exec`.
"""),
    },
    "mock_driver": {
        **notes(COMMAND),
        **{f"exec_command > {name}": text for name, text in notes(COMMAND).items()},
        **notes("""
start_error              The start fails with this.
start_error_recoverable  A retry may help.
start_block_for          How long the start takes.
kill_after               How long it goes on after a stop.
plugin_exit_after        Has no effect.
driver_ip                Has no effect.
driver_advertise         Has no effect.
driver_port_map          Has no effect.
exec_command             What a command run inside it does.
"""),
    },
    "plugin mock": notes("""
fs_isolation                What the driver says of its isolation.
shutdown_periodic_after     The driver becomes unhealthy and healthy again by turns.
shutdown_periodic_duration  How many seconds each turn lasts.
"""),
}
