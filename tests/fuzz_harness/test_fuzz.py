"""Seeds, replay, differences and minimised failures, on the raw fabric."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from pyrdma import Cluster, check, faults
from pyrdma import fuzz as fuzzing
from pyrdma.commands import fuzz_output
from pyrdma.errors import InvalidArgument
from tests.errors import raises, unnamed

SMALL = fuzzing.Options(nodes=3, operations=200)
BUGGY = fuzzing.Options(nodes=3, operations=600, faults={}, mutation="reads_do_not_drain")


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pyrdma", *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def first_failing(options: fuzzing.Options, most: int = 60) -> int:
    for seed in range(1, most):
        if fuzzing.run(options, seed)["violations"]:
            return seed
    raise AssertionError(f"{options.mutation} is not found in {most} seeds")


def test_equal_on_one_worker_and_on_two(tmp_path: Path) -> None:
    one = fuzzing.fuzz(SMALL, 48, jobs=1, out=tmp_path)
    two = fuzzing.fuzz(SMALL, 48, jobs=2, out=tmp_path)
    assert one.as_dict() == two.as_dict()
    assert one.seeds == 48
    assert one.operations["ok"] > 48 * 150


def test_twice_finds_no_difference() -> None:
    summary = fuzzing.fuzz(SMALL, 32, jobs=1, twice=True)
    assert summary.differing == []


def test_bound_of_seeds_that_did_not_fail() -> None:
    summary = fuzzing.Summary("fabric", seeds=1000)
    assert summary.bound == pytest.approx(0.002991, rel=1e-3)
    summary.differing = [3]
    assert summary.bound is None


@pytest.mark.parametrize("mutation", ["unordered_writes", "reads_do_not_drain"])
def test_a_bug_is_found_replayed_and_made_small(mutation: str) -> None:
    options = replace(BUGGY, mutation=mutation)
    seed = first_failing(options)
    healthy = fuzzing.run(replace(options, mutation=""), seed)
    assert healthy["violations"] == []

    found = fuzzing.run(options, seed)
    words = shlex.split(options.replay(seed, found["fingerprint"]))
    replayed = command(*words[1:], "--json")
    assert replayed.returncode == 1
    document = json.loads(replayed.stdout)
    assert document["fingerprint"] == f"{found['fingerprint']:016x}"
    assert document["violations"] == [list(violation) for violation in found["violations"]]

    smaller, run = fuzzing.minimise(options, seed)
    assert run["violations"][0][0] == found["violations"][0][0]
    assert smaller.kept is not None
    assert sum(high - low + 1 for low, high in smaller.kept) <= 40


def test_a_wrong_fingerprint_is_told() -> None:
    options = replace(SMALL, faults={})
    fingerprint = fuzzing.run(options, 1)["fingerprint"]
    assert command(*shlex.split(options.replay(1, fingerprint))[1:]).returncode == 0
    replayed = command(*shlex.split(options.replay(1, 0xABC))[1:])
    assert replayed.returncode == 1
    assert unnamed(replayed.stderr, f"{fingerprint:016x}", f"{0xABC:016x}") == []


def test_faults_that_are_not_needed_are_dropped() -> None:
    options = replace(
        BUGGY, mutation="unordered_writes", faults={"delay.rate": 0.01, "cache_miss.rate": 0.05}
    )
    alone = replace(options, kinds=())

    def complaint(which: fuzzing.Options, seed: int) -> str | None:
        found = fuzzing.run(which, seed)["violations"]
        return found[0][0] if found else None

    seed = next(
        seed
        for seed in range(1, 200)
        if complaint(options, seed) is not None
        and complaint(options, seed) == complaint(alone, seed)
    )
    smaller, _ = fuzzing.minimise(options, seed)
    assert smaller.kinds == ()


def test_a_seed_that_does_not_fail_cannot_be_made_smaller() -> None:
    with raises(InvalidArgument, 1):
        fuzzing.minimise(replace(SMALL, faults={}), 1)


def test_leaving_operations_out_changes_no_other() -> None:
    options = replace(SMALL, faults={})
    whole = fuzzing.run(options, 5, trace=True)
    part = fuzzing.run(replace(options, kept=((0, 99),)), 5, trace=True)

    def operations(found: dict[str, list[str]]) -> set[tuple[str, str]]:
        posted = (line.split("posts  ")[1].split() for line in found["trace"] if "posts" in line)
        return {(words[0], words[1].rstrip(",")) for words in posted}

    assert operations(part) < operations(whole)
    assert {int(number) for _, number in operations(part)} <= {*range(100), 200}


def test_a_difference_is_reported_at_its_first_event() -> None:
    options = replace(SMALL, faults={}, mutation="nondeterminism")
    for _ in range(20):  # two addresses may be equal
        where = fuzzing.differ(options, 1)
        if where is not None:
            break
    assert where is not None
    assert where.startswith("event ")
    assert "node1" in where or "link 1" in where
    assert fuzzing.differ(SMALL, 1) is None


def test_command_stores_what_fails(tmp_path: Path) -> None:
    words = ["fuzz", "fabric", "--seeds", "40", "--nodes", "3", "--operations", "600"]
    words += ["--faults", "none", "--mutation", "unordered_writes", "--json"]
    ended = command(*words, "--out", str(tmp_path))
    assert ended.returncode == 1, ended.stderr
    summary = json.loads(ended.stdout)
    assert summary["seeds"] == 40
    assert summary["failed_seeds"] == len(summary["violations"]) > 0
    stored = json.loads(Path(summary["violations"][0]["file"]).read_text())
    assert stored["replay"].startswith("pyrdma replay fabric --seed ")
    assert stored["violations"][0]["kind"] in ("read", "send")


def test_a_record_that_cannot_be_written_costs_no_result(tmp_path: Path) -> None:
    options = fuzzing.Options("fabric", 3, 600, faults={}, mutation="unordered_writes")
    failing = next(s for s in range(1, 99) if fuzzing.run(options, s)["violations"])
    (tmp_path / f"fuzz/fabric/seed-{failing}.json").mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match=f"seed-{failing}.json"):
        summary = fuzzing.fuzz(options, 1, failing, out=tmp_path)
    assert summary.violations[0]["seed"] == failing
    assert "file" not in summary.violations[0]


def test_command_without_failures(tmp_path: Path) -> None:
    words = ["fuzz", "fabric", "--seeds", "16", "--nodes", "3", "--operations", "100"]
    ended = command(*words, "--faults", "loss.rate=0.01", "--out", str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert unnamed(ended.stdout, 0, 16, "loss") == []
    assert not list(tmp_path.iterdir())


def test_a_history_that_the_checker_gives_up_on_is_not_passed() -> None:
    found = fuzzing.run(SMALL, 1)
    summary = fuzzing.Summary("fabric")
    for seed in range(1, 11):
        summary.add({**found, "seed": seed, "undecided": ["register"] if seed > 5 else []})
    assert summary.undecided == [6, 7, 8, 9, 10]
    assert summary.bound == pytest.approx(1 - 0.05 ** (1 / 5))
    assert summary.too_many_undecided


@pytest.mark.parametrize(("given_up", "fails"), [(1, False), (2, True)])
def test_as_many_histories_may_be_undecided_as_the_share_leaves_out(
    given_up: int, fails: bool
) -> None:
    found = fuzzing.run(SMALL, 1)
    summary = fuzzing.Summary("fabric", shares={"kv": 0.9})
    for seed in range(10):
        summary.add({**found, "seed": seed, "undecided": ["kv", "kv"] if seed < given_up else []})
    assert summary.too_many_undecided is fails
    summary.shares = {"end": 0.9}  # none for this check
    assert summary.too_many_undecided


def test_operations_begin_under_faults_and_crashes_come_late() -> None:
    summary = fuzzing.fuzz(replace(SMALL, operations=600), 48, jobs=1)
    assert summary.begun_under_faults >= summary.begun / 2 > 0
    assert sum(begun >= 50 for begun in summary.crashed_after) > 5


def test_faults_that_a_scenario_cannot_have_are_refused() -> None:
    for words in (["--kinds", "partition"], ["--faults", "disk_rot.rate=0.1"]):
        ended = command("fuzz", "fabric", "--seeds", "1", "--operations", "10", *words)
        assert ended.returncode == 0, ended.stderr
    for system in fuzzing.systems():
        kinds = {kind["key"] for kind in faults.table()}
        for refused in sorted(kinds - set(system["faults"])):
            with pytest.raises(InvalidArgument) as raised:
                fuzzing.fuzz(fuzzing.Options(system["name"], kinds=(refused,)), 1)
            assert unnamed(str(raised.value), system["name"], refused) == []


def test_nothing_is_left_of_a_killed_group() -> None:
    words = [sys.executable, "-m", "pyrdma", "fuzz", "fabric", "--seeds", "100000", "--jobs", "2"]
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while sum(map(_maps_core, members := _session(process.pid))) < 3:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            maps = "".join(Path(f"/proc/{member}/maps").read_text() for member in members)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    while any(Path(f"/proc/{member}").exists() for member in members):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert [name for name in re.findall(r"/dev/shm/\S+", maps) if Path(name).exists()] == []


def _session(leader: int) -> list[int]:
    """Return the processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[3]) == leader:
                found.append(int(stat.parent.name))
    return found


def _maps_core(process: int) -> bool:
    """Return whether a process has the native module, as those do that run seeds."""
    with suppress(OSError):
        return "_core" in Path(f"/proc/{process}/maps").read_text()
    return False


def test_trace_and_history(tmp_path: Path) -> None:
    trace, history = tmp_path / "trace.txt", tmp_path / "history.jsonl"
    words = shlex.split(replace(SMALL, faults={}).replay(7))
    ended = command(*words[1:], "--trace", str(trace), "--history", str(history))
    assert ended.returncode == 0, ended.stderr
    assert " ns  node " in trace.read_text()
    checked = command("check", str(history))
    assert checked.returncode == 0, checked.stderr
    assert "register" in checked.stdout


def test_every_history_names_the_model_that_judged_it() -> None:
    models = set()
    for system in fuzzing.systems():
        if not system["has_histories"]:
            continue
        options = fuzzing.Options(system=system["name"], nodes=5, operations=300)
        for seed in (3, 4):  # with a thread whose clock is behind another's
            found = fuzzing.run(options, seed, history=True)
            verdicts = [(model, check.check(text.encode())) for model, text in found["histories"]]
            assert all(verdict.ok and verdict.model == model for model, verdict in verdicts)
            assert sum(verdict.operations for _, verdict in verdicts) <= found["checked"]
            models |= {model for model, _ in verdicts}
        assert not fuzzing.run(options, seed)["histories"], "nobody asked for them"
    assert models == {"register", "counter", "fifo", "mutex", "barrier", "kv", "map", "multicast"}


def test_a_violated_history_goes_to_the_named_file_and_others_beside_it(tmp_path: Path) -> None:
    found = {
        "histories": [("counter", "c"), ("kv", "k"), ("fifo", "f")],
        "violations": [("kv", "a stale read")],
        "undecided": [],
    }
    fuzz_output._write_histories(str(tmp_path / "h.jsonl"), "a", found)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {"h.jsonl": "k", "h-counter.jsonl": "c", "h-fifo.jsonl": "f"}


def test_a_system_without_histories_says_why_and_writes_nothing(tmp_path: Path) -> None:
    name = next(each["name"] for each in fuzzing.systems() if not each["has_histories"])
    ended = command(
        *("replay", name, "--seed", "1", "--history", str(tmp_path / "h.jsonl")),
        *("--trace", str(tmp_path / "trace.txt")),
    )
    assert ended.returncode == 2
    assert unnamed(ended.stderr, name, "history", "judge", "trace") == []
    assert list(tmp_path.iterdir()) == []


def test_a_seed_without_histories_is_named() -> None:
    found: dict[str, list[object]] = {"histories": [], "violations": [], "undecided": []}
    with raises(InvalidArgument, "h.jsonl", "some_system", "--history"):
        fuzz_output._write_histories("h.jsonl", "some_system", found)


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["fuzz", "farbic"], ["farbic", "fabric"]),
        (["fuzz", "fabric", "--memory", "soft"], ["soft", "weak", "strong"]),
        (["fuzz", "fabric", "--faults", "loss"], ["loss", "KEY=VALUE"]),
        (["fuzz", "fabric", "--faults", "lost.rate=1"], ["lost"]),
        (["fuzz", "fabric", "--mutation", "x"], ["x"]),
        (["replay", "fabric", "--seed", "1", "--keep", "a-b"], ["a-b"]),
        (["fuzz", "fabric", "--seeds", "9999", "--out", __file__], ["--out", __file__]),
        (["replay", "fabric", "--seed", "1", "--history", "/"], ["--history", "/"]),
        (["replay", "fabric", "--seed", "1", "--trace", f"{__file__}/t"], ["--trace", __file__]),
    ],
)
def test_wrong_options_are_named(words: list[str], values: list[str]) -> None:
    ended = command(*words)
    assert ended.returncode == 2
    assert unnamed(ended.stderr, *values) == []


def test_ranges() -> None:
    assert fuzzing.parse_ranges("3,5-9\n12") == ((3, 3), (5, 9), (12, 12))


def test_a_seed_draws_its_configuration() -> None:
    [system] = [each for each in fuzzing.systems() if each["name"] == "fabric"]
    runs = [fuzzing.run(fuzzing.Options(), seed) for seed in range(1, 41)]
    nodes = {found["nodes"] for found in runs}
    operations = [found["operations"] for found in runs]
    assert nodes == set(range(system["fewest_nodes"], system["usual_nodes"] + 1))
    assert 64 <= min(operations) < 200 < 2000 < max(operations) <= system["usual_operations"]
    assert {found["weak"] for found in runs} == {True, False}
    assert 1 in [found["faults"].get("crash.windows") for found in runs]
    given = fuzzing.run(fuzzing.Options(nodes=3, operations=77, weak=False), 5)
    assert (given["nodes"], given["operations"], given["weak"]) == (3, 77, False)


def test_windows_are_spread_over_the_operations() -> None:
    fired: Counter[str] = Counter()
    having = [each["name"] for each in fuzzing.systems() if "slow_node" in each["faults"]]
    for name in having:
        options = fuzzing.Options(name, operations=200, faults={"slow_node.windows": 3})
        for seed in range(1, 4):
            fired[name] += fuzzing.run(options, seed)["fired"].get("slow_node", 0)
    assert all(fired[name] for name in having), fired
    with raises(InvalidArgument, "crash.windows", "crash.rate"):
        Cluster.sim(2, "cx5", 1, faults={"crash.windows": 1})
    with raises(InvalidArgument, "loss has no windows", "loss.rate"):
        fuzzing.run(fuzzing.Options(faults={"loss.windows": 1}), 1)


def test_a_check_that_too_few_seeds_make_fails_the_search() -> None:
    summary = fuzzing.Summary("fabric", shares={"often": 0.5, "always": 1.0, "never": 0.5})
    found = {**fuzzing.run(SMALL, 1), "checks": {"often": "", "always": "", "never": "no reason"}}
    for _ in range(60):
        summary.add(found)
    assert summary.rare_checks == ["never"]
    assert summary.checks["never"].skipped == {"no reason": 60}
    assert summary.as_dict()["checks"]["often"]["made"] == 60
    few = fuzzing.Summary("fabric", shares={"never": 0.5})
    few.add(found)
    assert few.rare_checks == [], "one seed proves nothing"


def test_what_no_seed_reached_is_listed() -> None:
    words = ("fuzz", "fabric", "--seeds", "2", "--faults", "loss.rate=0.01", "--operations", "100")
    plain, listed = command(*words), command(*words, "--coverage", "--json")
    assert plain.returncode == 0, plain.stderr
    assert "memory" in plain.stdout, "the end checks"
    document = json.loads(listed.stdout)
    assert listed.returncode == (1 if document["never"] else 0)
    assert "check log after a crash" in document["never"]
