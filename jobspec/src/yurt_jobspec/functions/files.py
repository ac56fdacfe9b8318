"""File functions; `yurt_jobspec.files` decides what they may read. Functions that only split paths read nothing."""

from __future__ import annotations

import base64
import posixpath
from pathlib import Path, PurePosixPath

from yurt_jobspec.files import FileAccessError, Files
from yurt_jobspec.values import Value, make_set

from .registry import Arguments, FunctionError

_MAX_MATCHES = 1024


def _read(files: Files | None, path: str) -> bytes:
    try:
        return (files or Files(None)).read(path)
    except FileAccessError as error:
        raise FunctionError(str(error)) from None


def _resolve(files: Files | None, path: str) -> Path:
    try:
        return (files or Files(None)).resolve(path)
    except FileAccessError as error:
        raise FunctionError(str(error)) from None


def file(args: Arguments, files: Files | None) -> str:
    try:
        return _read(files, args[0]).decode()
    except UnicodeDecodeError:
        raise FunctionError(
            f"contents of {args[0]} are not valid UTF-8; use the filebase64 function to read it as it is"
        ) from None


def filebase64(args: Arguments, files: Files | None) -> str:
    return base64.b64encode(_read(files, args[0])).decode()


def fileexists(args: Arguments, files: Files | None) -> bool:
    return _resolve(files, args[0]).is_file()


def fileset(args: Arguments, files: Files | None) -> Value:
    """The names of the matching regular files, relative to the folder."""
    root = _resolve(files, args[0])
    pattern = PurePosixPath(args[1])
    if pattern.is_absolute() or ".." in pattern.parts or not pattern.parts:
        raise FunctionError("the pattern must be relative and stay inside the folder")
    names: list[str] = []
    for found in root.glob(args[1]):
        if found.is_file():
            names.append(found.relative_to(root).as_posix())
        if len(names) > _MAX_MATCHES:
            raise FunctionError(f"more than {_MAX_MATCHES} files match")
    return make_set("string", names)


def abspath(args: Arguments, files: Files | None) -> str:
    _resolve(files, ".")
    return posixpath.normpath(posixpath.join(str((files or Files(None)).base), args[0]))


def basename(args: Arguments, files: Files | None) -> str:
    return posixpath.basename(args[0].rstrip("/")) or ("/" if args[0] else ".")


def dirname(args: Arguments, files: Files | None) -> str:
    return posixpath.normpath(posixpath.dirname(args[0]) or ".")


def pathexpand(args: Arguments, files: Files | None) -> str:
    """The path with a leading ~ replaced by the home folder; refused in a confined job file."""
    if args[0].startswith("~"):
        if files is not None and files.base is not None and not files.is_confined:
            return str(Path(args[0]).expanduser())
        raise FunctionError("filesystem function disabled for paths outside the job file's folder")
    return str(args[0])
