"""A scenario takes each rare branch of the protocols, or a list says which test does."""

import re
import sys
from pathlib import Path

import pytest

from pyrdma import fuzz

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
SYSTEMS = ROOT / "native" / "systems"
BRANCH = re.compile(r'\breached\(\s*"([^"]+)"')


def branches_of_the_code() -> set[str]:
    sources = [path for end in ("*.cc", "*.h") for path in SYSTEMS.rglob(end)]
    return {
        branch
        for path in sources
        if "_test" not in path.stem and "fuzz" not in path.relative_to(SYSTEMS).parts
        for branch in BRANCH.findall(path.read_text())
    }


def branches_of_tests() -> dict[str, str]:
    return {
        branch: test
        for path in (ROOT / "tests" / "systems").glob("*/branches.toml")
        for tests in tomllib.loads(path.read_text()).values()
        for branch, test in tests.items()
    }


def test_each_rare_branch_is_taken_by_a_scenario_or_by_a_test() -> None:
    by_seeds = {branch for each in fuzz.systems() for branch in each["branches"]}
    missing = branches_of_the_code() - by_seeds - branches_of_tests().keys()
    assert not missing, "list each in a scenario's branches, or with a test in branches.toml"


@pytest.mark.parametrize(("branch", "test"), branches_of_tests().items())
def test_a_branch_of_a_test_is_in_no_scenario(branch: str, test: str) -> None:
    assert branch in branches_of_the_code(), "the branch is gone: take it out of the list"
    assert not any(branch in each["branches"] for each in fuzz.systems())
    assert not test or (SYSTEMS / test).is_file()
