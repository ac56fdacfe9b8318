"""The Linux system calls that isolated tasks may make, by purpose, and those that a capability adds.

Calls in neither table are refused to every task: kernel keyrings, userfaultfd and io_uring have no namespace or a long
record of vulnerabilities, and the others are obsolete. Names are of x86, x86-64, ARM and ARM64; each machine has some.
"""

from __future__ import annotations

FILES = (
    "access", "cachestat", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup",
    "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod", "fchmodat", "fchmodat2",
    "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "file_getattr", "file_setattr", "flistxattr", "flock",
    "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futimesat", "getcwd", "getdents",
    "getdents64", "getxattr", "getxattrat", "ioctl", "lchown", "lgetxattr", "link", "linkat", "listmount",
    "listxattr", "listxattrat", "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir", "mkdirat",
    "mknod", "mknodat", "name_to_handle_at", "newfstatat", "open", "openat", "openat2", "pread64", "preadv",
    "preadv2", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv",
    "removexattr", "removexattrat", "rename", "renameat", "renameat2", "rmdir", "sendfile", "setxattr", "setxattrat",
    "splice", "stat", "statfs", "statmount", "statx", "symlink", "symlinkat", "sync", "sync_file_range", "syncfs",
    "tee", "truncate", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes", "vmsplice", "write", "writev",
)  # fmt: skip
WATCHING = (
    "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old", "epoll_pwait", "epoll_pwait2", "epoll_wait",
    "epoll_wait_old", "eventfd", "eventfd2", "fanotify_mark", "inotify_add_watch", "inotify_init", "inotify_init1",
    "inotify_rm_watch", "io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup", "io_submit", "pipe",
    "pipe2", "poll", "ppoll", "pselect6", "select", "signalfd", "signalfd4",
)  # fmt: skip
MEMORY = (
    "brk", "madvise", "map_shadow_stack", "membarrier", "memfd_create", "memfd_secret", "mincore", "mlock", "mlock2",
    "mlockall", "mmap", "mprotect", "mremap", "mseal", "msync", "munlock", "munlockall", "munmap", "pkey_alloc",
    "pkey_free", "pkey_mprotect", "remap_file_pages",
)  # fmt: skip
PROCESSES = (
    "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "futex", "futex_requeue",
    "futex_wait", "futex_waitv", "futex_wake", "get_robust_list", "get_thread_area", "getcpu", "getegid", "geteuid",
    "getgid", "getgroups", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getresgid", "getresuid",
    "getrlimit", "getrusage", "getsid", "gettid", "getuid", "ioprio_get", "ioprio_set", "modify_ldt", "pidfd_open",
    "prctl", "prlimit64", "process_mrelease", "rseq", "sched_get_priority_max", "sched_get_priority_min",
    "sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval",
    "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler", "sched_yield", "set_robust_list",
    "set_thread_area", "set_tid_address", "setfsgid", "setfsuid", "setgid", "setgroups", "setpgid", "setpriority",
    "setregid", "setresgid", "setresuid", "setreuid", "setrlimit", "setsid", "setuid", "vfork", "wait4", "waitid",
)  # fmt: skip
CONFINEMENT = (
    "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "lsm_get_self_attr", "lsm_list_modules",
    "lsm_set_self_attr", "seccomp",
)  # fmt: skip
SIGNALS = (
    "kill", "pause", "pidfd_send_signal", "restart_syscall", "rt_sigaction", "rt_sigpending", "rt_sigprocmask",
    "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo", "sigaltstack",
    "tgkill", "tkill",
)  # fmt: skip
TIME = (
    "adjtimex", "alarm", "clock_adjtime", "clock_getres", "clock_gettime", "clock_nanosleep", "getitimer",
    "gettimeofday", "nanosleep", "setitimer", "time", "timer_create", "timer_delete", "timer_getoverrun",
    "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime", "times",
)  # fmt: skip
SOCKETS = (
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen", "recvfrom",
    "recvmmsg", "recvmsg", "sendmmsg", "sendmsg", "sendto", "setsockopt", "shutdown", "socketpair",
)  # fmt: skip
MESSAGES = (
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "msgctl", "msgget",
    "msgrcv", "msgsnd", "semctl", "semget", "semop", "semtimedop", "shmat", "shmctl", "shmdt", "shmget",
)  # fmt: skip
FACTS = ("getrandom", "sysinfo", "uname")
USUAL = (
    *FILES, *WATCHING, *MEMORY, *PROCESSES, *CONFINEMENT, *SIGNALS, *TIME, *SOCKETS, *MESSAGES, *FACTS
)  # fmt: skip
OF_32BIT = (
    "arm_fadvise64_64", "arm_sync_file_range", "breakpoint", "cacheflush", "chown32", "clock_adjtime64",
    "clock_getres_time64", "clock_gettime64", "clock_nanosleep_time64", "fadvise64_64", "fchown32", "fcntl64",
    "fstat64", "fstatat64", "fstatfs64", "ftruncate64", "futex_time64", "getegid32", "geteuid32", "getgid32",
    "getgroups32", "getresgid32", "getresuid32", "getuid32", "io_pgetevents_time64", "ipc", "lchown32", "_llseek",
    "lstat64", "mmap2", "mq_timedreceive_time64", "mq_timedsend_time64", "_newselect", "nice", "oldfstat", "oldlstat",
    "oldolduname", "oldstat", "olduname", "ppoll_time64", "pselect6_time64", "readdir", "recv", "recvmmsg_time64",
    "rt_sigtimedwait_time64", "sched_rr_get_interval_time64", "semtimedop_time64", "send", "sendfile64", "set_tls",
    "setfsgid32", "setfsuid32", "setgid32", "setgroups32", "setregid32", "setresgid32", "setresuid32", "setreuid32",
    "setuid32", "sgetmask", "sigaction", "signal", "sigpending", "sigprocmask", "sigreturn", "sigsuspend",
    "socketcall", "ssetmask", "stat64", "statfs64", "sync_file_range2", "timer_gettime64", "timer_settime64",
    "timerfd_gettime64", "timerfd_settime64", "truncate64", "ugetrlimit", "usr26", "usr32", "utimensat_time64",
    "waitpid",
)  # fmt: skip
"""Common calls that only 32-bit programs use; the list is complete only for examined machines."""
OTHER_PROCESSES = ("process_vm_readv", "process_vm_writev", "ptrace")
"""Permitted where the kernel filters traced processes too (since 4.8); the kernel checks the rest."""
MOUNTS = (
    "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount", "open_tree", "open_tree_attr",
    "pivot_root", "umount", "umount2",
)  # fmt: skip
BY_CAPABILITY = {
    "CAP_BPF": ("bpf",),
    "CAP_DAC_READ_SEARCH": ("open_by_handle_at",),
    "CAP_PERFMON": ("perf_event_open",),
    "CAP_SYS_ADMIN": (
        *MOUNTS, "bpf", "clone", "clone3", "fanotify_init", "lookup_dcookie", "perf_event_open", "quotactl",
        "quotactl_fd", "setdomainname", "sethostname", "setns", "swapoff", "swapon", "syslog", "unshare",
    ),
    "CAP_SYS_BOOT": ("kexec_file_load", "kexec_load", "reboot"),
    "CAP_SYS_CHROOT": ("chroot",),
    "CAP_SYS_MODULE": ("delete_module", "finit_module", "init_module"),
    "CAP_SYS_NICE": (
        "get_mempolicy", "mbind", "migrate_pages", "move_pages", "set_mempolicy", "set_mempolicy_home_node",
    ),
    "CAP_SYS_PACCT": ("acct",),
    "CAP_SYS_PTRACE": (*OTHER_PROCESSES, "kcmp", "pidfd_getfd", "process_madvise"),
    "CAP_SYS_RAWIO": ("ioperm", "iopl", "pciconfig_iobase", "pciconfig_read", "pciconfig_write"),
    "CAP_SYS_TIME": ("clock_settime", "clock_settime64", "settimeofday", "stime"),
    "CAP_SYS_TTY_CONFIG": ("vhangup",),
    "CAP_SYSLOG": ("syslog",),
}  # fmt: skip
