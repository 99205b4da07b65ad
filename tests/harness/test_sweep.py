"""Sweeps: kept points, points measured again, and failures."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pyrdma import Error, InvalidArgument, registry
from pyrdma.commands.experiments import _seeds
from pyrdma.data import COLUMNS
from pyrdma.executors.same_code import Code, OtherCode
from pyrdma.files import DiskFull, write_atomically
from pyrdma.points import measure, median_interval
from pyrdma.runs import Options, execute
from pyrdma.sweep import Sweep
from pyrdma.workers import Workers
from tests.errors import raises, unnamed
from tests.harness.support import COMMAND, FAKE, SLOW, environment, pyrdma


def canonical(out: Path) -> str:
    """Return a hash of the results as text with all digits."""
    frame = pd.read_parquet(out / "fake/numbers/sim/results.parquet")
    return hashlib.sha256(frame.to_csv(index=False, float_format="%.17g").encode()).hexdigest()


def marks(folder: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in folder.iterdir())


def test_equal_with_one_and_two_workers_and_other_with_another_seed(tmp_path: Path) -> None:
    for name, jobs, seed in (("one", 1, 7), ("two", 2, 7), ("other", 2, 8)):
        execute(FAKE, Options(out=tmp_path / name, jobs=jobs, seeds=(seed,)))
    assert canonical(tmp_path / "one") == canonical(tmp_path / "two")
    assert canonical(tmp_path / "one") != canonical(tmp_path / "other")


def test_writes_the_table_the_histograms_the_figures_and_the_provenance(tmp_path: Path) -> None:
    report = execute(FAKE, Options(out=tmp_path))
    folder = tmp_path / "fake/numbers/sim"
    assert [p.name for p in report.figures] == ["numbers.png", "numbers.pdf"]
    frame = pd.read_parquet(folder / "results.parquet")
    assert {"series", "n", *COLUMNS} <= set(frame.columns)
    assert (frame["clock"] == "virtual").all()
    assert frame["machine"].str.contains("cores").all()
    document = json.loads((folder / "run.json").read_text())
    assert document["provenance"]["cpu"]["level"].startswith("x86-64-v")
    assert document["profiles"]["cx5"]["values"]["link.rate_gbps"]


def test_what_is_done_is_not_measured_again(tmp_path: Path, monkeypatch: Any) -> None:
    log = tmp_path / "marks"
    log.mkdir()
    monkeypatch.setenv("FAKE_MARKS", str(log))
    assert execute(FAKE, Options(out=tmp_path)).outcome.measured == 4
    again = execute(FAKE, Options(out=tmp_path)).outcome
    assert (again.measured, again.reused) == (0, 4)
    more = execute(FAKE, Options(out=tmp_path, settings={"n": 9})).outcome
    assert (more.measured, more.reused) == (1, 0)
    assert marks(log) == ["1", "2", "3", "4", "9"]
    assert execute(FAKE, Options(out=tmp_path, fresh=True)).outcome.measured == 4


def test_a_killed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "marks"
    log.mkdir()
    arguments = ["run", FAKE, "--out", str(tmp_path / "out"), *SLOW]
    with subprocess.Popen(
        [*COMMAND, *arguments, "--jobs", "1"],
        env=environment(FAKE_MARKS=str(log)),
        stdout=subprocess.DEVNULL,
    ) as process:
        points = tmp_path / "out/fake/numbers/sim/points"
        deadline = time.monotonic() + 60
        while len(list(points.glob("*.jsonl"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
    done = len(list(points.glob("*.jsonl")))
    assert 3 <= done < 12
    workers = {int(path.name.split("-")[1]) for path in log.iterdir()}
    assert _gone(workers), "a worker outlived the killed run"
    finished = pyrdma(*arguments, FAKE_MARKS=str(log))
    assert finished.returncode == 0, finished.stderr
    assert unnamed(finished.stdout, done, 12 - done) == []
    frame = pd.read_parquet(tmp_path / "out/fake/numbers/sim/results.parquet")
    assert sorted(frame["n"].unique()) == list(range(1, 13))


def test_ctrl_c_keeps_what_was_measured_and_leaves_no_process(tmp_path: Path) -> None:
    log = tmp_path / "marks"
    log.mkdir()
    arguments = ["run", FAKE, "--out", str(tmp_path / "out"), *SLOW]
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--jobs", "2"],
        env=environment(FAKE_MARKS=str(log)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    points = tmp_path / "out/fake/numbers/sim/points"
    deadline = time.monotonic() + 60
    # Many points are still pending then; the pool must end without an error.
    while len(list(points.glob("*.jsonl"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, complaints = process.communicate(timeout=30)
    assert process.returncode == 130, complaints
    assert "Traceback" not in complaints
    assert _gone({int(path.name.split("-")[1]) for path in log.iterdir()})
    done = len(list(points.glob("*.jsonl")))
    finished = pyrdma(*arguments)
    assert finished.returncode == 0, finished.stderr
    assert unnamed(finished.stdout, done, 12 - done) == []


def test_an_interrupted_pool_ends_before_its_points_are_cancelled(tmp_path: Path) -> None:
    """A pool whose processes die raises an error at futures that are already cancelled."""
    futures: list[Future[Any]] = []
    cancelled: list[bool] = []

    class Interrupted(Workers):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            futures.append(Future())
            if len(futures) == 4:
                raise KeyboardInterrupt
            return futures[-1]

        def kill(self) -> None:
            cancelled.extend(future.cancelled() for future in futures)

    with pytest.raises(KeyboardInterrupt):
        execute(FAKE, Options(out=tmp_path), executor=Interrupted())
    assert cancelled == [False] * 4


def test_sweeps_share_workers_also_after_one_has_died(tmp_path: Path) -> None:
    def processes(workers: Workers) -> set[int]:
        return {workers.submit(os.getpid).result() for _ in range(20)}

    with Workers(1) as workers:
        [first] = processes(workers)
        for name in ("one", "two"):
            report = execute(FAKE, Options(out=tmp_path / name), executor=workers)
            assert not report.outcome.failed
        assert processes(workers) == {first}, "no sweep has ended them"
        os.kill(first, signal.SIGKILL)
        report = execute(FAKE, Options(out=tmp_path / "three"), executor=workers)
        assert not report.outcome.failed
        [second] = processes(workers)
        assert second != first
    assert _gone({first, second})


def test_a_stopped_worker_is_named_with_its_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def notices() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "pyrdma"]

    monkeypatch.setattr("pyrdma.workers.LOOK_S", 0.05)
    with Workers(1) as workers, ThreadPoolExecutor(1) as thread:
        process = workers.submit(os.getpid).result()
        os.kill(process, signal.SIGSTOP)
        sweep = thread.submit(execute, FAKE, Options(out=tmp_path), executor=workers)
        deadline = time.monotonic() + 20
        while not notices() and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process, signal.SIGCONT)
        assert sweep.result().outcome.measured == 4
    [notice] = notices()
    assert unnamed(notice, process, "behaviour=good, n=1", f"kill -CONT {process}") == []


def test_an_error_of_a_worker_shows_its_file_and_line() -> None:
    with Workers(1) as workers, pytest.raises(FileNotFoundError) as caught:
        workers.submit(os.listdir, "/nowhere").result()
    assert unnamed(caught.value.__cause__, "_worker.py", "line") == []


def test_a_function_of_the_main_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "__module__", "__main__")
    with Workers(1) as workers, raises(InvalidArgument, "canonical"):
        workers.submit(canonical, Path())


def _gone(processes: set[int]) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any(_lives(p) for p in processes):
            return True
        time.sleep(0.05)
    return False


def _lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_point_that_kills_its_worker_fails_alone(tmp_path: Path) -> None:
    outcome = execute(FAKE, Options(out=tmp_path, settings={"behaviour": "dies"})).outcome
    assert outcome.measured == 3
    assert len(outcome.failed) == 1


def test_a_point_that_fails_is_named_and_the_others_stay(tmp_path: Path) -> None:
    done = pyrdma("run", FAKE, "--out", str(tmp_path), "--set", "behaviour=fails", "--seed", "1")
    assert done.returncode == 1
    assert unnamed(done.stderr, 1, "n = 3 is not possible; choose another") == []
    document = json.loads((tmp_path / "fake/numbers/sim/run.json").read_text())
    assert [entry["params"]["n"] for entry in document["failed"]] == [3]
    frame = pd.read_parquet(tmp_path / "fake/numbers/sim/results.parquet")
    assert sorted(frame["n"].unique()) == [1, 2, 4]


def test_a_full_disk_ends_the_run_and_keeps_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = tmp_path / "fake/numbers/sim/points"
    replace = Path.replace

    def full_at_the_third(self: Path, target: Path) -> Path:
        if len(list(points.glob("*.jsonl"))) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target), None, str(self))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full_at_the_third)
    with raises(DiskFull, points):
        execute(FAKE, Options(out=tmp_path, jobs=1))
    assert len(list(points.glob("*.jsonl"))) == 2


@pytest.mark.parametrize("wrong", ["another point", "no point", "numbers of nobody"])
def test_bytes_that_are_not_of_the_point_are_not_written(wrong: str, tmp_path: Path) -> None:
    class Liar(ThreadPoolExecutor):
        def submit(self, *arguments: Any, **named: Any) -> Future[Any]:
            honest = super().submit(*arguments, **named).result()
            self.first = getattr(self, "first", honest)
            lie: Future[Any] = Future()
            lie.set_result(
                {
                    "another point": self.first,
                    "no point": b"no point",
                    "numbers of nobody": honest.replace(b"op/s", b"ap/s"),
                }[wrong]
            )
            return lie

    with Liar(1) as executor:
        outcome = execute(FAKE, Options(out=tmp_path), executor=executor).outcome
    stored = list((tmp_path / "fake/numbers/sim/points").iterdir())
    assert len(stored) == outcome.measured == (1 if wrong == "another point" else 0)
    assert len(outcome.failed) == 4 - outcome.measured


def test_a_worker_with_other_code_names_the_difference(tmp_path: Path) -> None:
    experiment = registry.load(FAKE)
    sweep = Sweep(FAKE, experiment, list(experiment.points()), tmp_path)
    arguments = sweep.arguments(sweep.tasks()[0])
    assert measure(*arguments, Code.here())
    for other, different in (
        (Code.here()._replace(sources="0123456789abcdef"), "0123456789abcdef"),
        (Code.here()._replace(python="2.7"), "2.7"),
    ):
        with raises(OtherCode, platform.node(), different):
            measure(*arguments, other)


def test_a_worker_with_another_experiment_ends_the_run(tmp_path: Path) -> None:
    file = tmp_path / "fake_experiment.py"
    file.write_text(Path(FAKE).read_text())
    experiment = registry.load(str(file))
    sweep = Sweep(str(file), experiment, list(experiment.points()), tmp_path / "out")
    file.write_text(Path(FAKE).read_text().replace("1e6 *", "2e6 *"))
    with ThreadPoolExecutor(1) as worker, raises(OtherCode, platform.node(), file):
        sweep.run(executor=worker)
    file.unlink()
    with ThreadPoolExecutor(1) as worker, raises(OtherCode, platform.node(), file):
        sweep.run(executor=worker)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small file system")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounted.returncode:
        pytest.skip(f"no small file system here: {mounted.stderr.strip()}")
    try:
        done = pyrdma("run", FAKE, "--out", str(small), "--full", "--seed", "1")
        assert done.returncode == 1
        assert unnamed(done.stderr, small / "fake/numbers/sim") == []
        assert "Traceback" not in done.stderr
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    target = tmp_path / "table"
    write_atomically(target, b"old")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with raises(DiskFull, target):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["table"]


def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    # Root may write everywhere except below a file and to /proc.
    folder = Path("/proc/nowhere") if os.getuid() == 0 else tmp_path / "locked"
    if os.getuid() != 0:
        folder.mkdir(mode=0o500)
    done = pyrdma("run", FAKE, "--out", str(folder))
    assert done.returncode == 1
    assert unnamed(done.stderr, f"{folder}/fake/numbers/sim", "--out") == []
    assert "Traceback" not in done.stderr


def test_two_runs_do_not_measure_into_one_folder(tmp_path: Path) -> None:
    experiment = registry.load(FAKE)
    folder = tmp_path / "shared"
    sweep = Sweep(FAKE, experiment, list(experiment.points()), folder)
    code = (
        "import sys, time; from pathlib import Path; from pyrdma.store import Store;"
        "store = Store(Path(sys.argv[1]), 'fake/numbers', 'sim');"
        "print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, env=environment()
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with raises(Error, holder.pid):
            sweep.run()
        holder.kill()
    assert sweep.run().measured == 4


def test_any_executor_will_do(tmp_path: Path) -> None:
    executor: Executor
    with ThreadPoolExecutor(2) as executor:
        assert execute(FAKE, Options(out=tmp_path), executor=executor).outcome.measured == 4


def test_real_time_points_repeat_until_their_median_is_known(tmp_path: Path) -> None:
    execute(FAKE, Options(out=tmp_path, fabric="shm"))
    frame = pd.read_parquet(tmp_path / "fake/numbers/shm/results.parquet")
    assert (frame["clock"] == "real").all()
    repetitions = frame.groupby(["n", "series"])["repetition"].nunique()
    # Six values are the least that bound a median at 95 %; the fake's noise is 0.01 %.
    assert (repetitions == 6).all()


def repetitions(out: Path) -> list[int]:
    frame = pd.read_parquet(out / "fake/numbers/shm/results.parquet")
    return sorted(set(frame.groupby(["n", "seed"])["repetition"].nunique()))


def test_a_given_number_of_repetitions_is_measured_and_stored_apart(tmp_path: Path) -> None:
    """The fake's target asks for six; a given number takes its place."""
    of_shm: dict[str, Any] = {"out": tmp_path, "fabric": "shm", "settings": {"n": 1}}
    assert execute(FAKE, Options(**of_shm, repetitions=8, seeds=(1, 2))).outcome.measured == 16
    assert repetitions(tmp_path) == [8]
    more = execute(FAKE, Options(**of_shm, repetitions=10, seeds=(1, 2))).outcome
    assert (more.measured, more.reused) == (4, 16)
    assert repetitions(tmp_path) == [10]
    fresh = execute(FAKE, Options(**of_shm, repetitions=3, seeds=(1, 2), fresh=True)).outcome
    assert fresh.measured == 6
    assert repetitions(tmp_path) == [3], "no old repetition stays beside new ones"


def test_repetitions_on_sim_are_refused_with_what_is_wanted(tmp_path: Path) -> None:
    done = pyrdma("run", FAKE, "--out", str(tmp_path), "--repetitions", "5")
    assert done.returncode == 2
    assert unnamed(done.stderr, "equal seeds give equal numbers", "--seeds 1-5", "sim") == []


def test_seeds_of_the_command_line_are_measured(tmp_path: Path) -> None:
    done = pyrdma("run", FAKE, "--out", str(tmp_path), "--set", "n=1", "--seeds", "1-3,7")
    assert done.returncode == 0, done.stderr
    frame = pd.read_parquet(tmp_path / "fake/numbers/sim/results.parquet")
    assert sorted(set(frame["seed"])) == [1, 2, 3, 7]


def test_seeds_are_a_number_or_ranges() -> None:
    assert _seeds(None, None) is None
    assert _seeds(5, None) == [5]
    assert _seeds(None, "3") == [1, 2, 3]
    assert _seeds(5, "2") == [5, 6]
    assert _seeds(None, "2-4") == [2, 3, 4]
    assert _seeds(None, "1-3, 7") == [1, 2, 3, 7]


@pytest.mark.parametrize(
    ("seed", "seeds", "named"),
    [
        (None, "4-2", "'4-2'"),
        (None, "1-3,,5", "''"),
        (None, "-3", "'-3'"),
        (None, "all", "'all'"),
        (None, "0", "0 seeds"),
        (None, "0-18446744073709551615", "18446744073709551616 seeds"),
        (None, "18446744073709551616-18446744073709551617", "18446744073709551617"),
        (None, "99999999999999999999", "1000000"),
        (2**64 - 1, "2", "18446744073709551616"),
        (5, "1-3", "--seed 5"),
    ],
)
def test_wrong_seeds_are_named(seed: int | None, seeds: str, named: str) -> None:
    with raises(InvalidArgument, named, seeds):
        _seeds(seed, seeds)


def test_the_interval_of_a_median_against_the_binomial() -> None:
    from scipy.stats import binom

    assert median_interval(range(5)) is None
    for count in (6, 9, 15, 40):
        low, high = median_interval(range(1, count + 1)) or (0, 0)
        rank = int(low)
        assert high == count + 1 - rank
        assert 1 - 2 * binom.cdf(rank - 1, count, 0.5) >= 0.95
        assert 1 - 2 * binom.cdf(rank, count, 0.5) < 0.95
