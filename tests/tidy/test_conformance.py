"""The page of conformance names tests that exist, and its counts add up."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "native/fabric/CONFORMANCE.md").read_text(encoding="utf-8")
SUITES = {"rdma-unit-test": "rdma-unit-test", "pyverbs": "pyverbs, all devices"}
ROW = re.compile(r"^\| (\w+): ([\w ]+) \| (\d+) \| (passed|otherwise|no) \| (.+) \|$")


def part(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_counts_add_up() -> None:
    for title, name in SUITES.items():
        total: Counter[str] = Counter()
        for section in part(title).split("\n### ")[1:]:
            said = int(re.match(r"`[\w/]+`: (\d+)\n", section)[1])  # type: ignore[index]
            rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
            seen: set[tuple[str, str]] = set()
            for line in rows:
                row = ROW.match(line)
                assert row is not None, line
                cases = [(row[1], case) for case in row[2].split()]
                assert len(cases) == int(row[3]), line
                assert seen.isdisjoint(cases), line
                seen.update(cases)
                total[row[4]] += len(cases)
            assert len(seen) == said, section.splitlines()[0]
        numbers = [total.total(), total["passed"], total["otherwise"], total["no"]]
        assert f"| {name} | {' | '.join(map(str, numbers))} |" in TEXT, numbers


def test_vendors_cases_add_up() -> None:
    vendors = [int(count) for count in re.findall(r"`test_(?:mlx5|efa)\w*` \((\d+)\)", TEXT)]
    more, everything = map(
        int,
        re.search(r"has (\d+) more cases .*?, (\d+) in all", TEXT, re.DOTALL).groups(),  # type: ignore[union-attr]
    )
    common = int(re.search(r"\| pyverbs, all devices \| (\d+)", TEXT)[1])  # type: ignore[index]
    assert sum(vendors) == more
    assert more + common == everything


def test_named_tests_exist() -> None:
    named = set(re.findall(r"`(\w+\.\w+)`", TEXT)) - {"github.com"}
    text = "\n".join(path.read_text() for path in (ROOT / "native").rglob("*_test.cc"))
    there = {
        f"{suite}.{case}"
        for suite, case in re.findall(r"^TEST(?:_[PF])?\((\w+), (\w+)\)", text, re.MULTILINE)
    }
    named = {name for name in named if not name.endswith(".md")}
    assert len(named) > 50
    assert not named - there


def test_a_passed_case_names_a_test() -> None:
    for line in TEXT.splitlines():
        row = ROW.match(line)
        if row is not None and row[4] == "passed":
            assert re.search(r"`\w+\.\w+`", row[5]), line
