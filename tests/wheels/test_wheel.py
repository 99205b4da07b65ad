"""The wheel of this Python runs on all hosts, and each check complains about one that does not."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import pyrdma as rd
from pyrdma.deploy import pythons, wheels
from tests.errors import raises, unnamed
from tests.wheels.checks import MOST_BYTES, NEWEST_GLIBC, complaints

TAG = "cp311-cp311-manylinux_2_34_x86_64"


@pytest.mark.slow
def test_the_wheel_runs_on_the_oldest_hosts(built_wheel: Path, tmp_path: Path) -> None:
    wheel = wheels.tagged(built_wheel, tmp_path / "tagged")
    # Debian 12 has glibc 2.36. A wheel that a newer system has built is none for older hosts.
    here = int(os.confstr("CS_GNU_LIBC_VERSION").split(".")[1])  # type: ignore[union-attr]
    newest = NEWEST_GLIBC if here <= 36 else here
    assert complaints(wheel, tmp_path / "content", newest) == []


def made(folder: Path, files: dict[str, bytes], tag: str = TAG) -> Path:
    """Return a wheel with these files."""
    wheel = folder / f"pyrdma-0.1.0-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel


def library(folder: Path, source: str, *flags: str) -> bytes:
    """Return a shared library."""
    (folder / "a.c").write_text(source)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O2", "-o", "a.so", "a.c", *flags], cwd=folder, check=True
    )
    return (folder / "a.so").read_bytes()


MODULE = "pyrdma/_core.cpython-311-x86_64-linux-gnu.so"
PLAIN = "int f(int x) { return x; }\n"


def test_a_plain_wheel_has_no_complaint(tmp_path: Path) -> None:
    wheel = made(tmp_path, {MODULE: library(tmp_path, PLAIN)})
    assert complaints(wheel, tmp_path / "content") == []


@pytest.mark.parametrize(
    ("source", "flags", "named"),
    [
        (PLAIN, ["-Wl,--no-as-needed", "-lstdc++"], "libstdc++.so.6"),
        ("int ibv_fork_init(void); int f(void) { return ibv_fork_init(); }\n", [], "ibv_fork_init"),
        ('const char* f(void) { return "RDMAV_FORK_SAFE"; }\n', [], "RDMAV_FORK_SAFE"),
        (
            "void f(float* a) { for (int i = 0; i < 8; ++i) a[i] += 1; }\n",
            ["-O3", "-mavx2"],
            "x86-64-v2",
        ),
        ("unsigned f(unsigned a, unsigned b) { return ~a & b; }\n", ["-mbmi"], "andn"),
    ],
)
def test_a_library_that_some_host_lacks_is_told(
    source: str, flags: list[str], named: str, tmp_path: Path
) -> None:
    wheel = made(tmp_path, {MODULE: library(tmp_path, source, *flags)})
    [complaint] = complaints(wheel, tmp_path / "content")
    assert unnamed(complaint, named) == []


def test_a_large_wheel_and_files_of_rdma_core_are_told(tmp_path: Path) -> None:
    plain = library(tmp_path, PLAIN)
    files = {MODULE: plain, "pyrdma/noise": os.urandom(MOST_BYTES)}
    (first, second) = (tmp_path / "1", tmp_path / "2")
    [complaint] = complaints(made(tmp_path, files), first)
    assert unnamed(complaint, MOST_BYTES) == []
    wheel = made(tmp_path, {MODULE: plain, "pyrdma.libs/libibverbs-1de1263b.so.1": plain})
    [complaint] = complaints(wheel, second)
    assert unnamed(complaint, "libibverbs-1de1263b.so.1") == []


@pytest.mark.parametrize("tag", ["cp311-cp311-manylinux_2_36_x86_64", "cp311-cp311-linux_x86_64"])
def test_a_tag_of_newer_hosts_is_told(tag: str, tmp_path: Path) -> None:
    wheel = made(tmp_path, {MODULE: library(tmp_path, PLAIN)}, tag)
    [complaint] = complaints(wheel, tmp_path / "content")
    assert unnamed(complaint, tag, f"2.{NEWEST_GLIBC}") == []


def test_a_wheel_without_the_module_is_told(tmp_path: Path) -> None:
    [complaint] = complaints(made(tmp_path, {"pyrdma/a.py": b""}), tmp_path / "content")
    assert unnamed(complaint, []) == []


def test_pythons_are_those_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = pythons.find()
    assert found[version] == Path(sys.executable)
    assert list(found) == sorted(found, key=lambda v: int(v.split(".")[1]))
    # A program that claims to be a Python and is none, as pyenv's stand-ins for absent versions.
    other = "3.10" if version != "3.10" else "3.13"
    stand_in = tmp_path / f"python{other}"
    stand_in.write_text("#!/bin/sh\nexit 127\n")
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    pythons.find.cache_clear()
    try:
        assert set(pythons.find()) == {version}
        monkeypatch.setenv(pythons.VARIABLE, str(stand_in))
        pythons.find.cache_clear()
        with raises(rd.InvalidArgument, pythons.VARIABLE, stand_in):
            pythons.find()
        named = tmp_path / "mine"
        named.symlink_to(sys.executable)
        monkeypatch.setenv(pythons.VARIABLE, str(named))
        pythons.find.cache_clear()
        assert pythons.find() == {version: named}
    finally:
        pythons.find.cache_clear()
