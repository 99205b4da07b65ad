"""A system's name stands in its own files, in the two lists, and on pages that describe it.

The rule holds for every paper too, because systems have the names of their papers.
"""

from __future__ import annotations

import re

import pytest

from pyrdma import claims, systems
from tests.recipes.page import SHARED
from tests.tidy.rules import STANDS_ON
from tests.tidy.tree import Source, sources

# Pages and scripts for users, by the beginnings of their paths.
PAGES = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "docs/tutorials.md",
    "experiments/examples/",
    "native/check/README.md",
    "native/README.md",
    "native/fuzz/README.md",
    "native/runtime/README.md",
    "notebooks/",
)
# Files that name a paper, for its testbed or its claims.
PAPERS = (
    "pyrdma/profiles/",
    "tests/harness/test_claims.py",
    "tests/harness/test_input.py",
    "tests/harness/test_results_summary.py",
    "tests/profiles/",
)
# Rules that name what holds for one system alone.
RULES = ("tests/face/public.py", "tests/tidy/rules.py")
EXCEPTIONS = (*SHARED, *PAGES, *PAPERS, *RULES)

# A collection of micro-benchmarks has a claims file, but is neither a paper nor a system.
COLLECTIONS = {"nic"}
NAMES = {*systems.NAMES, *claims.papers()} - COLLECTIONS


@pytest.fixture(scope="module")
def tree() -> list[Source]:
    return sources()


def lines_with(name: str, file: Source) -> list[str]:
    """Return the lines that name a system, as `name`, `name_lock` or `NameLock`.

    The id of a claim or an experiment (``name/fig1``) and a profile name the paper.
    """
    named = rf"(?<![A-Za-z0-9])(?:{name}(?![A-Za-z0-9])|{name.capitalize()}(?=[A-Z]))"
    of_paper = rf"(?<!systems/){name}/\w|profile=\"{name}\""
    return [line for line in file.text.splitlines() if re.search(named, re.sub(of_paper, "", line))]


def is_own(name: str, file: Source) -> bool:
    """Tell whether a file is the system's own, or of a system that stands on it."""
    folders = {part.partition(".")[0] for part in file.parts}
    return any(name in (folder, *STANDS_ON.get(folder, ())) for folder in folders)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_system_is_named_by_its_own_files(name: str, tree: list[Source]) -> None:
    found = [
        f"{file.path}: {line}"
        for file in tree
        if not is_own(name, file) and not file.path.startswith(EXCEPTIONS)
        for line in lines_with(name, file)
    ]
    assert found == []


@pytest.mark.parametrize("path", EXCEPTIONS)
def test_an_exception_is_needed(path: str, tree: list[Source]) -> None:
    files = [file for file in tree if file.path.startswith(path)]
    assert any(lines_with(name, file) for name in NAMES for file in files)


@pytest.mark.parametrize(
    "line",
    [
        "from . import raft",
        'native().raft.Managers("x")',
        "RaftLock(cluster)",
        'core.measure("raft_lock")',
        '#include "systems/raft/log.h"',
        "namespace pyrdma::raft {",
        '("claims", "raft")',
    ],
)
def test_a_line_names_a_system(line: str) -> None:
    assert lines_with("raft", Source("pyrdma/a.py", f"{line}\n")) == [line]


@pytest.mark.parametrize(
    "line", ['source = "raft/link_rate"', 'profile="raft"', "a draft of rafts", "Rafting"]
)
def test_a_line_names_none(line: str) -> None:
    assert lines_with("raft", Source("pyrdma/a.py", f"{line}\n")) == []
