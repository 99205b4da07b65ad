"""Files with a protocol of node programs: fuzzed, replayed, made smaller, refused."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import check
from pyrdma import fuzz as fuzzing
from pyrdma.commands import fuzz_output
from pyrdma.errors import InvalidArgument
from pyrdma.timeline import Options as Timelines
from tests.errors import raises, unnamed

REGISTER = """
from __future__ import annotations

from dataclasses import dataclass

import pyrdma as rd


@dataclass
class State:
    value: int = 0


state = State()


async def server(node):
    async for request in await node.bind("register"):
        if request.data:
            state.value = int(request.data)
        await request.reply(b"%d" % state.value)


async def client(node):
    peer = await node.connect("register", to=0)
    cached = None
    for i in range(10):
        if node.random.random() < 0.5:
            write = node.invoke("write", value=100 * node.id + i)
            await peer.call(b"%d" % (100 * node.id + i))
            write.ok()
        else:
            read = node.invoke("read")
            if MENDED or cached is None or node.random.random() < 0.5:
                cached = int(await peer.call()) or None
            read.ok(cached)


protocol = rd.Protocol(
    programs={0: server, "rest": client}, nodes=4, model="register", kinds=("loss", "delay")
)
"""
CALLS = """
import pyrdma as rd


async def server(node):
    async for request in await node.bind("calls"):
        await request.reply(b"")


async def client(node):
    failures = 0
    for _ in range(100):
        try:
            await (await node.connect("calls", to=0, timeout_s=0.01)).call(timeout_s=0.001)
        except rd.Error:
            failures += 1
    assert failures < 2


protocol = rd.Protocol(
    programs={0: server, "rest": client},
    nodes=3,
    faults={"qp_error.rate": 0.02, "delay": 0.01},
    heal_s=10,
)
"""
IDLE = """
import pyrdma as rd

async def main(node):
    BODY

def check(result, cluster):
    CHECK

protocol = rd.Protocol(programs=main, nodes=2, faults={}, check=check, deadline_s=0.001)
"""


@pytest.fixture
def broken(tmp_path: Path) -> str:
    return written(tmp_path, REGISTER.replace("MENDED", "False"))


def written(folder: Path, text: str) -> str:
    path = folder / "my_protocol.py"
    path.write_text(text)
    return str(path)


def idle(folder: Path, body: str = "pass", check: str = "pass") -> str:
    return written(folder, IDLE.replace("BODY", body).replace("CHECK", check))


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pyrdma", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_violation_is_found_and_replayed_bit_for_bit(broken: str, tmp_path: Path) -> None:
    ended = command("fuzz", broken, "--seeds", "3", "--out", str(tmp_path), "--json")
    assert ended.returncode == 1, ended.stderr
    first = json.loads(ended.stdout)["violations"][0]
    assert first["violations"][0]["kind"] == "register"
    assert Path(first["file"]).parent == tmp_path / "fuzz" / "my_protocol"
    history, timeline = tmp_path / "history", tmp_path / "timeline.json"
    words = [*shlex.split(first["replay"])[1:], "--history", str(history), "--json"]
    replayed = command(*words, "--timeline", str(timeline))
    assert replayed.returncode == 1, replayed.stderr
    assert json.loads(replayed.stdout)["fingerprint"] == first["fingerprint"]
    assert check.check(history).answer == "no"
    assert json.loads(timeline.read_text())


def test_a_trace_is_in_the_order_of_time_and_names_what_did_it(broken: str, tmp_path: Path) -> None:
    options = fuzzing.Options(broken, faults={"loss.rate": 0.05})
    window = Timelines(tmp_path / "t.json", window="-1us")
    found = fuzzing.run(options, 3, trace=True, timeline=window)
    times = [float(line.split()[0]) for line in found["trace"]]
    assert times == sorted(times)
    assert times[-1] > 10_000, "the window is the timeline's alone"
    assert json.loads((tmp_path / "t.json").read_text())["otherData"]["events"] < len(times)
    faults = [line for line in found["trace"] if "faults: loss" in line]
    assert len(faults) == found["fired"]["loss"] > 0
    nodes = {line.split(",")[0].partition("  ")[2] for line in found["trace"] if "  node " in line}
    assert nodes == {f"node {number}" for number in range(4)}


def test_a_seed_that_ends_early_has_a_verdict_and_no_history(tmp_path: Path) -> None:
    file = written(tmp_path, REGISTER.replace("MENDED", "False").replace("int(requ", "wrong(requ"))
    history = tmp_path / "history"
    done = command("replay", file, "--seed", "1", "--history", str(history))
    assert done.returncode == 1
    assert unnamed(done.stdout, "seed 1", "fingerprint", "NameError", "line") == []
    assert unnamed(done.stderr, history) == []
    assert not history.exists()
    done = command("replay", idle(tmp_path), "--seed", "1", "--minimise", "--history", str(history))
    assert done.returncode == 2
    assert unnamed(done.stderr, "--history", history, "model") == []


def test_a_history_that_cannot_be_judged_is_an_error_of_its_seed(tmp_path: Path) -> None:
    file = written(tmp_path, REGISTER.replace("MENDED", "False").replace("write.ok()", "pass"))
    found = fuzzing.run(fuzzing.Options(file, faults={}), 1)
    [(kind, text)] = found["violations"]
    assert kind == "error"
    assert unnamed(text, "write") == []


def test_another_fingerprint_is_told(broken: str) -> None:
    ended = command("replay", broken, "--seed", "1", "--expect", "abc")
    assert ended.returncode == 1
    assert "expected abc" in ended.stderr


def test_equal_seeds_are_equal_and_variables_begin_anew(broken: str) -> None:
    options = fuzzing.Options(broken, nodes=4)
    assert fuzzing.fuzz(options, 5, jobs=1, twice=True).differing == []
    assert fuzzing.differ(options, 1) is None
    one, two = (fuzzing.run(options, seed)["fingerprint"] for seed in (1, 2))
    assert one != two


def test_equal_on_one_worker_and_on_two(broken: str) -> None:
    options = fuzzing.Options(broken, nodes=4)
    one, two = (fuzzing.fuzz(options, 32, jobs=jobs).as_dict() for jobs in (1, 2))
    assert one == two
    assert one["operations"]["ok"] == 32 * 30
    assert not {"begun", "reconnects", "restarts", "branches", "crashed_after"} & one.keys()


def test_a_violation_is_made_smaller(broken: str) -> None:
    options = fuzzing.Options(broken, nodes=4)
    failing = (s for s in range(1, 20) if fuzzing.run(options, s)["violations"])
    seed = next(failing)
    whole = fuzzing.run(options, seed)
    smaller, found = fuzzing.minimise(options, seed)
    assert found["violations"][0][0] == "register"
    assert smaller.kinds == ()
    assert smaller.nodes in (2, 3)
    assert found["ok"] < whole["ok"]
    assert found["virtual_ns"] <= whole["virtual_ns"]
    assert "--duration" in smaller.replay(seed)


def test_the_faults_that_a_failure_needs_are_few(tmp_path: Path) -> None:
    options = fuzzing.Options(written(tmp_path, CALLS), nodes=3)
    whole = fuzzing.run(options, 1)
    assert whole["fired"]["qp_error"] > 10
    smaller, found = fuzzing.minimise(options, 1)
    assert smaller.kinds == ("qp_error",)
    assert found["violations"][0][0] == "error"
    assert 2 <= found["fired"]["qp_error"] <= 4, "two failures of one client"
    assert smaller.faults is not None
    assert smaller.faults["first_fault"] < smaller.faults["last_fault"]
    ended = command(*shlex.split(smaller.replay(1, found["fingerprint"]))[1:])
    assert "AssertionError" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.parametrize("key", ["first_fault", "last_fault"])
def test_numbers_of_faults_are_checked(key: str) -> None:
    for value in (-1, 1e16):
        with raises(InvalidArgument, key, "the number of a fault"):
            rd.Cluster.sim(2, "cx5", seed=1, faults={key: value})


def test_a_mended_protocol_passes(tmp_path: Path) -> None:
    path = written(tmp_path, REGISTER.replace("MENDED", "True"))
    ended = command("fuzz", path, "--seeds", "20", "--out", str(tmp_path))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "violations: 0 of 20 seeds failed" in ended.stdout
    assert "recoveries" not in ended.stdout, "nobody counts them"


@pytest.mark.parametrize(
    ("body", "check", "kind", "words"),
    [
        ("1 // 0", "pass", "error", ["ZeroDivisionError", "my_protocol.py, line 5"]),
        ("raise SystemExit(3)", "pass", "error", ["SystemExit: 3"]),
        ("await node.sleep(1)", "pass", "liveness", ["deadline_s"]),
        ("await node.event().wait()", "pass", "liveness", ["main"]),
        ("pass", "assert cluster.nodes == 3, 'two nodes'", "check", ["two nodes", "line 8"]),
        ("pass", "return ['first', 'second']", "check", ["first; second"]),
    ],
)
def test_a_seed_has_one_verdict(
    tmp_path: Path, body: str, check: str, kind: str, words: list[str]
) -> None:
    found = fuzzing.run(fuzzing.Options(idle(tmp_path, body, check), nodes=2), 1)
    assert [found_kind for found_kind, _ in found["violations"]] == [kind]
    assert unnamed(found["violations"][0][1], *words) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", ["my_protocol.py", "pyrdma.Protocol"]),
        ("x = 1\ny = (\n", ["SyntaxError", "my_protocol.py", "line 2"]),
        ("x = 1\nimport no_such_module\n", ["no_such_module", "my_protocol.py, line 2"]),
        ("import pyrdma\n\npyrdma.Protocol(len, model='x')\n", ["model", "my_protocol.py, line 3"]),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, text: str, words: list[str]) -> None:
    with raises(rd.Error, *words):
        fuzzing.run(fuzzing.Options(written(tmp_path, text)), 1)


@pytest.mark.parametrize("word", ["operations", "keep", "mutation", "preset"])
def test_words_of_native_systems_are_refused(
    broken: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    given: dict[str, Any] = dict.fromkeys(("operations", "keep", "mutation", "preset"))
    given[word] = "3"
    with raises(InvalidArgument, f"--{word}", "leave it out"):
        fuzz_output.options_of(
            *(broken, None, given["operations"], "cx5", "weak", [], None, given["keep"]),
            *(given["mutation"] or "", given["preset"] or ""),
        )


def test_a_native_system_has_no_duration() -> None:
    with raises(InvalidArgument, "duration_s", 1.0):
        fuzzing.run(fuzzing.Options("fabric", duration_s=1.0), 1)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    ended = command("fuzz", str(tmp_path / "none.py"))
    assert ended.returncode == 2
    assert "no such file" in ended.stderr


def test_an_error_in_a_worker_is_reported(tmp_path: Path) -> None:
    text = IDLE.replace("BODY", "pass").replace("CHECK", "pass")
    path = written(tmp_path, f"import sys\nif 'pyrdma._worker' in sys.modules: 1 // 0\n{text}")
    with raises(rd.Error, "ZeroDivisionError", "my_protocol.py, line 2"):
        fuzzing.fuzz(fuzzing.Options(path, nodes=2), 40, jobs=2)
