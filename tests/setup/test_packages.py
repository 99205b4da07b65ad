"""The build and the tests use no Debian package that the set-up does not install.

A package that a user installed by hand hides a missing step of the set-up; this test finds it.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.errors import unnamed
from tests.setup.commands import STARTED, words_of_scripts
from tests.setup.debian import Installed, owners

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"

pytestmark = pytest.mark.skipif(
    shutil.which("dpkg-query") is None, reason="for Debian: there is no dpkg-query here"
)
needs_build = pytest.mark.skipif(
    not (BUILD / ".ninja_deps").is_file(), reason="not built here; sh tests/run.sh python builds it"
)


def named(*lists: str) -> set[str]:
    """Return the packages in these lists of tests/setup_env.sh."""
    script = f"root=.; . tests/setup_env.sh; echo {' '.join(f'${name}' for name in lists)}"
    done = subprocess.run(
        ["sh", "-euc", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def of_the_guest() -> set[str]:
    """Return the packages that tests/softroce/run.sh installs."""
    found = re.search(
        r'^packages="([^"]*)"', (ROOT / "tests/softroce/run.sh").read_text(), re.MULTILINE
    )
    assert found
    return set(found[1].split())


def not_installed_by(packages: set[str], files: Iterable[Path]) -> list[str]:
    """Return a line for each file that no package of the set-up contains.

    Files of the tree do not count, and neither do the headers of a user's own interpreter.
    """
    files = [path.absolute() for path in files]
    own = [ROOT] + ([Path(sys.base_prefix)] if sys.base_prefix != "/usr" else [])
    outside = {path for path in files if not any(path.is_relative_to(folder) for folder in own)}
    owner = owners(outside)
    there = Installed().with_dependencies(packages)
    return sorted(
        f"{path}: of {owner.get(path, 'no package')}"
        for path in outside
        if owner.get(path) not in there
    )


def ninja(*words: str) -> str:
    done = subprocess.run(
        ["ninja", "-C", BUILD, *words], capture_output=True, text=True, check=True
    )
    return done.stdout


def headers() -> set[Path]:
    """Return every file that the compiler read, from ninja's records."""
    rows = ninja("-t", "deps").splitlines()
    return {(BUILD / row.strip()).resolve() for row in rows if row.startswith("    ")}


def libraries() -> set[Path]:
    """Return the linked files: archives that the commands name, shared libraries from ldd."""
    found = set()
    for command in ninja("-t", "commands").splitlines():
        words = command.split()
        found |= {Path(word) for word in words if re.fullmatch(r"/\S+\.(a|so[.0-9]*)", word)}
        found |= {Path(word) for word in words[:1] if word.startswith("/")}  # the compiler
    for binary in (*BUILD.glob("native/_core*.so"), *BUILD.glob("native/native_tests")):
        said = subprocess.run(["ldd", binary], capture_output=True, text=True, check=True).stdout
        found |= {Path(path) for path in re.findall(r"(/\S+) \(0x", said)}
    return {path.resolve() for path in found}


@needs_build
def test_headers_come_from_named_packages() -> None:
    used = headers()
    assert any(path.match("boost/context/fiber.hpp") for path in used), "the records are not there"
    assert any(path.match("infiniband/verbs.h") for path in used), "built without the provider"
    assert not_installed_by(named("build_packages", "test_packages"), used) == []


@needs_build
def test_libraries_come_from_named_packages() -> None:
    used = libraries()
    assert any(path.name.startswith("libboost_context") for path in used)
    packages = named("build_packages", "test_packages", "optional_packages", "cache_packages")
    assert not_installed_by(packages, used) == []


@needs_build
@pytest.mark.parametrize("absent", ["librdmacm-dev", "libgtest-dev", "libboost-context-dev"])
def test_a_package_that_is_not_named_is_told(absent: str) -> None:
    used = headers()
    if absent == "libgtest-dev" and not any(path.match("gtest/gtest.h") for path in used):
        pytest.skip("native tests were not built here")
    others = named("build_packages", "test_packages") - {absent, "libgmock-dev"}
    # libibverbs-dev is a dependency of librdmacm-dev, which must not name it back.
    assert not_installed_by(others, used)


def test_two_names_of_one_file_have_one_owner() -> None:
    both = [Path("/usr/bin/c++"), Path("/usr/bin/g++")]
    if not all(path.exists() for path in both):
        pytest.skip("no g++ here")
    assert len({owners(both)[path] for path in both}) == 1


def test_what_is_not_of_a_package_is_told(tmp_path: Path) -> None:
    by_hand = tmp_path / "by_hand.h"
    by_hand.touch()
    [line] = not_installed_by(named("build_packages"), {by_hand, ROOT / "README.md"})
    assert unnamed(line, by_hand) == []


def all_packages() -> set[str]:
    lists = ("build_packages", "test_packages", "peer_packages", "slurm_packages", "disk_packages")
    offered = ("cache_packages", "browser_packages")
    return named(*lists, *offered, "optional_packages") | of_the_guest()


def test_scripts_call_commands_of_named_packages() -> None:
    words = words_of_scripts(ROOT)
    assert {"apt-get", "sha256sum", "qemu-system-x86_64", "cmake"} <= words
    found = {Path(path) for word in words if (path := shutil.which(word))}
    assert not_installed_by(all_packages(), found) == []


def test_commands_that_tests_have_started_are_of_named_packages() -> None:
    """Run last, when all tests have started their programs."""
    assert STARTED, "nothing was recorded"
    found = {Path(path) for word in STARTED if (path := shutil.which(word))}
    # A test may start programs that it has made, and looks for other Pythons, which it can lack.
    # Matplotlib asks fc-list for fonts where there is one.
    installed = {
        path
        for path in found
        if not path.is_relative_to("/tmp") and not re.fullmatch(r"python3\.\d+|fc-list", path.name)
    }
    assert not_installed_by(all_packages(), installed) == []


def test_every_named_package_can_be_looked_for() -> None:
    for package in named("build_packages", "test_packages", "peer_packages", "slurm_packages"):
        script = f"root=.; . tests/setup_env.sh; is_there {shlex.quote(package)} || true"
        done = subprocess.run(["sh", "-euc", script], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
