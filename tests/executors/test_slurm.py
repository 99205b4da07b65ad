"""Sweeps by Slurm: equal points, killed jobs, ends of all kinds.

`sh tests/run.sh deploy` runs these tests on a Slurm of its own (`slurm_bed`). Otherwise a program
stands in for Slurm (`pretended_slurm`); the tests then show what pyrdma does, not what Slurm does.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyrdma import Error, executors
from pyrdma.errors import Unavailable
from pyrdma.executors import slurm_jobs
from pyrdma.executors.slurm_jobs import SlurmJobs
from pyrdma.runs import Options, execute
from tests.errors import raises, unnamed
from tests.executors import pretended_slurm, slurm_bed
from tests.executors.processes import lives
from tests.executors.support import content, interrupt, measured, points, table, until
from tests.harness.support import COMMAND, FAKE, environment, pyrdma

IS_REAL = os.environ.get("PYRDMA_SLURM") == "1"
LOOK_S = 2.0 if IS_REAL else 0.3
only_real = pytest.mark.skipif(not IS_REAL, reason="needs Slurm: sh tests/run.sh deploy")
only_pretended = pytest.mark.skipif(IS_REAL, reason="the controller of the real one answers")
FEW: Mapping[str, Any] = {"settings": {"behaviour": "slow"}, "seeds": (1,)}
SLOW: Mapping[str, Any] = {"settings": {"behaviour": "slow"}, "quick": False, "seeds": (1, 2)}


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Start Slurm, or what stands in for it; return the environment for its programs."""
    if not IS_REAL:
        yield pretended_slurm.install(tmp_path_factory.mktemp("slurm"))
        return
    assert not slurm_bed.missing()
    with slurm_bed.slurm_bed() as made:
        yield {"SLURM_CONF": made["SLURM_CONF"]}


@pytest.fixture(autouse=True)
def here(slurm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process use Slurm, and look after the jobs more often."""
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(slurm_jobs, "LOOK_S", LOOK_S)


def queue() -> list[str]:
    """Return the jobs that have not ended."""
    words = ["squeue", "--noheader", "--format=%i"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()


def cancel_one() -> bool:
    """Cancel a job; return whether there was one: the queue may be empty between two jobs."""
    jobs = queue()
    if jobs:
        subprocess.run(["scancel", jobs[0]], check=True)
    return bool(jobs)


def folders(out: Path) -> list[Path]:
    return list(out.glob(".slurm-*"))


def test_equal_points_by_processes_and_by_slurm_whose_jobs_are_killed(
    tmp_path: Path, marks: Path
) -> None:
    execute(FAKE, Options(out=tmp_path / "processes", jobs=2, **SLOW))
    for mark in marks.iterdir():
        mark.unlink()

    def kill_and_cancel() -> None:
        until(lambda: len(points(tmp_path / "slurm")) >= 2)
        [folder] = folders(tmp_path / "slurm")
        assert folder.stat().st_mode & 0o777 == 0o700
        os.kill(measured(marks)[-1][1], signal.SIGKILL)
        until(lambda: len(points(tmp_path / "slurm")) >= 6)
        until(cancel_one)

    with SlurmJobs(2, tmp_path / "slurm") as slurm, ThreadPoolExecutor(1) as thread:
        killer = thread.submit(kill_and_cancel)
        outcome = execute(FAKE, Options(out=tmp_path / "slurm", **SLOW), slurm).outcome
        killer.result()
    assert not outcome.failed
    assert content(tmp_path / "slurm") == content(tmp_path / "processes")
    assert table(tmp_path / "slurm") == table(tmp_path / "processes")
    # A killed job loses the point that it was measuring, and no other.
    assert 24 < len(measured(marks)) <= 26
    assert queue() == []
    assert folders(tmp_path / "slurm") == []


@only_real
def test_a_point_that_kills_its_job_fails_alone(tmp_path: Path, marks: Path) -> None:
    with SlurmJobs(1, tmp_path) as slurm:
        options = Options(out=tmp_path, settings={"behaviour": "dies"})
        outcome = execute(FAKE, options, slurm).outcome
    assert outcome.measured == 3
    assert len(outcome.failed) == 1
    assert sorted(n for n, _ in measured(marks)) == [1, 2, 3, 3, 3, 4]


@only_real
def test_a_point_that_fails_is_named_and_the_others_stay(tmp_path: Path) -> None:
    with SlurmJobs(2, tmp_path) as slurm:
        options = Options(out=tmp_path, settings={"behaviour": "fails"})
        outcome = execute(FAKE, options, slurm).outcome
    [reason] = outcome.failed.values()
    assert unnamed(reason, "n = 3 is not possible") == []
    assert outcome.measured == 3


@only_real
def test_ctrl_c_ends_the_jobs_and_keeps_finished_points(tmp_path: Path, marks: Path) -> None:
    out = tmp_path / "out"
    command = ["run", FAKE, "--out", str(out), "--full", "--set", "behaviour=slow", "--seed", "1"]
    process = subprocess.Popen(
        [*COMMAND, *command, "--executor", "slurm", "--jobs", "2"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(lambda: len(points(out)) >= 2)
    interrupt(process.pid)
    _, complaints = process.communicate(timeout=60)
    assert process.returncode == 130, complaints
    assert "Traceback" not in complaints
    assert queue() == []
    assert not any(lives(worker) for _, worker in measured(marks))
    assert folders(out) == []
    done = len(points(out))
    finished = pyrdma(*command)
    assert unnamed(finished.stdout, done, 12 - done) == []


def test_what_sbatch_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "nowhere")
    with SlurmJobs(1, tmp_path) as slurm, raises(Error, "invalid partition", "SBATCH_PARTITION"):
        execute(FAKE, Options(out=tmp_path), slurm)
    assert folders(tmp_path) == []


@contextmanager
def trouble(slurm: Mapping[str, str], name: str, text: str = "") -> Iterator[Path]:
    """Let programs of the pretended Slurm fail as long as a file is there, which is yielded."""
    file = Path(slurm[pretended_slurm.PLACE], name)
    file.write_text(text)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


@only_pretended
def test_a_controller_that_is_silent_for_long_ends_the_run(
    tmp_path: Path, slurm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_jobs, "SILENCE_S", 0.5)
    monkeypatch.setattr(slurm_jobs, "END_S", 0.5)
    with (
        trouble(slurm, "silent"),
        SlurmJobs(1, tmp_path) as jobs,
        raises(Error, "Unable to contact"),
    ):
        execute(FAKE, Options(out=tmp_path, **FEW), jobs)
    until(lambda: queue() == [])


@only_pretended
def test_a_controller_that_does_not_tell_its_cores_ends_the_run(
    tmp_path: Path, slurm: Mapping[str, str]
) -> None:
    with trouble(slurm, "silent"), SlurmJobs(None, tmp_path) as jobs:
        call = jobs.submit(bytes, 3)
        with raises(Error, "sinfo", "Unable to contact"):
            call.result(20)


@only_pretended
def test_a_point_that_cannot_be_read_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(slurm_jobs, "read_regular", fail)
    with SlurmJobs(1, tmp_path) as jobs:
        call = jobs.submit(bytes, 3)
        with raises(Error, "Input/output error"):
            call.result(20)


@only_pretended
def test_a_job_that_slurm_does_not_take_waits_while_the_others_go_on(
    tmp_path: Path, slurm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_jobs, "SILENCE_S", 0.5)  # less than a job takes
    monkeypatch.setattr(slurm_jobs, "MOST_PAUSE_S", 0.5)
    with trouble(slurm, "limit", "1"), SlurmJobs(3, tmp_path) as jobs:
        outcome = execute(FAKE, Options(out=tmp_path, **FEW), jobs).outcome
    assert (outcome.measured, outcome.failed) == (4, {})
    assert queue() == []


@only_pretended
def test_a_run_of_which_slurm_takes_no_job_for_long_ends_with_its_points(
    tmp_path: Path, slurm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_jobs, "SILENCE_S", 0.5)
    monkeypatch.setattr(slurm_jobs, "MOST_PAUSE_S", 0.5)
    with (
        trouble(slurm, "limit", "1") as limit,
        ThreadPoolExecutor(1) as thread,
        SlurmJobs(2, tmp_path / "out") as jobs,
    ):
        run = thread.submit(execute, FAKE, Options(out=tmp_path / "out", **FEW), jobs)
        until(lambda: jobs._jobs)
        limit.write_text("0")
        with raises(Error, "QOS policy", "SBATCH_PARTITION"):
            run.result(60)
    assert len(points(tmp_path / "out")) == 2
    assert folders(tmp_path / "out") == []


@only_pretended
def test_a_first_job_waits_for_a_controller_that_is_silent(
    tmp_path: Path, slurm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    refused = SlurmJobs._refused

    def note(self: SlurmJobs, error: Exception) -> None:
        refused(self, error)
        asked.append(0)

    monkeypatch.setattr(SlurmJobs, "_refused", note)
    with (
        trouble(slurm, "silent") as silent,
        trouble(slurm, "limit", "0") as limit,
        SlurmJobs(1, tmp_path) as jobs,
    ):
        call = jobs.submit(bytes, 3)
        until(lambda: len(asked) == 2)
        limit.unlink()
        assert call.result(60) == bytes(3)
        silent.unlink()  # now: an answer after a refusal would end the run


@only_pretended
def test_a_first_sbatch_that_fails_although_slurm_took_its_job_is_repeated(
    tmp_path: Path, slurm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_jobs, "END_S", 2.0)
    with trouble(slurm, "unsaid"), SlurmJobs(1, tmp_path) as jobs:
        assert jobs.submit(bytes, 3).result(60) == bytes(3)
        until(lambda: not jobs._jobs)  # only the job that nobody knows may still be there
    assert queue() == []


@only_pretended
def test_jobs_see_signs_of_life_while_an_sbatch_takes_long(
    tmp_path: Path, slurm: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_jobs, "BEAT_S", 0.1)
    with SlurmJobs(1, tmp_path) as jobs, trouble(slurm, "held") as held:
        call = jobs.submit(bytes, 3)
        until(lambda: list(tmp_path.glob(".slurm-*/alive")))
        [folder] = folders(tmp_path)
        for _ in range(3):
            last = (folder / "alive").read_text()
            until(lambda: (folder / "alive").read_text() != last, 10)  # noqa: B023
        assert queue() == [], "sbatch has returned"
        held.unlink()
        assert call.result(60) == bytes(3)


@only_pretended
def test_jobs_are_cancelled_although_slurm_fails_to_answer_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = slurm_jobs._output
    failed: list[list[str]] = []

    def fail_once(command: list[str]) -> str:
        if command[0] == "scancel" and not failed:
            failed.append(command)
            raise subprocess.CalledProcessError(1, command, stderr="Unable to contact")
        return output(command)

    monkeypatch.setattr(slurm_jobs, "_output", fail_once)
    with SlurmJobs(1, tmp_path) as jobs:
        jobs.submit(time.sleep, 60)
        until(queue)
    assert failed
    assert queue() == []


def test_a_job_without_its_program_ends_and_removes_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "alive").write_text("1\n")
    code = (
        "import sys; from pathlib import Path; from pyrdma.executors import _slurm_group as group;"
        "group.FORGOTTEN_S, group.LOOK_S = 0.5, 0.1; group._end_when_forgotten(Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], check=False, timeout=30)
    assert done.returncode == 1
    assert not folder.exists()


def test_a_machine_without_slurm_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises(Unavailable, "sbatch"):
        executors.make("slurm", None, tmp_path)
