"""The tree keeps the rules, and each rule complains about a small tree that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.tidy import rules
from tests.tidy.tree import Source, sources

Rule = Callable[[Sequence[Source]], list[str]]

RULES: dict[str, Rule] = {
    "include_rule": rules.include_rule,
    "includes_exist": rules.includes_exist,
    "banned_in_systems": rules.banned_in_systems,
    "unordered_iteration": rules.unordered_iteration,
    "catch_all": rules.catch_all,
    "thread_local_state": rules.thread_local_state,
    "loop_over_lost_owner": rules.loop_over_lost_owner,
    "pragma_once": rules.pragma_once,
    "leftovers": rules.leftovers,
    "machine_names": rules.machine_names,
    "file_length": rules.file_length,
    "system_readmes": rules.system_readmes,
    "folders_in_readme": rules.folders_in_readme,
    "compared_sentences": rules.compared_sentences,
}


@pytest.fixture(scope="module")
def tree() -> list[Source]:
    return sources()


@pytest.mark.parametrize("name", RULES)
def test_tree_keeps(name: str, tree: list[Source]) -> None:
    assert tree, "no files found"
    complaints = RULES[name](tree)
    assert not complaints, "\n".join(complaints)


# Per case: the rule, a file that breaks it, and a word of the complaint.
BAD = [
    ("include_rule", "native/base/a.h", '#include "env/env.h"\n', "base stands below env"),
    ("include_rule", "native/fabric/sim/a.cc", '#include "systems/raft/raft.h"\n', "below systems"),
    ("include_rule", "native/systems/raft/a.cc", '#include "measure/recorder.h"\n', "measure"),
    ("include_rule", "native/systems/raft/a.cc", '#include "systems/raft/fuzz/b.h"\n', "below"),
    ("include_rule", "native/systems/raft/fuzz/a.cc", '#include "systems/paxos/b.h"\n', "another"),
    ("include_rule", "native/fabric/shm/a.cc", '#include "runtime/mesh.h"\n', "below runtime"),
    ("include_rule", "native/runtime/a.cc", '#include "systems/raft/raft.h"\n', "below systems"),
    ("include_rule", "native/runtime/a.cc", '#include "measure/params.h"\n', "below measure"),
    ("include_rule", "native/runtime/a_test.cc", '#include "check/fifo.h"\n', "only measure"),
    ("include_rule", "native/measure/a.cc", '# include "bindings/x.h"\n', "bindings"),
    ("include_rule", "native/measure/a.cc", '#include "fuzz/scenario.h"\n', "below fuzz"),
    ("include_rule", "native/check/a.cc", '#include "env/env.h"\n', "base alone"),
    ("include_rule", "native/systems/raft/a.cc", '#include "check/linear.h"\n', "not check"),
    ("include_rule", "native/env/a.cc", '#include "sync.h"\n', "from native/"),
    ("include_rule", "native/env/a.cc", '#include "../base/units.h"\n', "from native/"),
    ("include_rule", "native/extra/a.cc", '#include "base/units.h"\n', "not a layer"),
    ("includes_exist", "native/env/a.cc", '#include "base/gone.h"\n', "does not exist"),
    ("includes_exist", "native/base/lonely.h", "#pragma once\n", "no file includes it"),
    ("banned_in_systems", "native/systems/x/a.cc", "std::mutex m;", "Mutex of env/sync.h"),
    ("banned_in_systems", "native/systems/x/a.cc", "std::condition_variable c;", "env/sync.h"),
    ("banned_in_systems", "native/systems/x/a.cc", "std::thread t(f);", "Env::spawn"),
    ("banned_in_systems", "native/systems/x/a.cc", "thread_local int n;", "a member"),
    ("banned_in_systems", "native/systems/x/a.cc", "std::chrono::seconds s;", "Env::now"),
    ("banned_in_systems", "native/systems/x/a.cc", "auto t = __rdtsc();", "Env::now"),
    ("banned_in_systems", "native/systems/x/a.cc", "int r = rand();", "Env::rng"),
    ("banned_in_systems", "native/systems/x/a.cc", "usleep(5);", "sleep_until"),
    ("banned_in_systems", "native/systems/x/a.cc", 'getenv("X");', "a parameter"),
    ("banned_in_systems", "native/systems/x/a.cc", "ibv_post_send(q, w, b);", "fabric/fabric.h"),
    ("banned_in_systems", "native/systems/x/a.cc", "if (env.is_simulated()) {}", "a verb of Env"),
    ("banned_in_systems", "native/runtime/a.cc", "std::mutex m;", "Mutex of env/sync.h"),
    (
        "unordered_iteration",
        "native/systems/x/a.cc",
        "std::unordered_map<int, int> slots_;\nvoid f() { for (auto& [k, v] : slots_) g(k); }\n",
        "unordered container",
    ),
    (
        "unordered_iteration",
        "native/systems/x/a.h",
        "boost::unordered_flat_map<int, std::vector<int>> m_;\nauto f() { return m_.begin(); }\n",
        "unordered container",
    ),
    (
        "unordered_iteration",
        "native/runtime/a.cc",
        "std::unordered_set<int> open_;\nvoid f() { for (int i : open_) g(i); }\n",
        "unordered container",
    ),
    ("catch_all", "native/systems/x/a.cc", "try { f(); } catch (...) {}", "must unwind"),
    ("catch_all", "native/fabric/shm/a.cc", "try { f(); } catch(...) {}", "must unwind"),
    (
        "catch_all",
        "native/fabric/shm/a.cc",
        "try { f(); } catch (...) { if (a) { g(); } }\nvoid h() { throw; }\n",
        "hand it on",
    ),
    ("thread_local_state", "native/base/a.cc", "static thread_local int n;", "thread owns"),
    ("loop_over_lost_owner", "native/env/a.cc", "for (int n : view()->numbers) f(n);", "name the"),
    ("pragma_once", "native/base/a.h", "#ifndef A\n#define A\n#endif\n", "#pragma once"),
    ("leftovers", "pyrdma/a.py", "x = 1  # TODO: more\n", "finish it"),
    ("leftovers", "native/base/a.cc", "// FIXME\n", "finish it"),
    ("machine_names", "experiments/a.py", f"open('/{'root'}/data.csv')\n", "relative"),
    ("machine_names", "README.md", f"see /{'home'}/someone/pyrdma\n", "relative"),
    ("file_length", "native/base/a.cc", "\n" * 451, "at most 450"),
    ("system_readmes", "native/systems/raft/raft.h", "#pragma once\n", "README.md"),
    ("folders_in_readme", "native/extra/a.h", "#pragma once\n", "has no row"),
    ("folders_in_readme", "native/README.md", "| `gone/` | code | |\n", "does not exist"),
    ("compared_sentences", "tests/test_a.py", "raises(Error, match='no')", "errors.py"),
    (
        "compared_sentences",
        "tests/test_a.py",
        "assert 'no device' in str(caught.value)",
        "errors.py",
    ),
    (
        "compared_sentences",
        "tests/test_a.py",
        "s = str(e.value)\nassert s == 'no room'",
        "errors.py",
    ),
    ("compared_sentences", "native/base/a_test.cc", 'e.what()).find("no")', "error_test.h"),
    ("compared_sentences", "native/base/a_test.cc", 'error_of(f).find("no")', "error_test.h"),
    (
        "compared_sentences",
        "native/base/a_test.cc",
        's = error_of(f);\ns.find("a")',
        "error_test.h",
    ),
    ("compared_sentences", "native/base/a_test.cc", 's = e.what();\nEQ(s, "a b")', "error_test.h"),
]


@pytest.mark.parametrize(("name", "path", "text", "word"), BAD)
def test_rule_complains(name: str, path: str, text: str, word: str) -> None:
    complaints = RULES[name]([Source(path, text)])
    assert len(complaints) == 1, complaints
    assert word in complaints[0]
    assert complaints[0].startswith(path.rsplit("/", 1)[0])


# Files that keep the rules, although they look like a breach.
GOOD = [
    ("include_rule", "native/systems/raft/a.cc", '#include "systems/raft/log.h"\n'),
    ("include_rule", "native/systems/raft/a.cc", '#include "runtime/mesh.h"\n'),
    ("include_rule", "native/measure/a.cc", '#include "runtime/node_barrier.h"\n'),
    ("include_rule", "native/measure/a.cc", '#include "check/linear.h"\n#include "base/units.h"\n'),
    ("banned_in_systems", "native/systems/x/a.cc", "// no std::mutex here\n/* rand() */\n"),
    ("banned_in_systems", "native/systems/x/a.cc", 'throw Error("std::thread is banned");'),
    ("banned_in_systems", "native/systems/x/a.cc", "auto s = operand(3); sleep_until(t);"),
    ("banned_in_systems", "native/env/thread/a.cc", "std::mutex m;"),
    (
        "unordered_iteration",
        "native/systems/x/a.cc",
        "std::unordered_map<int, int> slots_;\nauto f() { return slots_.find(3); }\n",
    ),
    ("catch_all", "native/env/thread/a.cc", "try { f(); } catch (...) {}"),
    ("catch_all", "native/fabric/sim/a.cc", "try { f(); } catch (...) { if (a) { g(); } throw; }"),
    ("catch_all", "native/fabric/shm/a.cc", "catch (...) { e = std::current_exception(); }"),
    ("machine_names", "README.md", "the folder framework/ and a.out/work\n"),
    ("compared_sentences", "tests/test_a.py", "with raises(rd.Error, 2), x.find('a'):"),
    ("compared_sentences", "tests/test_a.py", "assert 'rxe0' in str(caught.value)"),
    ("compared_sentences", "native/a_test.cc", 's = error_of(f);\nnames(s, {"a"}); t.find("b");'),
    ("file_length", "native/base/a.cc", "\n" * 450),
]


@pytest.mark.parametrize(("name", "path", "text"), GOOD)
def test_rule_accepts(name: str, path: str, text: str) -> None:
    assert RULES[name]([Source(path, text)]) == []


def test_member_of_header_walked_in_source_is_found() -> None:
    header = Source("native/systems/x/a.h", "std::unordered_set<int> open_;\n")
    source = Source("native/systems/x/a.cc", "void f() {\n  for (int i : open_) g(i);\n}\n")
    assert rules.unordered_iteration([header, source])[0].startswith("native/systems/x/a.cc:2:")


def test_long_file_may_shrink_but_not_grow() -> None:
    file = Source("native/base/a.cc", "\n" * 500)
    assert rules.file_length([file], {file.path: 500}) == []
    assert "at most 499" in rules.file_length([file], {file.path: 499})[0]
    assert "lower its entry" in rules.file_length([file], {file.path: 501})[0]


def test_code_keeps_lines_and_drops_comments() -> None:
    file = Source("native/base/a.cc", 'a; /* x\ny */ b;\nf("// no"); // c\nd;\n')
    assert file.code == 'a; \n b;\nf(""); \nd;\n'
