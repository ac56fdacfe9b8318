"""Decides whether a program in a plugin folder may run with the agent's rights: only if no other user can replace it.

A file that another user can write, a folder in which another user can rename, or a link of another user decides what
the agent runs. So every step on the way to the file is checked, links included: its owner is root or the agent's user,
and no other user may write it. A sticky folder such as /tmp is enough above the folder of the file. Blocking.
"""

from __future__ import annotations

import errno
import os
import stat

ROOT = 0
LINKS_MAX = 40


def distrust(program: str) -> str:
    """The reason why a program must not run, with the fix; empty when only root and the agent's user can change it."""
    try:
        steps = _steps(program)
        near = set(steps[-2:])
        problems = (_problem(step, os.lstat(step), is_near=step in near) for step in steps)
        return next(filter(None, problems), "")
    except OSError as error:
        return f"{program} cannot be checked: {error.strerror}"


def _steps(program: str) -> list[str]:
    """Every folder and link on the path to a file, ending with the file; raises OSError."""
    steps, current, links = ["/"], "/", 0
    pending = os.path.join(os.getcwd(), program).split("/")
    while pending:
        name = pending.pop(0)
        if name in ("", "."):
            continue
        path = os.path.dirname(current) if name == ".." else os.path.join(current, name)
        if not stat.S_ISLNK(os.lstat(path).st_mode):
            current = path
        else:
            links += 1
            if links > LINKS_MAX:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = os.readlink(path)
            current = "/" if target.startswith("/") else current
            pending[:0] = target.split("/")
        steps.append(path)
    return steps


def _problem(path: str, found: os.stat_result, *, is_near: bool) -> str:
    """The problem with one step; the file and its folder may not be writable by a group, sticky bit or not."""
    if found.st_uid not in (ROOT, os.geteuid()):
        return (
            f"{path} belongs to user id {found.st_uid}, who could exchange the program; chown -h {os.geteuid()} {path}"
        )
    if stat.S_ISLNK(found.st_mode):
        return ""
    is_group_trusted = not is_near or found.st_gid in (ROOT, os.getegid())
    forbidden = stat.S_IWOTH if is_group_trusted else stat.S_IWGRP | stat.S_IWOTH
    is_sticky = not is_near and bool(found.st_mode & stat.S_ISVTX)
    if found.st_mode & forbidden and not is_sticky:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        return f"other users can write {path} (mode {mode}), and so exchange the program; chmod go-w {path}"
    return ""
