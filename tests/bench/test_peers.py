"""The peers: parsing of their output, and the messages about missing ones."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyrdma import InvalidArgument
from pyrdma.bench import peer, peers
from pyrdma.bench.peer import PeerError
from tests.errors import raises

# The columns that ucx_perftest prints with -f -v; the numbers are made up.
UCX_HEADER = (
    "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr"
)
ALL_PEERS = (
    "ucx",
    "openmpi",
    "redis",
    "redis_wait",
    "simgrid",
    "ucx_am",
    "grpc_calls",
    "etcd",
    "cyclonedds",
    "corosync",
    "unix_sockets",
)


def parse_ucx(text: str) -> float:
    parse = vars(peers.load("ucx"))["parse_rate"]
    return float(parse(text))


def test_ucx_rate_is_the_overall_one_of_the_last_row() -> None:
    first = "1000,0.070,0.070,0.070,1.00,2.00,14000000,13000000"
    last = "2000,0.070,0.070,0.070,1.00,2.00,14500000,12500000"
    assert parse_ucx("\n".join([UCX_HEADER, first, last, ""])) == 12_500_000


@pytest.mark.parametrize(
    "text",
    ["", UCX_HEADER, "iterations,overall_lat\n10,0.1\n", f"{UCX_HEADER}\n10,0,0,0,0,0,0,0\n"],
    ids=["nothing", "no row", "no such column", "zero"],
)
def test_ucx_output_without_a_rate_is_shown(text: str) -> None:
    with pytest.raises(PeerError):
        parse_ucx(text)


def test_named_values_takes_what_is_asked_for() -> None:
    text = "get_rate_8 3.5e7\nsomething else entirely\nlock_rate 12\n"
    assert peer.named_values(text, ["lock_rate", "get_rate_8"]) == {
        "lock_rate": 12,
        "get_rate_8": 3.5e7,
    }
    with raises(PeerError, "put_rate_8"):
        peer.named_values(text, ["put_rate_8"])


@pytest.mark.parametrize("name", ALL_PEERS)
def test_a_peer_off_the_path_says_how_to_get_it(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    there = peers.load(name).available()
    assert not there.ok
    assert "not on PATH" in there.reason
    assert there.install_command.startswith("apt-get install ")


@pytest.mark.parametrize("name", ALL_PEERS)
def test_an_unknown_measurement_names_the_nearest(name: str) -> None:
    module = peers.load(name)
    known = next(iter(module.MEASUREMENTS))
    with raises(InvalidArgument, known + "x", known):
        peer.chosen([known + "x"], module.MEASUREMENTS)


@pytest.mark.parametrize("name", ALL_PEERS)
def test_a_peer_measures_and_leaves_nothing(name: str) -> None:
    module = peers.load(name)
    there = module.available()
    if not there.ok:
        pytest.skip(f"{module.NAME}: {there.reason}; to get it: {there.install_command}")
    values = module.run(seconds=0.02)
    assert set(values) == set(module.MEASUREMENTS)
    for measurement, unit in module.MEASUREMENTS.items():
        low, high = (1e-9, 1e-2) if unit == "s" else (1e2, 1e10)
        assert low < values[measurement] < high, measurement
    assert list(Path("/dev/shm").glob(f"pyrdma-peer-{os.getpid()}-*")) == []


def test_failure_shows_the_command_and_its_last_words() -> None:
    with raises(PeerError, 3, "out of luck"):
        peer.output_of(["sh", "-c", "echo out of luck >&2; exit 3"])


def test_a_program_that_does_not_end_is_killed_with_its_children() -> None:
    start = time.monotonic()
    with raises(PeerError, 0.3):
        peer.output_of(["sh", "-c", "sleep 60 & sleep 60"], limit_s=0.3)
    assert time.monotonic() - start < 10


def test_leaving_kills_the_whole_group() -> None:
    with peer.started(["sh", "-c", "sleep 60 & echo $!; wait"]) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
    deadline = time.monotonic() + 5
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pyrdma" / "peers"


def test_a_source_is_compiled_once_into_a_private_folder(cache: Path, tmp_path: Path) -> None:
    source = tmp_path / "answer.c"
    source.write_text("int main(void) { return 42; }\n", encoding="ascii")
    program = peer.compiled(source, ["gcc"])
    assert subprocess.run([program], check=False).returncode == 42
    assert stat.S_IMODE(program.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    written = program.stat().st_mtime_ns
    assert peer.compiled(source, ["gcc"]) == program
    assert program.stat().st_mtime_ns == written
    assert peer.compiled(source, ["gcc", "-O2"]) != program
    assert not list(cache.glob(".building-*"))


def test_generated_sources_are_made_again_when_their_interface_changes(
    cache: Path, tmp_path: Path
) -> None:
    source, interface = tmp_path / "answer.c", tmp_path / "answer.in"
    source.write_text('#include "answer.in"\nint main(void) { return ANSWER; }\n')
    (tmp_path / "made").mkdir()
    source = source.rename(tmp_path / "made" / "answer.c")  # the compiler does not see the original
    statuses = []
    for answer in (42, 43):
        interface.write_text(f"#define ANSWER {answer}\n")
        generator = ["cp", "--target-directory={folder}"]
        compiler = ["gcc", "-I{folder}"]
        program = peer.compiled(source, compiler, generator=generator, interface=interface)
        statuses.append(subprocess.run([program], check=False).returncode)
    assert statuses == [42, 43]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.in", "made", "pyrdma"]
    assert not list(cache.glob(".building-*"))


def test_a_source_that_does_not_compile_shows_why(cache: Path, tmp_path: Path) -> None:
    source = tmp_path / "broken.c"
    source.write_text("int main(void) { return nonsense; }\n", encoding="ascii")
    with raises(PeerError, "nonsense"):
        peer.compiled(source, ["gcc"])
    assert list(cache.iterdir()) == []


def test_a_cache_that_cannot_be_made_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="ascii")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with raises(PeerError, "XDG_CACHE_HOME"):
        peer.cache_folder()


def test_importing_the_bench_loads_no_peer() -> None:
    code = "import sys, pyrdma.bench; sys.exit(any('peer' in m for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_perftest_values_are_read_by_their_titles() -> None:
    parse = vars(peers.load("perftest"))["parse"]
    latency = (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
        "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\n"
        " 8       4000          15.96          55261.67      16.71          1311.95      4453.00"
        "      22077.13       38175.19\n---------\n"
    )
    assert parse(latency, "t_typical[usec]") == 16.71
    bandwidth = (
        " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
        " 4096       5000           35.50              34.25                0.008768\n"
    )
    assert parse(bandwidth, "BW average[MB/sec]") == 34.25
    with raises(PeerError, "t_typical[usec]"):
        parse("", "t_typical[usec]")


def test_a_member_of_etcd_that_names_itself_leads() -> None:
    is_leader = vars(peers.load("etcd"))["is_leader"]
    answer = '{"header":{"member_id":"%s","raft_term":"2"},"version":"3.4.23"%s}'
    assert is_leader(answer % (17, ',"leader":"17"'))
    assert not is_leader(answer % (17, ',"leader":"18"'))
    assert not is_leader(answer % (17, "")), "there is no leader yet"
    for text in ("", "[]", "{}", '{"header":3}', "404 page not found"):
        with raises(PeerError, "status"):
            is_leader(text)


def test_replicas_of_redis_follow_when_they_are_online() -> None:
    followers = vars(peers.load("redis_wait"))["followers"]
    answer = (
        "# Replication\r\nrole:master\r\nconnected_slaves:2\r\n"
        "slave0:ip=127.0.0.1,port=1,state=online,offset=14,lag=0\r\n"
        "slave1:ip=127.0.0.1,port=2,state=wait_bgsave,offset=0,lag=0\r\n"
    )
    assert followers(answer) == 1
    assert followers("role:master\r\nconnected_slaves:0\r\n") == 0
    for text in ("", "role:slave\r\n", "LOADING Redis is loading the dataset in memory\n"):
        with raises(PeerError, "replicas"):
            followers(text)


def test_members_of_corosync_must_agree_on_the_order() -> None:
    agreed_rate = vars(peers.load("corosync"))["agreed_rate"]
    assert agreed_rate("member 1 105.5 40 77\nmember 2 103.5 40 77\n") == 103.5
    for text in (
        "",
        "member 1 105.5 40 77\n",
        "member 1 105.5 40 77\nmember 2 103.5 41 77\n",
        "member 1 105.5 40 77\nmember 2 103.5 40 78\n",
    ):
        with raises(PeerError, "Corosync"):
            agreed_rate(text)


@pytest.mark.parametrize(
    ("name", "header"), [("cyclonedds", "dds/dds.h"), ("corosync", "corosync/cpg.h")]
)
def test_a_peer_without_its_header_is_not_there(
    name: str, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = peers.load(name)
    if not module.available().ok:
        pytest.skip(f"{module.NAME}: {module.available().reason}")
    monkeypatch.setattr(module, "has_header", lambda _: False)
    there = module.available()
    assert not there.ok
    assert header in there.reason


def test_corosync_without_namespaces_says_what_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = peers.load("corosync")
    if not module.available().ok:
        pytest.skip(f"{module.NAME}: {module.available().reason}")
    monkeypatch.setattr(module, "_PROBE", "echo no wire for you >&2; exit 3")
    there = module.available()
    assert not there.ok
    assert "no wire for you" in there.reason


def test_a_failed_daemon_of_corosync_shows_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    module = peers.load("corosync")
    if not module.available().ok:
        pytest.skip(f"{module.NAME}: {module.available().reason}")
    configuration = vars(module)["_CONFIGURATION"]
    monkeypatch.setattr(module, "_CONFIGURATION", configuration.replace("merge: 30", "join: 1"))
    with raises(PeerError, "join"):
        module.run(["rate_1024"], 0.02)


@pytest.mark.parametrize("name", ["grpc_calls", "etcd"])
def test_a_missing_header_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = peers.load(name)
    if not module.available().ok:
        pytest.skip(f"{module.NAME}: {module.available().reason}")
    monkeypatch.setattr(
        "pyrdma.bench.grpc_programs.has_header", lambda header: "google" not in header
    )
    there = module.available()
    assert not there.ok
    assert "google/protobuf/message.h" in there.reason
    assert "libprotobuf-dev" in there.install_command
