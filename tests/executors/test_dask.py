"""Sweeps by Dask: equal points, lost workers, ends of all kinds, refused addresses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pyrdma as rd
from pyrdma import InvalidArgument, executors
from pyrdma.errors import Unavailable
from pyrdma.executors import dask_client
from pyrdma.executors.local_dask import LocalDask
from pyrdma.executors.same_code import Code, ExecutorError, OtherCode
from pyrdma.runs import Options, execute
from tests.errors import raises, unnamed
from tests.executors.processes import lives
from tests.executors.support import (
    children,
    content,
    interrupt,
    left_over,
    measured,
    points,
    table,
    until,
)
from tests.harness.support import COMMAND, FAKE, SLOW, environment, pyrdma

FULL = ["run", FAKE, "--executor", "dask", "--jobs", "2", *SLOW]


@pytest.fixture(scope="module")
def dask() -> Iterator[LocalDask]:
    with LocalDask(2) as executor:
        yield executor


def scheduled(dask: LocalDask) -> int:
    return len(dask._cluster.scheduler.tasks)


@contextmanager
def certificates(dask: LocalDask) -> Iterator[None]:
    """Put the certificates of a scheduler into Dask's configuration, as its users do."""
    import dask as library

    security = dask._cluster.security
    keys = {
        "ca-file": security.tls_ca_file,
        "client.cert": security.tls_client_cert,
        "client.key": security.tls_client_key,
    }
    with library.config.set({f"distributed.comm.tls.{key}": keys[key] for key in keys}):
        yield


def test_equal_points_by_processes_and_by_dask_whose_workers_are_killed(
    tmp_path: Path, marks: Path
) -> None:
    slow: dict[str, Any] = {"settings": {"behaviour": "slow"}, "quick": False}
    execute(FAKE, Options(out=tmp_path / "processes", jobs=2, **slow))
    for mark in marks.iterdir():
        mark.unlink()
    killed: set[int] = set()

    def has_points(least: int) -> bool:
        return len(points(tmp_path / "dask")) >= least

    def kill_twice() -> None:
        for finished in (2, 6):
            until(partial(has_points, finished))
            process = measured(marks)[-1][1]
            os.kill(process, signal.SIGKILL)
            killed.add(process)

    with LocalDask(2) as dask, ThreadPoolExecutor(1) as thread:
        killer = thread.submit(kill_twice)
        outcome = execute(FAKE, Options(out=tmp_path / "dask", **slow), dask).outcome
        killer.result()
        assert not outcome.failed
        assert scheduled(dask) == 0, "a result stays with Dask"
    assert content(tmp_path / "dask") == content(tmp_path / "processes")
    assert table(tmp_path / "dask") == table(tmp_path / "processes")
    # A killed process loses what it was measuring, and a call that waited for it. What it has
    # returned is not measured again.
    assert len(killed) == 2
    assert 12 < len(measured(marks)) <= 12 + 2 * len(killed)


def test_a_point_that_kills_its_worker_fails_alone(tmp_path: Path, dask: LocalDask) -> None:
    options = Options(out=tmp_path, settings={"behaviour": "dies"})
    outcome = execute(FAKE, options, dask).outcome
    assert outcome.measured == 3
    assert len(outcome.failed) == 1
    assert len(points(tmp_path)) == 3


def test_a_point_that_fails_is_named_and_the_others_stay(tmp_path: Path, dask: LocalDask) -> None:
    options = Options(out=tmp_path, settings={"behaviour": "fails"})
    outcome = execute(FAKE, options, dask).outcome
    [reason] = outcome.failed.values()
    assert unnamed(reason, "n = 3 is not possible") == []
    assert outcome.measured == 3


def test_a_scheduler_with_certificates_takes_the_same_run(
    tmp_path: Path, dask: LocalDask, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(FAKE, Options(out=tmp_path / "here"), dask)
    address = dask._cluster.scheduler_address
    with executors.make(address, None, tmp_path) as lacking, raises(Unavailable, "ca-file"):
        lacking.submit(os.getpid)
    with certificates(dask):
        with executors.make(address, None, tmp_path) as there:
            execute(FAKE, Options(out=tmp_path / "there"), there)
        assert content(tmp_path / "here") == content(tmp_path / "there")
        monkeypatch.setattr(dask_client, "CONNECT_S", 0.5)
        nobody = executors.make("tls://127.0.0.1:1", None, tmp_path)
        with nobody, raises(Unavailable, "tls://127.0.0.1:1"):
            nobody.submit(os.getpid)


def test_a_program_ends_while_results_are_on_their_way() -> None:
    code = (
        "import os; from pyrdma.executors.local_dask import LocalDask; dask = LocalDask(1);"
        "calls = [dask.submit(os.getpid) for _ in range(200)]; calls[5].result(); dask.shutdown()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# An old Dask leaves the socket of a refused connection to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_scheduler_that_goes_ends_the_run_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_client, "CONNECT_S", 1.0)
    slow = Options(out=tmp_path, settings={"behaviour": "slow"}, quick=False)
    with LocalDask(1) as theirs:
        theirs.submit(os.getpid).result()
        address = theirs._cluster.scheduler_address

        def go() -> None:
            until(lambda: points(tmp_path))
            theirs.shutdown()

        with certificates(theirs), ThreadPoolExecutor(1) as thread:
            gone = thread.submit(go)
            there = executors.make(address, None, tmp_path)
            with there, raises(ExecutorError, address):
                execute(FAKE, slow, there)
            gone.result()
    assert points(tmp_path)


def test_a_worker_with_other_sources_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Code.here()._replace(sources="0123456789abcdef")
    monkeypatch.setattr(Code, "here", lambda: other)
    with LocalDask(1) as workers, raises(OtherCode, "0123456789abcdef"):
        execute(FAKE, Options(out=tmp_path), workers)
    assert points(tmp_path) == []


@pytest.mark.parametrize(
    "address",
    [
        "tcp://10.0.0.1:8786",
        "tcp://node-0:8786",
        "tls://node-0",
        "tls://:8786",
        "tls://node-0:99999",
        "tls://me@node-0:8786",
        "tls://node-0:8786/path",
        "ws://node-0:8786",
        "cluster",
    ],
)
def test_an_address_that_is_not_safe_is_refused(address: str, tmp_path: Path) -> None:
    with raises(InvalidArgument, repr(address)):
        executors.make(address, None, tmp_path)


def test_what_only_one_executor_has_is_refused_elsewhere(tmp_path: Path) -> None:
    with raises(InvalidArgument, "--jobs 3", "tls://node-0:8786"):
        executors.make("tls://node-0:8786", 3, tmp_path)
    done = pyrdma("run", FAKE, "--fabric", "shm", "--executor", "dask", "--out", str(tmp_path))
    assert done.returncode == 2
    assert unnamed(done.stderr, "--executor dask", "'shm'", "--fabric sim") == []
    with raises(InvalidArgument, "--executor dask", "'shm'", "--fabric sim"):
        rd.run(FAKE, fabric="shm", executor="dask", out=tmp_path)
    with raises(InvalidArgument, "'dusk'", "slurm"):
        rd.run(FAKE, executor="dusk", out=tmp_path)


def test_run_takes_an_executor(tmp_path: Path) -> None:
    usual, by_dask = (
        rd.run(FAKE, set={"n": 1}, executor=name, jobs=2, out=tmp_path / name)
        for name in ("processes", "dask")
    )
    pd.testing.assert_frame_equal(usual, by_dask)


@pytest.mark.parametrize("how", ["Ctrl-C", "kill -9"])
def test_an_end_of_any_kind_leaves_nothing_but_finished_points(how: str, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    marks = tmp_path / "marks"
    temporary.mkdir()
    marks.mkdir()
    before = left_over(temporary)
    process = subprocess.Popen(
        [*COMMAND, *FULL, "--out", str(tmp_path / "out")],
        env=environment(FAKE_MARKS=str(marks), TMPDIR=str(temporary)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(lambda: len(points(tmp_path / "out")) >= 2)
    below = children(process.pid)
    assert {worker for _, worker in measured(marks)} <= set(below)
    if how == "Ctrl-C":
        interrupt(process.pid)
    else:
        process.kill()
    _, complaints = process.communicate(timeout=30)
    assert process.returncode == (130 if how == "Ctrl-C" else -signal.SIGKILL), complaints
    assert "Traceback" not in complaints
    until(lambda: not any(map(lives, below)), 10)
    until(lambda: left_over(temporary) == before, 10)
    if how == "Ctrl-C":
        done = len(points(tmp_path / "out"))
        finished = pyrdma(*FULL, "--out", str(tmp_path / "out"))
        assert finished.returncode == 0, finished.stderr
        assert unnamed(finished.stdout, done, 12 - done) == []
