"""The rules that make mutants: what each changes, and that the changed text compiles."""

import dataclasses
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.errors import raises
from tests.mutants import machine, run, sampled
from tests.mutants.cpp import Source
from tests.mutants.machine import Places
from tests.mutants.program import blamed, compiled
from tests.mutants.schemata import HEADER, HEADER_TEXT, ListError, Mutant, schema

SYSTEM = next(iter(run.lists()))
FILE = min(
    (file for file in machine.files(SYSTEM) if file.endswith(".cc")),
    key=lambda file: abs((machine.ROOT / file).stat().st_size - 6000),
)


def changes(text: str) -> dict[str, list[str]]:
    """Return the changes of a function's body by operator."""
    found: dict[str, list[str]] = {}
    for mutant in Places("a.cc", f"void f() {{\n{text}\n}}\n").all():
        found.setdefault(mutant.breaks, []).append(mutant.name.split(f"{mutant.breaks}: ")[1])
    return found


def test_comparisons_take_whole_operands() -> None:
    text = "x = a + b[i < 1] <= t<int>(c.d(e)) >> 2 && !f;"
    assert changes(text)["comparison flipped"] == [
        "i < 1 -> i <= 1",
        "a + b[i < 1] <= t<int>(c.d(e)) >> 2 -> a + b[i < 1] < t<int>(c.d(e)) >> 2",
    ]
    assert changes("return std::max<int>(a, b) == c ? d : e;")["comparison flipped"] == [
        "std::max<int>(a, b) == c -> std::max<int>(a, b) != c"
    ]
    assert changes("for (int i = 0; i < n; ++i) g(i);") == {"call removed": ["g(i);"]}
    assert changes('std::vector<int> v; // a < b\nauto s = "a == b";') == {}


def test_checks_are_left_out_one_by_one() -> None:
    found = changes("if (a && (b || c) && d) g();")
    assert found["check left out"] == [
        "a && (b || c) -> a",
        "a && (b || c) -> (b || c)",
        "b || c -> b",
        "b || c -> c",
        "a && (b || c) && d -> a && (b || c)",
    ]
    assert found["check returned true"] == ["a && (b || c) && d -> true"]
    assert found["check returned false"] == ["a && (b || c) && d -> false"]


def test_functions_that_judge_return_one_value() -> None:
    assert changes("return a_.is_b() && c;")["check returned true"] == ["a_.is_b() && c -> true"]
    assert changes("return true;") == {"check returned false": ["true -> false"]}
    assert changes("return field<int>(a);") == {}


def test_statements_are_left_out() -> None:
    text = "int a(1);\nb.c(\n    d);\n++e; f->g[h] = i;\nif (j) k(); else env.sleep_until(l);"
    found = changes(text)
    assert found["call removed"] == ["b.c( d);", "k();"]
    assert found["update removed"] == ["++e;", "f->g[h] = i;"]
    assert found["wait dropped"] == ["env.sleep_until(l);"]
    assert changes("while (!done()) turn();")["wait dropped"] == ["!done() -> false"]


def test_bugs_and_costs_are_no_places() -> None:
    assert changes("env.reached(x); if (bugs.has(Bug::kA)) return;") == {}


def numbered(mutants: Iterable[Mutant]) -> list[Mutant]:
    return [dataclasses.replace(mutant, number=i) for i, mutant in enumerate(mutants, 1)]


def weakened(*forms: str) -> str:
    text = "void f() {\n  const std::lock_guard<M> l(m);\n  g();\n  if (a) h();\n}\n"
    found = [mutant for mutant in Places("a.cc", text).all() if mutant.form in forms]
    return schema(text, numbered(found))


def test_locks_are_not_taken_or_end_before_the_last_statement() -> None:
    declared = "std::optional<std::lock_guard<M>> l; if (!("
    assert f"  {declared}PYRDMA_MUTANT(1))) l.emplace(m);\n  g();" in weakened("removed")
    narrowed = weakened("narrowed")
    assert f"  {declared}false)) l.emplace(m);\n  g();" in narrowed
    assert "g();if (PYRDMA_MUTANT(1)) l.reset(); \n  if (a) h();" in narrowed
    returned = "const std::lock_guard l(m);\nint a = b;\nreturn a;"
    assert list(changes(returned)) == ["lock removed"]
    assert changes("std::unique_lock l(m);\nl.unlock();").keys() == {"call removed"}


def test_names_stay_when_lines_move() -> None:
    text = "namespace n {\ntemplate <class T>\nbool C::f(T a) const {\n  return a == b;\n}\n}\n"
    names = [mutant.name for mutant in Places("a.cc", text).all()]
    assert names[0] == "a.cc C::f: comparison flipped: a == b -> a != b"
    assert names == [mutant.name for mutant in Places("a.cc", f"\n\n// c\n{text}").all()]


@pytest.mark.parametrize("system", run.lists())
def test_harmless_mutants_are_there(system: str) -> None:
    mutants = machine.generate(system)
    assert sum(bool(m.equivalent) for m in mutants) == len(machine.harmless(system))
    assert len({m.name for m in mutants}) == len(mutants)
    turns = machine.shuffled(mutants, 7)
    assert len({m.breaks for m in turns[:9]}) == 9
    assert turns == machine.shuffled(mutants, 7) != machine.shuffled(mutants, 8)


def test_a_name_that_no_mutant_has_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "harmless", lambda system: {f"gone {system}": "why"})
    with raises(ListError, "gone", SYSTEM):
        machine.generate(SYSTEM)


def test_every_bracket_of_the_code_has_its_other() -> None:
    for system in run.lists():
        for file in machine.files(system):
            source = Source((machine.ROOT / file).read_text(encoding="utf-8"))
            brackets = [token for token in source.tokens if token.text in set("()[]{}")]
            assert len(source.match) == len(brackets), file


@pytest.mark.slow
def test_the_changed_text_compiles(tmp_path: Path) -> None:
    """All places of a file compile together, but for a few, which the compiler's messages name."""
    copy = tmp_path / FILE
    copy.parent.mkdir(parents=True)
    (tmp_path / HEADER).write_text(HEADER_TEXT)
    text = (machine.ROOT / FILE).read_text(encoding="utf-8")
    every = left = numbered(Places(FILE, text).all())
    assert len(every) > 80
    compiler, flags, _ = compiled("release")
    words = [*compiler.split(), f"-I{tmp_path}", *flags, "-w", "-fsyntax-only", str(copy)]
    for _ in range(3):
        copy.write_text(schema(text, left))
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
        wrong = blamed(ran.stderr, tmp_path)
        assert bool(wrong) == (ran.returncode != 0), ran.stderr
        left = [mutant for mutant in left if mutant.number not in wrong]
    assert ran.returncode == 0
    assert len(left) >= 0.95 * len(every)


def test_a_test_that_fails_twice_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "tests"
    program.write_text(
        "#!/bin/sh\n"
        "[ $PYRDMA_MUTANT = 0 ] && exit\n"
        "[ $PYRDMA_MUTANT = 2 ] && [ $3 = --gtest_filter=A.B/0 ] && exit\n"
        "echo '[ RUN      ] A.B/0'\n"
        "[ $PYRDMA_MUTANT = 3 ] && kill -9 $$\n"
        "echo '[  FAILED  ] A.B/0 (1 ms)'\nexit 1\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sampled, "build_tests", lambda *_: program)
    tests = sampled.NativeTests("", [], "release")
    assert [tests.killer(number) for number in (0, 1, 2, 3)] == ["", "A.B/0", "", "A.B/0"]
