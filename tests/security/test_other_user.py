"""The second user of the tests is another user, and its folders and snippets work."""

from __future__ import annotations

import os

from tests.security.other_user import (
    OTHER,
    common_folder,
    give,
    needs_other_user,
    python_as_other,
    run_as_other,
)

pytestmark = needs_other_user


def test_a_command_runs_as_the_other_user() -> None:
    with common_folder() as folder:
        done = run_as_other(["sh", "-c", "id -u; id -G; touch made"], folder)
        assert done.stdout.split() == [str(OTHER)] * 2, done.stderr
        assert (folder / "made").stat().st_uid == OTHER
    assert not folder.exists()


def test_the_other_user_has_no_way_into_a_private_folder() -> None:
    with common_folder(mode=0o700) as folder:
        assert run_as_other(["ls", folder], folder.parent).returncode != 0


def test_a_snippet_of_the_other_user_imports_pyrdma() -> None:
    with common_folder() as folder:
        code = "import os, pyrdma; print(os.getuid(), len(pyrdma.profiles.names()))"
        done = python_as_other(code, folder)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[0] == str(OTHER)


def test_given_files_belong_to_the_other_user() -> None:
    with common_folder() as folder:
        (folder / "tree").mkdir()
        (folder / "tree/file").touch()
        (folder / "target").touch()
        (folder / "tree/link").symlink_to(folder / "target")
        give(folder / "tree")
        owners = {entry.name: os.lstat(entry).st_uid for entry in folder.rglob("*")}
        assert owners == {"tree": OTHER, "file": OTHER, "link": OTHER, "target": os.getuid()}
