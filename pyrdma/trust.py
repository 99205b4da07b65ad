"""Decides whose files pyrdma may use only because of where the caller stands.

The rule is the one of git's ``safe.directory``: a file or folder must belong to the caller or to
root, and other users must not be able to write it. A file that the caller names needs no check.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["distrusted", "distrusted_below", "name_of", "trusted_users"]


def distrusted(path: Path, *, group_too: bool = False) -> str:
    """Return why another user may have written `path`; an empty text if none may.

    Symbolic links are followed. A path that cannot be read has nothing to distrust. With
    `group_too`, a group that may write must be the owner's own, without other members; many
    systems give each user such a group, whose files they let it write.
    """
    try:
        status = path.stat()
    except OSError:
        return ""
    if status.st_uid not in trusted_users():
        return f"{str(path)!r} belongs to {name_of(status.st_uid)}"
    if status.st_mode & stat.S_IWOTH:  # the sticky bit still lets them add files
        return f"every user may write {str(path)!r}, which belongs to {name_of(status.st_uid)}"
    if group_too and status.st_mode & stat.S_IWGRP and not _is_own(status.st_gid, status.st_uid):
        return f"the group {status.st_gid} may write {str(path)!r}"
    return ""


def _is_own(group: int, user: int) -> bool:
    try:
        owner, members = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    same = owner.pw_gid == group and owner.pw_name == members.gr_name
    return same and set(members.gr_mem) <= {owner.pw_name}


def distrusted_below(folder: Path) -> str:
    """Return why another user may have written `folder` or anything below it; see `distrusted`."""
    return next((reason for path in _entries(folder) if (reason := distrusted(path))), "")


def _entries(folder: Path) -> Iterator[Path]:
    """Yield a folder and all below it, also below linked folders, each folder once."""
    yield folder
    seen = set()
    for where, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(where)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(where, name) for name in (*folders, *files))


def trusted_users() -> set[int]:
    """Return the users whose files may be used: the caller, root, and the user of sudo."""
    users = {0, os.geteuid()}
    caller = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and caller.isdecimal():
        users.add(int(caller))
    return users


def name_of(user: int) -> str:
    """Return a user for a message, by name if it has one."""
    try:
        return f"user {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"user {user}"
