"""The pages name existing files, and each recipe of CONTRIBUTING.md has a test."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.recipes import page
from tests.tidy.rules import LAYERS

TEXT = page.PAGE.read_text(encoding="utf-8")


def test_every_recipe_has_a_test() -> None:
    tests = [path.read_text() for path in (page.ROOT / "tests/recipes").glob("test_*.py")]
    titles = page.titles()
    assert titles
    for title in titles:
        assert any(f'page.blocks("{title}")' in test for test in tests), title


def test_named_paths_exist() -> None:
    named = re.findall(r"`((?:native|pyrdma|tests|docs|experiments)/[\w./*-]*)`", TEXT)
    made = {block.path for title in page.titles() for block in page.blocks(title)}
    for name in set(named) - made:  # the test of a recipe misses a file that the recipe edits
        assert list(page.ROOT.glob(name.rstrip("/"))), name


def test_named_commands_are_known() -> None:
    words = set(re.findall(r"^\| `sh tests/run.sh (\w+)", TEXT, re.MULTILINE))
    assert words
    unknown = subprocess.run(
        ["sh", "tests/run.sh", "no-such-word"],
        cwd=page.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    known = set(unknown.stderr.rpartition("one of:")[2].split())
    assert words <= known
    assert known - words == {"all", "tidy"}


def test_the_native_page_shows_the_layers() -> None:
    native = (page.ROOT / "native/README.md").read_text(encoding="utf-8")
    assert "  <-  ".join(LAYERS) in native


def test_ctest_runs_the_native_tests_of_the_preset_dev(tmp_path: Path) -> None:
    configure = ["cmake", "--preset", "dev", "-B", str(tmp_path)]
    subprocess.run(configure, cwd=page.ROOT, check=True, capture_output=True)
    listed = subprocess.run(
        ["ctest", "--test-dir", str(tmp_path), "-N"], check=True, capture_output=True, text=True
    )
    assert "native_tests" in listed.stdout
