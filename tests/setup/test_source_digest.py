"""The digest of the native sources: what changes it, and that each build makes it anew."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from native.source_digest import code, digest, sources

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"
FLAGS = "Release"

CODE = """
#include "a.h"  // why
/* of two
   lines */
const char* kUrl = "http://x";  int k = 1'000'000;  // 'one'
const char* kRaw = R"(// kept
  "as it is")";
char c = '"';  // a quote
"""
BARE = """#include "a.h"
const char* kUrl = "http://x";  int k = 1'000'000;
const char* kRaw = R"(// kept
"as it is")";
char c = '"';"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "native"
    (folder / "base").mkdir(parents=True)
    (folder / "base/a.cc").write_text("int a() { return 1; }\n")
    (folder / "base/a.h").write_text("int a();\n")
    return folder


def test_comments_and_blank_lines_are_no_code() -> None:
    assert code(CODE) == BARE


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("base/a.cc", "int a() { return 2; }\n"),
        ("base/a.h", "int a() noexcept;\n"),
        ("base/b.h", "// new\n"),
    ],
)
def test_a_change_of_code_changes_it(file: str, text: str, folder: Path) -> None:
    before = digest(FLAGS, folder)
    (folder / file).write_text(text)
    assert digest(FLAGS, folder) != before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("base/a.cc", "// why\nint a() { return 1; }  // one\n\n"),
        ("base/a_test.cc", "int main() {}\n"),
        ("base/a_test.h", "int b();\n"),
        ("README.md", "a page\n"),
        ("calibration/program.cc", "int main() {}\n"),
    ],
)
def test_what_the_module_does_not_run_changes_nothing(
    file: str, text: str, folder: Path, tmp_path: Path
) -> None:
    before = digest(FLAGS, folder)
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(text)
    assert digest(FLAGS, folder) == before
    moved = shutil.copytree(folder, tmp_path / "moved")
    assert digest(FLAGS, moved) == before


def test_flags_change_it(folder: Path) -> None:
    assert digest("Release -march=x86-64-v2", folder) != digest("Release", folder)


@pytest.mark.skipif(not (BUILD / "build.ninja").is_file(), reason="not built here")
def test_a_build_digests_the_sources_that_it_compiles() -> None:
    from pyrdma import _core

    written = "native/source_digest.cc"
    assert _core.source_digest in (BUILD / written).read_text()
    asked = subprocess.run(
        ["ninja", "-C", BUILD, "-t", "query", written], capture_output=True, text=True, check=True
    )
    inputs = {(BUILD / line.strip("| ")).resolve() for line in asked.stdout.splitlines()}
    assert set(sources()) <= inputs, "a change of these files does not renew the digest"
