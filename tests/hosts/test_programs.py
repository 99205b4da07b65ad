"""Node programs on hosts: daemons of this machine, whose nodes get the files from the driver."""

from __future__ import annotations

import functools
import importlib
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import _sent
from pyrdma._frames import MOST_PIECE, ProtocolError
from pyrdma.check import check
from pyrdma.hosts import cluster as host_clusters
from tests.errors import raises
from tests.harness.support import pyrdma
from tests.kills import killed_in_run
from tests.programs import support

MAIN = """\
import json
from helpers import steps
from helpers.sizes import SIZE

async def main(node, depth, options=None):
    from helpers import late
    node.count("size", SIZE + late.MORE)
    node.count("depth", depth)
    node.count("options", len(json.dumps(options)))
    await steps.wait(node)

async def fails(node):
    steps.fail()
"""
HELPERS = {
    "__init__.py": "",
    "sizes.py": "SIZE = 64\n",
    "late.py": "MORE = 1\n",
    "steps.py": """\
from . import sizes

async def wait(node):
    await node.sleep(0.001)

def fail():
    raise KeyError("é" * sizes.SIZE)
""",
}


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    file = tmp_path / "hosts.yml"
    file.write_text("all: {vars: {ansible_connection: local}, hosts: {h0: {pyrdma_slots: 4}}}")
    return file


@pytest.fixture
def made(inventory: Path) -> Iterator[Any]:
    with rd.Cluster.remote(inventory, nodes=3, fabric="shm") as cluster:
        yield cluster


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a program and a package of its helpers, which this process can import."""
    folder = tmp_path / "own"
    (folder / "helpers").mkdir(parents=True)
    (folder / "own_program.py").write_text(MAIN)
    for name, text in HELPERS.items():
        (folder / "helpers" / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in list(sys.modules):
        if name.split(".")[0] in ("helpers", "own_program"):
            del sys.modules[name]


def test_the_functions_of_processes_run_on_a_host(made: Any) -> None:
    result = made.program({0: support.echo, "rest": support.client}, deadline_s=20)
    assert (result.fabric, result.clock) == ("shm", "real")
    assert result.latency("rpc").count == 200
    result = made.program({0: support.register, (1, 2): support.uses_register}, model="register")
    assert check(result.history()).operations == 40
    assert check(result.history()).ok


def test_a_host_needs_no_copy_of_the_files(
    made: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = importlib.import_module("own_program")

    def sent_and_removed(file: str) -> list[dict[str, Any]]:
        messages = _sent.sources_of(file)
        shutil.rmtree(folder)
        return messages

    monkeypatch.setattr(host_clusters, "sources_of", sent_and_removed)
    options = {"a": [None, True, 1.5, "é"]}
    main = functools.partial(program.main, depth=8, options=options)
    result = made.program({1: main}, deadline_s=20)
    assert result.value("size") == 65
    assert result.value("depth") == 8
    assert result.value("options") == len(json.dumps(options))


def test_each_program_has_the_files_of_its_time(made: Any, folder: Path) -> None:
    program = importlib.import_module("own_program")
    for size in (64, 128):
        (folder / "helpers/sizes.py").write_text(f"SIZE = {size}\n")
        result = made.program({0: functools.partial(program.main, depth=1)}, deadline_s=20)
        assert result.value("size") == size + 1


def test_an_error_names_host_file_and_line(made: Any, folder: Path) -> None:
    program = importlib.import_module("own_program")
    with raises(rd.Error, "node 2", "KeyError", f"{folder}/helpers/steps.py:7"):
        made.program({2: program.fails}, deadline_s=20)


def test_a_deadline_ends_a_program(made: Any) -> None:
    with raises(rd.Timeout, "waits_for_ever", "0.05"):
        made.program(support.waits_for_ever, deadline_s=0.05)


def test_a_killed_process_ends_a_program(made: Any) -> None:
    ended = raises(rd.NodeEnded, "h0", "node 1", "SIGKILL")
    with killed_in_run(made, 1, after_s=0.1), ended:
        made.program(support.waits_for_ever, deadline_s=20)


def test_a_node_that_is_down_costs_nothing_but_the_program(made: Any) -> None:
    programs = {0: support.echo, 1: support.client}
    made.kill(1)
    with raises(rd.Error, "node 1", "restart"):
        made.program(programs, deadline_s=20)
    made.restart(1)
    assert made.program(programs, deadline_s=20).latency("rpc").count == 100


def test_a_module_that_the_host_lacks_is_named(made: Any, folder: Path) -> None:
    (folder / "own_program.py").write_text("import helpers.none\nasync def main(node):\n    pass\n")
    (folder / "helpers/none.py").write_text("")
    program = importlib.import_module("own_program")
    (folder / "helpers/none.py").unlink()
    del sys.modules["helpers.none"]
    with raises(rd.Error, "No module named 'helpers.none'", folder / "own_program.py"):
        made.program({0: program.main}, deadline_s=20)


def test_installed_modules_are_not_sent() -> None:
    files = {message["file"] for message in _sent.sources_of(__file__)}
    names = {message["module"] for message in _sent.sources_of(__file__)}
    assert {__file__, support.__file__} <= files
    assert {"tests", "tests.errors", "tests.programs.support"} <= names
    assert not {"sys", "threading", "pytest", "pyrdma", "pyrdma.check"} & names


def test_files_that_cannot_be_sent_are_refused(folder: Path) -> None:
    file = folder / "own_program.py"
    (folder / "helpers/sizes.py").write_text("SIZE = 64\n" + "#" * _sent.MOST)
    with raises(rd.InvalidArgument, folder / "helpers/sizes.py", _sent.MOST):
        _sent.sources_of(str(file))
    file.write_text("async def main(node:\n")
    with raises(rd.InvalidArgument, file, "line 1"):
        _sent.sources_of(str(file))


PIECE = {"kind": "source", "file": "/a.py", "package": False, "piece": "", "first": False}


def test_a_node_bounds_what_it_is_sent() -> None:
    piece = {**PIECE, "module": "a"}
    sent = _sent.SentSources()
    for _ in range(_sent.MOST // MOST_PIECE):
        sent.take({**piece, "piece": "#" * MOST_PIECE})
    with raises(ProtocolError, _sent.MOST + 1):
        sent.take({**piece, "piece": "#"})
    sent = _sent.SentSources()
    for number in range(_sent.MOST_MODULES):
        sent.take({**piece, "module": f"a{number}"})
    with raises(ProtocolError, _sent.MOST_MODULES + 1):
        sent.take(piece)
    with raises(ProtocolError, "a1", "belong"):
        sent.take({**piece, "module": "a1", "file": "/b.py"})


@pytest.mark.parametrize("name", ["json", "pyrdma.errors", "pyrdma.own"])
def test_a_sent_module_takes_the_place_of_no_other(name: str) -> None:
    loaded = sys.modules.get(name)
    sent = _sent.SentSources()
    sent.take({**PIECE, "module": name, "piece": "x = 1"})
    with raises(rd.InvalidArgument, name, "rename"):
        sent.begin()
    sent.begin()
    assert sys.modules.get(name) is loaded
    if sent in sys.meta_path:
        sys.meta_path.remove(sent)


def test_what_was_sent_for_a_program_that_did_not_begin_is_forgotten() -> None:
    sent = _sent.SentSources()
    for text in ("import none", "x = 1"):
        sent.take({**PIECE, "module": _sent._module_of("/a.py"), "piece": text, "first": True})
    sent.begin()
    try:
        assert sent.run("/a.py")["x"] == 1
        with raises(rd.InvalidArgument, "/b.py", "again"):
            sent.run("/b.py")
    finally:
        sys.meta_path.remove(sent)


@pytest.mark.usefixtures("folder")
def test_a_broken_sending_leaves_nothing_for_the_next_program(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise OSError(28, "no space")

    own_program = importlib.import_module("own_program")
    with monkeypatch.context() as patch:
        patch.setattr(type(made._nodes[1]), "send", broken)
        with raises(OSError, "no space"):
            made.program(own_program.main, deadline_s=20)
    with raises(rd.InvalidArgument, "closed"):
        made.program(own_program.main, deadline_s=20)


def test_files_that_cannot_be_sent_cost_nothing_but_the_program(made: Any, folder: Path) -> None:
    own_program = importlib.import_module("own_program")
    sizes = (folder / "helpers/sizes.py").read_text()
    (folder / "helpers/sizes.py").write_text("SIZE =")
    with raises(rd.InvalidArgument, folder / "helpers/sizes.py", "line 1"):
        made.program({0: functools.partial(own_program.main, depth=1)}, deadline_s=20)
    (folder / "helpers/sizes.py").write_text(sizes)
    result = made.program({0: functools.partial(own_program.main, depth=1)}, deadline_s=20)
    assert result.value("depth") == 1


@pytest.mark.parametrize("name", ["program.py", "\udcff.py"])
def test_names_that_are_no_modules_are_not_sent(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text("from experiments import *\nfrom experiments.none import a\nimport none\n")
    names = {message["module"] for message in _sent.sources_of(str(file))}
    assert names - {"experiments"} == {_sent._module_of(str(file))}


EXPERIMENT = """\
import functools
import pyrdma as rd
from experiments.test._helper import serve

async def call(node, size):
    peer = await node.connect("echo", to=0)
    assert await peer.call(bytes(size)) == bytes(size)
    node.count("size", size)

def measure(point):
    programs = {0: serve, 1: functools.partial(call, size=point["size"])}
    with point.cluster(nodes=2) as cluster:
        return cluster.program(programs, deadline_s=20)

experiment = rd.Experiment(
    id="test/calls",
    title="Calls",
    profile="cx5",
    axes={"size": rd.Axis([8])},
    measure=measure,
    max_repetitions=1,
)
"""
HELPER = """\
async def serve(node):
    async for request in await node.bind("echo"):
        await request.reply(request.data)
"""


@pytest.mark.parametrize("on_hosts", [False, True])
def test_an_experiment_has_programs_in_its_helpers(
    inventory: Path, tmp_path: Path, on_hosts: bool
) -> None:
    root = tmp_path / "experiments"
    (root / "claims").mkdir(parents=True)
    (root / "test").mkdir()
    (root / "test/calls.py").write_text(EXPERIMENT)
    (root / "test/_helper.py").write_text(HELPER)
    options = ["--inventory", str(inventory)] if on_hosts else []
    done = pyrdma(
        *("run", "test/calls", "--fabric", "shm", "--out", str(tmp_path / "results"), *options),
        cwd=tmp_path,
        PYRDMA_EXPERIMENTS=str(root),
    )
    assert "1 points measured" in done.stdout, done.stdout + done.stderr
    frame = rd.load(tmp_path / "results")
    assert set(frame[frame["metric"] == "size"]["value"]) == {8}
