"""A bundle has all that a node runs; it is equal for equal wheels, and takes nothing unsafe."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import children, sources
from pyrdma.deploy import bundle as bundles
from pyrdma.deploy import pythons, unpack, wheels
from pyrdma.deploy.bundle import Bundle, bundle
from tests.errors import raises, unnamed
from tests.harness.support import pyrdma
from tests.hosts.waiting import soon

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
PLATFORM = "manylinux_2_34_x86_64"

RUN = """
import json, sys
import pyrdma as rd
from pyrdma import children, sources

if __name__ == "__main__":
    load = rd.workload.VerbsLoad(op="write", size=64, depth=16)
    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        simulated = cluster.run(load, duration_s=1e-4).value("rate")
    with rd.Cluster.local(nodes=2, fabric="shm") as cluster:
        real = cluster.run(load, duration_s=0.01).value("rate")
    print(json.dumps([simulated, real > 0, sources.source_digest(), sys.path]))
"""


@pytest.fixture(scope="module")
def release(built_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The bundle for this Python, of this tree's wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    wheels.tagged(built_wheel, folder)
    glibc = str(os.confstr("CS_GNU_LIBC_VERSION")).split()[1]
    return bundle(HERE, tmp_path_factory.mktemp("bundles"), folder, glibc)


@pytest.fixture(scope="module")
def node(release: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a host, with the unpacked bundle."""
    folder = tmp_path_factory.mktemp("node") / release.digest
    with tarfile.open(release.archive) as archive:
        archive.extractall(folder)
    return folder


def on_node(node: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command on a host without pip, variables of Python, or a virtual environment."""
    program = node.parent / f"python{HERE}"
    if not program.exists():
        program.symlink_to(getattr(sys, "_base_executable", sys.executable))
    return subprocess.run(
        [str(word) for word in words],
        env={"PATH": f"{node.parent}:/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": "/tmp"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_an_installed_package_has_the_playbooks_of_the_tree(node: Path) -> None:
    done = on_node(node, node / "bin/pyrdma", "playbooks")
    assert done.returncode == 0, done.stderr
    tree = Path(__file__).parents[2] / "playbooks"
    installed, ours = (
        {p.relative_to(root).as_posix(): p.read_bytes() for p in root.rglob("*") if p.is_file()}
        for root in (Path(done.stdout.strip()), tree)
    )
    for found in (installed, ours):
        for name in [n for n in found if n.endswith(".pyc")]:
            del found[name]
    assert installed == ours
    assert not list(node.rglob("quickstart.sh")), "it builds the source tree"
    here = pyrdma("playbooks")
    assert here.stdout.strip() == str(tree)


@pytest.mark.slow
def test_a_node_runs_the_bundle_alone(node: Path) -> None:
    linked = node.parent / "current"
    linked.symlink_to(node.name)
    done = on_node(node, linked / "bin/pyrdma", "doctor", "--json")
    assert done.returncode == 0, done.stderr
    found = {check["name"]: check["ok"] for check in json.loads(done.stdout)}
    assert found["fabric sim"]
    assert found["fabric shm"]
    assert not found["tables and figures"], "a package of this host was used"
    (node.parent / "run.py").write_text(RUN)
    start = f"import sys; sys.path.insert(0, {str(node / 'lib')!r}); exec(open(sys.argv[1]).read())"
    done = on_node(node, f"python{HERE}", "-I", "-S", "-c", start, node.parent / "run.py")
    assert done.returncode == 0, done.stderr
    _, real, digest, path = json.loads(done.stdout)
    assert real
    assert digest == sources.source_digest(), "the hosts and this tree have the same sources"
    assert not [entry for entry in path if entry.endswith("-packages")]


@pytest.mark.slow
def test_a_bundle_names_its_content(release: Bundle, node: Path) -> None:
    assert Path(release.archive).name == f"{release.digest}.tar.gz"
    about = json.loads((node / "bundle.json").read_text())
    assert about == {"python": HERE, "packages": release.packages, "compiled": True}
    assert (node / "bin/pyrdma").stat().st_mode & 0o777 == 0o755
    with tarfile.open(release.archive) as archive:
        members = archive.getmembers()
    assert [m.name for m in members] == sorted(m.name for m in members)
    assert {(m.uid, m.gid, m.uname, m.mtime) for m in members} == {(0, 0, "", members[0].mtime)}
    assert not [m.name for m in members if not m.isfile() or m.name.startswith("lib/pyrdma/lib")]
    # Python does not compile anything at a start.
    modules = [path for path in (node / "lib/pyrdma").rglob("*.py") if "tests" not in path.parts]
    assert all(list((p.parent / "__pycache__").glob(f"{p.stem}.*.pyc")) for p in modules)


@pytest.mark.slow
def test_a_host_without_this_python_is_told(node: Path) -> None:
    done = subprocess.run(
        [node / "bin/pyrdma"],
        env={"PATH": "/usr/bin:/bin"}
        if not shutil.which(f"python{HERE}", path="/usr/bin:/bin")
        else {"PATH": str(minimal(node.parent))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 127
    assert unnamed(done.stderr, f"python{HERE}", "pyrdma bundle --python") == []


def minimal(folder: Path) -> Path:
    """Return a folder of programs without Python."""
    place = folder / "minimal"
    place.mkdir(exist_ok=True)
    for name in ("sh", "readlink"):
        if not (place / name).exists():
            (place / name).symlink_to(shutil.which(name) or name)
    return place


# --- small wheels, without an index -----------------------------------------------------------


def wheel(
    folder: Path, name: str, files: dict[str, bytes] | None = None, *requires: str, tag: str = ""
) -> Path:
    """Make a wheel of a package."""
    folder.mkdir(exist_ok=True)
    project, version = name.split("-")
    path = folder / f"{name}-{tag or 'py3-none-any'}.whl"
    info = f"{name}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {text}" for text in requires]
    # `extra` of the last requirement, if it has one, must be declared.
    metadata += ["Provides-Extra: controller"] if any("extra" in r for r in requires) else []
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in (files or {f"{project}/__init__.py": b""}).items():
            archive.writestr(file, content)
        archive.writestr(f"{info}/METADATA", "\n".join(metadata) + "\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nTag: {tag or 'py3-none-any'}\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that replaces the package index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "wheels"
    for version in pythons.VERSIONS:
        short = version.replace(".", "")
        wheel(
            folder,
            "pyrdma-0.1.0",
            {"pyrdma/__init__.py": b"", "pyrdma/lib/libpyrdma_native.a": b"", "pyrdma/lib.py": b""},
            "alpha>=1.0",
            "old; python_version < '3.11'",
            "new; python_version >= '3.12'",
            "tables; extra == 'controller'",
            tag=f"cp{short}-cp{short}-{PLATFORM}",
        )
    wheel(folder, "alpha-1.0", None, "beta[fast]")
    wheel(folder, "beta-1.0", None, "gamma; extra == 'fast'", "windows; sys_platform == 'win32'")
    for name in ("gamma-1.0", "old-1.0", "new-1.0", "tables-1.0", "windows-1.0"):
        wheel(folder, name)
    return folder


def names(made: Bundle) -> set[str]:
    return {name.split("-")[0] for name in made.packages} - {"pyrdma", "alpha", "beta", "gamma"}


@pytest.mark.parametrize(
    ("python", "more"),
    [("3.10", {"old"}), ("3.11", set()), ("3.12", {"new"}), ("3.13", {"new"})],
)
def test_requirements_are_those_of_the_node_s_python(
    python: str, more: set[str], offline: Path, tmp_path: Path
) -> None:
    made = bundle(python, tmp_path / "out", offline)
    assert names(made) == more
    assert len(made.packages) == 4 + len(more)
    assert names(bundle(python, tmp_path / "out", offline, controller=True)) == {*more, "tables"}


def test_equal_wheels_give_an_equal_archive_and_a_second_call_is_free(
    offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bundle("3.11", tmp_path / "a", offline)
    second = bundle("3.11", tmp_path / "b", offline)
    assert first.digest == second.digest
    assert Path(first.archive).read_bytes() == Path(second.archive).read_bytes()
    wheel(offline, "alpha-1.1", None, "beta[fast]")
    newer = bundle("3.11", tmp_path / "b", offline)
    assert newer.digest != first.digest
    assert "alpha-1.1-py3-none-any.whl" in newer.packages
    with monkeypatch.context() as patched:
        patched.setattr(wheels, "resolve", None)
        assert bundle("3.11", tmp_path / "b", offline) == newer
    Path(newer.archive).unlink()
    assert bundle("3.11", tmp_path / "b", offline) == newer
    assert sorted(path.suffix for path in (tmp_path / "a").iterdir()) == [".gz", ".json"]


def test_what_a_bundle_cannot_be_made_of_is_named(offline: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with raises(rd.InvalidArgument, "3.9", "3.10"):
        bundle("3.9", out, offline)
    with raises(rd.InvalidArgument, "2.x"):
        bundle("3.11", out, offline, glibc="2.x")
    with raises(rd.Error, "3.11", "2.33"):  # of an older host than the wheel is for
        bundle("3.11", out, offline, glibc="2.33")
    with raises(rd.InvalidArgument, tmp_path, "3.11"):
        bundle("3.11", out, tmp_path)
    (offline / "gamma-1.0-py3-none-any.whl").unlink()
    with raises(rd.Error, "gamma"):
        bundle("3.11", out, offline)
    (offline / "pyrdma-0.1.0-1-cp311-cp311-linux_x86_64.whl").touch()
    with raises(rd.Error, offline, "pyrdma-0.1.0-1-cp311-cp311-linux_x86_64.whl"):
        bundle("3.11", out, offline)
    assert not out.exists(), "nothing is left"


def test_a_wheel_is_built_where_its_python_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pythons, "find", dict)
    with raises(rd.Unavailable, "3.12", pythons.VARIABLE, "--wheels"):
        bundle("3.12", tmp_path)


def test_the_source_tree_is_that_of_the_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "a clone"
    tree.mkdir()
    recorded: list[str | None] = [json.dumps({"url": tree.as_uri(), "dir_info": {}})]
    installed = SimpleNamespace(read_text=lambda _: recorded[0])
    monkeypatch.setattr(metadata, "distribution", lambda _: installed)
    monkeypatch.setattr(bundles, "SOURCE", tmp_path)
    with raises(rd.Unavailable, "--wheels", "pip install"):
        bundles._tree()  # it has been removed
    (tree / "pyproject.toml").touch()
    assert bundles._tree() == tree
    tree.chmod(0o777)
    with raises(rd.Unavailable, tree):
        bundles._tree()
    for text in (None, "[]", "{", '{"url": 1}', json.dumps({"url": f"https://{tree}"})):
        recorded[0] = text
        with raises(rd.Unavailable, "--wheels"):
            bundles._tree()


@pytest.mark.slow
def test_a_source_tree_that_has_changed_since_is_named(built_wheel: Path, tmp_path: Path) -> None:
    assert bundles._differing(built_wheel) == []
    other = tmp_path / "other.whl"
    changed = {"pyrdma/new.py", "pyrdma/units.py"}
    with zipfile.ZipFile(built_wheel) as old, zipfile.ZipFile(other, "w") as new:
        for name in old.namelist():
            is_module = name.startswith("pyrdma/_core.") and name.endswith(".so")
            if name == "pyrdma/units.py":
                continue  # the tree has lost it
            if is_module or name == "pyrdma/store.py":
                changed.add(name)
            new.writestr(name, b"other" if name in changed else old.read(name))
        new.writestr("pyrdma/new.py", b"")
    assert len(changed) == 4
    assert set(bundles._differing(other)) == changed


def test_an_archive_is_found_again_by_the_same_program_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundles, "_tree", lambda: tmp_path)
    inputs = bundles._inputs(None, [])
    assert bundles._inputs(None, []) == inputs
    monkeypatch.setattr(bundles, "source_digest", lambda: "other")
    assert bundles._inputs(None, []) != inputs


def test_a_build_that_takes_too_long_ends_with_its_compilers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 300 & echo $! > {pid}; wait"
    monkeypatch.setattr(wheels, "BUILD_S", 1.0)
    with pytest.raises(subprocess.TimeoutExpired):
        wheels._alone(["sh", "-c", script], dict(os.environ))
    assert soon(lambda: children.state(int(pid.read_text())) in ("", "Z"))


def test_missing_tools_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with raises(rd.Unavailable, "nothing_a", "nothing_b", "`deploy`"):
        wheels.need("pip", "nothing_a", "nothing_b")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with raises(rd.Unavailable, "ensurepip"):
        wheels.need("pip")


def entry(name: str, mode: int = 0o100644, content: bytes = b"x") -> Callable[[Any], None]:
    def add(archive: zipfile.ZipFile) -> None:
        info = zipfile.ZipInfo(name)
        info.filename = name  # as it is
        info.external_attr = mode << 16
        archive.writestr(info, content)

    return add


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/outside", "a/../../outside", "a//b", "./a", "a\\..\\b"]
)
def test_no_entry_leads_outside(name: str, tmp_path: Path) -> None:
    path = wheel(tmp_path / "w", "alpha-1.0")
    with zipfile.ZipFile(path, "a") as archive:
        entry(name)(archive)
    with raises(rd.Error, path.name, repr(name)):
        unpack.unpack([path], tmp_path / "lib")
    assert not list(tmp_path.rglob("outside"))


def test_no_entry_is_a_link(tmp_path: Path) -> None:
    path = wheel(tmp_path / "w", "alpha-1.0")
    with zipfile.ZipFile(path, "a") as archive:
        entry("alpha/link", 0o120777, b"/etc/passwd")(archive)
    with raises(rd.Error, path.name, "'alpha/link'"):
        unpack.unpack([path], tmp_path / "lib")


def test_no_wheel_overwrites_another(tmp_path: Path) -> None:
    first = wheel(tmp_path / "w", "alpha-1.0")
    second = wheel(tmp_path / "w", "beta-1.0", {"alpha/__init__.py": b"import os"})
    with raises(rd.Error, second.name, "__init__.py"):
        unpack.unpack([first, second], tmp_path / "lib")


def test_sizes_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = wheel(tmp_path / "w", "alpha-1.0", {"alpha/large": bytes(2000)})
    monkeypatch.setattr(unpack, "MOST_BYTES", 1000)
    with raises(rd.Error, path.name, 1000):
        unpack.unpack([path], tmp_path / "lib")
    monkeypatch.setattr(unpack, "MOST_BYTES", 100_000)
    monkeypatch.setattr(unpack, "MOST_FILES", 3)
    with raises(rd.Error, path.name, 3):
        unpack.unpack([path], tmp_path / "lib2")


def test_a_damaged_wheel_is_named(tmp_path: Path) -> None:
    path = wheel(tmp_path / "w", "alpha-1.0", {"alpha/data": b"0123456789"})
    content = bytearray(path.read_bytes())
    content[content.index(b"0123456789")] ^= 1
    path.write_bytes(content)
    with raises(rd.Error, path.name):
        unpack.unpack([path], tmp_path / "lib")
    path.write_bytes(b"no archive")
    with raises(rd.Error, path.name):
        unpack.unpack([path], tmp_path / "lib2")


def test_both_places_of_a_wheel_are_one(tmp_path: Path) -> None:
    files = {
        "alpha-1.0.data/purelib/alpha/a.py": b"1",
        "alpha-1.0.data/platlib/alpha/b.py": b"2",
        "alpha-1.0.data/scripts/alpha": b"#!python",
        "alpha/c.py": b"3",
    }
    unpack.unpack([wheel(tmp_path / "w", "alpha-1.0", files)], tmp_path / "lib")
    assert {path.name for path in (tmp_path / "lib/alpha").iterdir()} == {"a.py", "b.py", "c.py"}
    assert not (tmp_path / "lib/alpha-1.0.data").exists()


def test_what_no_program_imports_is_left_out(tmp_path: Path) -> None:
    files = {
        "alpha/__init__.py": b"",
        "alpha/sub/tests/test_it.py": b"",
        "alpha/include/alpha.h": b"",
        "tests/own.py": b"",  # a package of this name
    }
    unpack.unpack([wheel(tmp_path / "w", "alpha-1.0", files)], tmp_path / "lib")
    left = {p.relative_to(tmp_path / "lib").as_posix() for p in (tmp_path / "lib").rglob("*.py")}
    assert left == {"alpha/__init__.py", "tests/own.py"}
    assert not list((tmp_path / "lib").rglob("*.h"))
