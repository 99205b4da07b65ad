"""Runs over ssh on hosts of namespaces, while nodes, daemons, sshd, driver and wires fail.

``PYRDMA_DEPLOY=1``, which ``sh tests/run.sh deploy`` sets, takes every failure, repeats each 20
times, and starts a hundred hosts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import pyrdma as rd
from pyrdma import children
from pyrdma.hosts.fleet import Fleet
from tests.errors import raises
from tests.harness.support import environment
from tests.hosts.bed import Host, Hosts, why_not_here
from tests.hosts.waiting import soon

pytestmark = [
    pytest.mark.skipif(bool(why_not_here()), reason=f"no hosts here: {why_not_here()}"),
    pytest.mark.slow,
]
DEPLOY = os.environ.get("PYRDMA_DEPLOY") == "1"
TIMES = 20 if DEPLOY else 1
COMMAND = Path(sys.executable).with_name("pyrdma")
NAMED_S = 15.0
POINTS = 5  # of each host
EXPERIMENT = """
import pyrdma as rd

def measure(point):
    with point.cluster(nodes=2) as cluster:
        load = rd.workload.VerbsLoad(op="write", size=64, depth=point["depth"])
        return cluster.run(load, duration_s=0.25)

experiment = rd.Experiment(
    id="test/hosts",
    title="Writes on hosts",
    profile="cx5",
    axes={"depth": rd.Axis([1, 2, 4, 8, 16])},
    measure=measure,
    max_repetitions=1,
)
"""


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(2) as made:
        yield made


@pytest.fixture(scope="module")
def inventory(hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return adapted(hosts, tmp_path_factory.mktemp("inventory"))


def adapted(hosts: Hosts, folder: Path, **variables: Any) -> Path:
    """Return the bed's inventory with this environment's program, of 2 slots a host."""
    document = yaml.safe_load(hosts.inventory.read_text())
    more = {"pyrdma_command": str(COMMAND), "pyrdma_slots": 2, **variables}
    document["all"]["vars"].update(more)
    file = folder / "hosts.yml"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return file


def ours(host: Host) -> dict[int, str]:
    """Return the processes of pyrdma in a host."""
    return {pid: text for pid, text in host.processes().items() if "pyrdma" in text}


class Run:
    """A run of `EXPERIMENT` over ``shm`` on all hosts, in a process of its own."""

    def __init__(
        self, inventory: Path, folder: Path, *options: str, text: str = EXPERIMENT
    ) -> None:
        (folder / "experiments/test").mkdir(parents=True, exist_ok=True)
        file = folder / "experiments/test/hosts.py"
        file.write_text(text)
        self.results = folder / "results"
        self.said = folder / "said"
        command = [COMMAND, "run", file, "--fabric", "shm", "--inventory", inventory, *options]
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                [*map(str, command), "--out", str(self.results)],
                stdout=said,
                stderr=subprocess.STDOUT,
                env=environment(),
            )

    def points(self) -> dict[str, int]:
        """Return the files of the measured points, with the times of their writing."""
        found = self.results.glob("test/hosts/shm@namespaces/points/*.jsonl")
        return {path.name: path.stat().st_mtime_ns for path in found}

    def await_points(self, count: int) -> None:
        assert soon(lambda: len(self.points()) >= count, 40), self.end()

    def end(self, limit_s: float = 60) -> tuple[int, str]:
        return self.process.wait(limit_s), self.said.read_text()


def resume(inventory: Path, run: Run, folder: Path, *options: str) -> dict[str, int]:
    """Run the same command again; check that it measures no point twice and return the points."""
    before = run.points()
    again = Run(inventory, folder, *options)
    status, said = again.end()
    assert status == 0, said
    after = again.points()
    assert {name: after[name] for name in before} == before
    return after


def test_a_whole_run(hosts: Hosts, inventory: Path, tmp_path: Path) -> None:
    run = Run(inventory, tmp_path)
    status, said = run.end()
    assert status == 0, said
    frame = rd.load(run.results)
    assert set(frame["host"]) == {"node-0", "node-1"}
    assert set(frame["testbed"]) == {"namespaces"}
    assert len(run.points()) == 2 * POINTS
    table = pd.read_parquet(run.results / "test/hosts/shm@namespaces/hosts.parquet")
    assert list(table["host"]) == ["node-0", "node-1"]
    assert list(table["hostname"]) == ["node-0", "node-1"]
    for host in hosts:
        assert soon(lambda host=host: not ours(host)), ours(host)  # type: ignore[misc]


PROGRAM = """
import socket
import pyrdma as rd
from own_helper import call

async def serve(node):
    node.count(socket.gethostname())
    async for request in await node.bind("echo"):
        await request.reply(request.data)

def measure(point):
    with point.cluster(nodes=2) as cluster:
        return cluster.program({0: serve, 1: call}, deadline_s=20)

experiment = rd.Experiment(
    id="test/hosts",
    title="Calls on hosts",
    profile="cx5",
    axes={"depth": rd.Axis([1])},
    measure=measure,
    max_repetitions=1,
)
"""
HELPER = """
async def call(node):
    peer = await node.connect("echo", to=0)
    for _ in range(10):
        start = node.now()
        await peer.call(b"x")
        node.record("call", node.now() - start)
"""


def test_an_experiment_of_node_programs(
    hosts: Hosts, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_helper.py").write_text(HELPER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = Run(inventory, tmp_path, text=PROGRAM)
    status, said = run.end()
    assert status == 0, said
    assert not any((host.root / tmp_path.relative_to("/")).exists() for host in hosts)
    frame = rd.load(run.results)
    for name in ("node-0", "node-1"):
        own = frame[(frame["host"] == name) & (frame["scope"] == "total")]
        values = own.set_index("metric")["value"]
        assert (values[name], values["call"]) == (1, 10)


def test_hosts_are_reported(inventory: Path) -> None:
    command = [str(COMMAND), "hosts", "--inventory", str(inventory), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    rows = json.loads(done.stdout)
    assert [row["host"] for row in rows] == ["node-0", "node-1"]
    assert {row["version"] for row in rows} == {rd.__version__}
    assert all("RDMA device" in row["problem"] for row in rows), "the machine has none"
    assert done.returncode == 1


def kill_in(host: Host, word: str, what: signal.Signals = signal.SIGKILL) -> None:
    victims = [pid for pid, text in ours(host).items() if word in text]
    assert victims, host.processes()
    os.kill(victims[0], what)


def kill_a_young_node(host: Host) -> None:
    """Kill a node process as soon as it starts: an older one may have measured its point."""

    def nodes() -> set[int]:
        return {pid for pid, text in ours(host).items() if "pyrdma._node" in text}

    before = nodes()

    def kill() -> bool:
        for pid in nodes() - before:
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    assert soon(kill)


FAILURES: dict[str, tuple[Callable[[Host], None], Callable[[Host], None]]] = {
    "daemon": (lambda host: kill_in(host, "daemon --stdio"), lambda _: None),
    "sshd": (lambda host: host.kill_sshd(), lambda host: host.start_sshd()),
    "wire": (lambda host: host.unplug("login"), lambda host: host.plug("login")),
}


@pytest.mark.timeout(300 * TIMES)
@pytest.mark.parametrize("failure", FAILURES if DEPLOY else ["wire"])
def test_a_lost_host_is_named_and_nothing_is_measured_twice(
    hosts: Hosts, inventory: Path, tmp_path: Path, failure: str
) -> None:
    fail, repair = FAILURES[failure]
    for time_number in range(TIMES):
        folder = tmp_path / str(time_number)
        run = Run(inventory, folder)
        run.await_points(3)
        began = time.monotonic()
        fail(hosts[1])
        assert soon(lambda run=run: "host node-1" in run.said.read_text(), NAMED_S)  # type: ignore[misc]
        took = time.monotonic() - began
        print(f"{failure}: named after {took:.1f} s")
        status, said = run.end()
        assert status == 1, said
        assert "host node-1" in said, said
        assert "--hosts '!NAME'" in said
        there = run.points()
        assert there
        repair(hosts[1])
        assert len(resume(inventory, run, folder, "--hosts", "!node-1")) >= POINTS
        assert len(resume(inventory, run, folder)) == 2 * POINTS
        for host in hosts:
            assert soon(lambda host=host: not ours(host), 30), ours(host)  # type: ignore[misc]


@pytest.mark.timeout(300 * TIMES)
def test_a_dead_node_costs_one_attempt(hosts: Hosts, inventory: Path, tmp_path: Path) -> None:
    for time_number in range(TIMES):
        run = Run(inventory, tmp_path / str(time_number))
        run.await_points(3)
        kill_a_young_node(hosts[0])
        status, said = run.end()
        assert status == 0, said
        assert re.search(r"node-0.*SIGKILL.*measured once more", said), said
        assert len(run.points()) == 2 * POINTS


@pytest.mark.timeout(300 * TIMES)
def test_a_killed_driver_leaves_nothing_on_any_host(
    hosts: Hosts, inventory: Path, tmp_path: Path
) -> None:
    for time_number in range(TIMES):
        folder = tmp_path / str(time_number)
        run = Run(inventory, folder)
        run.await_points(3)
        run.process.kill()
        run.end()
        for host in hosts:
            assert soon(lambda host=host: not ours(host), NAMED_S), ours(host)  # type: ignore[misc]
            assert not list((host.root / "dev/shm").iterdir())
            assert not list((host.root / "tmp").glob("pyrdma*"))
        assert len(resume(inventory, run, folder)) == 2 * POINTS


def test_results_of_the_first_host_are_fetched(
    hosts: Hosts, inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = Run(inventory, tmp_path)
    assert run.end()[0] == 0
    there = hosts[0].root / "var/lib/pyrdma/results"
    shutil.copytree(run.results, there)
    try:
        fetched = rd.fetch(inventory)
        assert rd.load(fetched).equals(rd.load(run.results))
        assert rd.fetch(inventory) == fetched
    finally:
        shutil.rmtree(there)


def test_an_unknown_host_key_is_refused_with_its_remedy(hosts: Hosts, tmp_path: Path) -> None:
    options = f"-o UserKnownHostsFile={tmp_path}/none -o StrictHostKeyChecking=no"
    file = adapted(hosts, tmp_path, ansible_ssh_common_args=options)
    with raises(rd.HostLost, "node-0", f"ssh {hosts[0].login}"):
        Fleet.open(file)


def test_a_point_costs_little_more_than_on_this_machine(inventory: Path) -> None:
    load = rd.workload.VerbsLoad(op="write", size=64, depth=16)

    def cost(make: Callable[[], Any]) -> float:
        best = 1e9
        for _ in range(5):
            began = time.monotonic()
            with make() as cluster:
                cluster.run(load, duration_s=0.05)
            best = min(best, time.monotonic() - began)
        return best

    with Fleet.open(inventory, "node-0") as fleet:
        here = cost(lambda: rd.Cluster.local(nodes=2, fabric="shm"))
        there = cost(lambda: rd.Cluster.remote(fleet, nodes=2, fabric="shm"))
    print(f"a point takes {here:.2f} s here and {there:.2f} s over ssh")
    assert there - here < 0.5


@pytest.mark.skipif(not DEPLOY, reason="sh tests/run.sh deploy starts a hundred hosts")
def test_a_hundred_hosts_answer_in_time(tmp_path: Path) -> None:
    with Hosts(100) as many:
        began = time.monotonic()
        with Fleet.open(adapted(many, tmp_path)) as fleet:
            took = time.monotonic() - began
            assert len(fleet.hosts) == 100
        print(f"100 hosts answered by ssh in {took:.1f} s")
    assert took < 30


def test_daemons_answer_soon_and_are_small(tmp_path: Path) -> None:
    count = 100 if DEPLOY else 20
    file = tmp_path / "hosts.yml"
    file.write_text(
        f"all: {{vars: {{ansible_connection: local}}, hosts: {{'h[001:{count:03d}]': {{}}}}}}"
    )
    began = time.monotonic()
    with Fleet.open(file) as fleet:
        took = time.monotonic() - began
        sizes = [memory(host.hello["process"]) for host in fleet.hosts]
    print(f"{count} daemons answered in {took:.1f} s, {max(sizes) / 1024:.1f} MiB at most")
    assert took < 10 * count / 100 + 1
    assert max(sizes) < 16 * 1024


def memory(pid: int) -> int:
    """Return the memory of a process in KiB, shared pages counted by their share."""
    assert children.state(pid)
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_the_line_of_the_readme_accepts_new_host_keys(hosts: Hosts, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    [line] = re.findall(r"^    (ansible all .*accept-new'.*)$", text, re.MULTILINE)
    common = f"-o UserKnownHostsFile={tmp_path / 'known'} -o IdentitiesOnly=yes"
    inventory = adapted(hosts, tmp_path, ansible_ssh_common_args=common)
    with raises(rd.HostLost, "node-0", "node-1", "Host key verification failed"):
        Fleet.open(inventory)
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=tmp_path,
        env=environment(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with Fleet.open(inventory) as fleet:
        assert [host.name for host in fleet.hosts] == ["node-0", "node-1"]
