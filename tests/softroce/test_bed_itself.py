"""run.sh on a fake machine: its installations, its files, its clean-up and its messages."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.errors import unnamed
from tests.softroce.bed import why_not_here
from tests.softroce.pretended import Machine, ends, is_alive, run_folders, running

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        platform.machine() != "x86_64" or not shutil.which("setpriv") or not shutil.which("flock"),
        reason="the harness needs x86_64 and util-linux",
    ),
]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_run_passes_words_and_status_on_and_leaves_nothing(machine: Machine) -> None:
    done = machine.run("sh", "-c", 'echo "$1"; exit 5', "sh", "two  'words' $HOME")
    assert done.returncode == 5, done.stderr
    assert done.stdout == "guest 0\ntwo  'words' $HOME\n"
    assert done.stderr == "softroce: from the console\n", "what the guest's first process says"
    assert machine.leftovers() == []


def test_a_pair_runs_twice(machine: Machine) -> None:
    done = machine.run("--pair", "true", PRETENDED_HANGS="")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["0", "1", "guest", "guest"]


@pytest.fixture
def disk(machine: Machine) -> list[str]:
    """Return the words for guests of a disk."""
    files = [machine.folder / "a,disk", machine.folder / "key.pub"]
    for file in files:
        file.touch()
    return ["--disk", *map(str, files), "1,2"]


def test_a_command_runs_here_beside_guests_of_a_disk(machine: Machine, disk: list[str]) -> None:
    done = machine.run(*disk, "sh", "-c", 'echo "$1"; exit 5', "sh", "two  'words' $HOME")
    assert done.returncode == 5, done.stderr
    assert "two  'words' $HOME" in done.stdout.splitlines()
    assert len(machine.guests()) == 2
    assert ends(machine.guests(), 10)
    assert machine.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_guests_of_a_disk(
    machine: Machine, disk: list[str], number: signal.Signals
) -> None:
    with running(machine.start(*disk, "sh", "-c", "echo $$ here; exec sleep 300")) as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if "here" in line)
        process.send_signal(number)
        assert process.wait(20) == 128 + number
    assert ends([*machine.guests(), int(said.split()[0])], 10)
    assert machine.leftovers() == []


@pytest.mark.parametrize("ports", ["1", "1,2,3", ",2", "a,b", "1,"])
def test_ports_that_are_none(machine: Machine, disk: list[str], ports: str) -> None:
    done = machine.run(*disk[:-1], ports, "true")
    assert done.returncode == 1
    assert unnamed(done.stderr, "--disk", f"'{ports}'", "PORT,PORT") == []
    assert machine.guests() == []


def test_what_is_not_of_a_run_stays(machine: Machine) -> None:
    victim = machine.folder / "victim"
    victim.mkdir()
    (victim / "file").touch()
    names = ["softroce.log", "softroce.1.x", "pyrdma-softroce-run.log", "pyrdma-softroce-run.1.a"]
    for name in names:
        (machine.temporary / name).mkdir()
    (machine.temporary / "pyrdma-softroce-run.7.linked").symlink_to(victim)
    (machine.temporary / "pyrdma-softroce-run.8.a-file").touch()
    (machine.temporary / "pyrdma-softroce-run.9x.folder").mkdir()
    (machine.temporary / "pyrdma-softroce-run.10.Starts").mkdir()  # a run that has no lock yet
    before = machine.leftovers()
    killed = machine.temporary / "pyrdma-softroce-run.11.Killed"
    killed.mkdir()
    (killed / "lock").touch()
    abandoned = machine.temporary / "pyrdma-softroce-run.12.Killed"
    abandoned.mkdir()
    os.utime(abandoned, (0, 0))
    assert machine.run("true").returncode == 0
    assert machine.leftovers() == before
    assert (victim / "file").exists()


@pytest.mark.parametrize("arguments", [("true",), ("--pair", "true")], ids=["one", "pair"])
def test_a_run_that_is_killed_takes_its_guests_along(
    machine: Machine, arguments: tuple[str, ...]
) -> None:
    with running(machine.start(*arguments, PRETENDED_HANGS="yes")) as process:
        assert process.stdout is not None
        for _ in range(len(arguments)):
            assert process.stdout.readline().startswith("guest"), process.communicate()
        guests = machine.guests()
        assert len(guests) == len(arguments)
        assert all(map(is_alive, guests))
        [left] = run_folders(machine.temporary).values()
        assert left.stat().st_mode & 0o777 == 0o700
        assert machine.run("true").returncode == 0
        assert left.exists(), "of a run that lives"
        process.kill()
        process.wait(10)
        assert ends(guests, within_s=10)
    assert machine.run("true").returncode == 0
    assert machine.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_ended_has_ended_its_guests(machine: Machine, number: signal.Signals) -> None:
    with running(machine.start("--pair", "true", PRETENDED_HANGS="yes")) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert process.stdout.readline()
        process.send_signal(number)
        assert process.wait(20) == 128 + number
        assert not any(map(is_alive, machine.guests()))
    assert machine.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_at_any_time_leaves_nothing(machine: Machine, number: signal.Signals) -> None:
    assert machine.run("true").returncode == 0
    for delay in range(24):  # a start takes about 0.05 s
        with running(machine.start("true", PRETENDED_HANGS="yes")) as process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(delay * 0.005)
            process.send_signal(number)
            assert process.wait(20) in (-number, 128 + number)
            if number == signal.SIGTERM:
                assert not any(map(is_alive, machine.guests())), delay
                assert machine.leftovers() == [], delay
    time.sleep(0.2)  # none starts later
    assert ends(machine.guests(), within_s=10)
    for lock in machine.temporary.glob("*/lock"):  # a killed shell's child may hold it still
        subprocess.run(["flock", "-w", "10", lock, "true"], check=True)
    assert machine.run("true").returncode == 0
    assert machine.leftovers() == [name for name in machine.leftovers() if unheld(machine, name)]


def unheld(machine: Machine, name: str) -> bool:
    """Return whether a run was killed before its folder had a lock; it stays for an hour."""
    return not (machine.temporary / name / "lock").exists()


def test_a_folder_may_be_shared_by_two_runs(machine: Machine) -> None:
    share = machine.folder / "shared, by two"
    command = 'echo "$1" >"$PYRDMA_SHARE/$1"; sleep 0.5; ls -A "$PYRDMA_SHARE"; exit "$1"'
    both = [
        machine.start("sh", "-c", command, "sh", status, PYRDMA_SHARE=str(share), SECRET="s3cret")
        for status in ("3", "4")
    ]
    said = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [3, 4], said
    assert sorted(path.name for path in share.iterdir()) == ["3", "4"]
    assert {name for out, _ in said for name in out.split()} <= {"guest", "0", "3", "4"}


@pytest.mark.parametrize("share", ["/", "/dev", "/proc", "/sys/kernel"])
def test_a_folder_of_the_guest_s_own_cannot_be_shared(machine: Machine, share: str) -> None:
    done = machine.run("true", PYRDMA_SHARE=share)
    assert done.returncode == 1
    assert unnamed(done.stderr, f"PYRDMA_SHARE={share}") == []


@pytest.mark.parametrize("limit", ["", "0", "-1", "ten"])
def test_a_limit_that_is_none(machine: Machine, limit: str) -> None:
    done = machine.run("--timeout", limit, "true")
    assert done.returncode == 1
    assert f"--timeout '{limit}'" in done.stderr


@pytest.mark.parametrize("stuck", [1, 3])
def test_a_boot_that_does_not_end_is_tried_twice_more(machine: Machine, stuck: int) -> None:
    settings = {"PRETENDED_STUCK": str(stuck), "PYRDMA_SOFTROCE_BOOT_S": "1"}
    done = machine.run("sh", "-c", "echo done; exit 3", **settings)
    if stuck == 1:
        assert done.returncode == 3
        assert "done" in done.stdout
    else:
        assert done.returncode == 1
        assert unnamed(done.stderr, "guest 0") == []
    assert len(machine.guests()) == min(stuck + 1, 3)
    assert ends(machine.guests(), within_s=2)
    assert machine.leftovers() == []


def test_a_guest_of_a_pair_that_does_not_boot_is_tried_again(machine: Machine) -> None:
    done = machine.run("--pair", "true", PRETENDED_STUCK="1", PYRDMA_SOFTROCE_BOOT_S="1")
    assert done.returncode == 0, done.stderr
    assert len(machine.guests()) == 3


@pytest.mark.parametrize("seconds", ["0", "soon"])
def test_a_time_to_boot_that_is_none(machine: Machine, seconds: str) -> None:
    done = machine.run("true", PYRDMA_SOFTROCE_BOOT_S=seconds)
    assert done.returncode == 1
    assert f"PYRDMA_SOFTROCE_BOOT_S='{seconds}'" in done.stderr


def test_time_is_up(machine: Machine) -> None:
    done = machine.run("--timeout", "1", "true", PRETENDED_HANGS="yes")
    assert done.returncode == 124
    assert unnamed(done.stderr, 1) == []


def test_elsewhere_nothing_is_installed(machine: Machine) -> None:
    """The apt of Ubuntu has no such kernel; QEMU is missing or not."""
    (machine.folder / "programs/ib_write_lat").unlink()
    missing = [] if shutil.which("ib_write_lat") else ["ib_write_lat"]
    done = machine.run("true", PRETENDED_KERNEL="")
    assert why_not_here(done) is not None
    assert unnamed(done.stderr, "linux-image-amd64", *missing) == []
    assert "install" not in machine.apt()


def test_a_command_s_77_is_no_excuse(machine: Machine) -> None:
    done = machine.run("sh", "-c", "echo softroce: skipped: no >&1; exit 77")
    assert done.returncode == 77
    assert why_not_here(done) is None


def test_the_network_is_needed_once(machine: Machine) -> None:
    offline = {"PRETENDED_NETWORK": ""}
    done = machine.run("true", **offline)
    assert unnamed(why_not_here(done), "linux-image-6.0.0-1-amd64") == []
    assert machine.kernels() == []
    assert machine.run("true").returncode == 0
    asked = machine.apt()

    assert machine.run("true", **offline).returncode == 0
    done = machine.run("true", **offline, PRETENDED_KERNEL="")
    assert done.returncode == 0, "no lists of packages"
    assert unnamed(done.stderr, "linux-image-6.0.0-1-amd64") == []
    assert machine.apt() == asked
    newer = {"PRETENDED_KERNEL": "linux-image-6.0.0-11-amd64"}
    done = machine.run("true", **offline, **newer)
    assert done.returncode == 0, "a newer one that cannot be fetched"
    assert unnamed(done.stderr, "linux-image-6.0.0-11-amd64") == []
    assert machine.kernels() == ["linux-image-6.0.0-1-amd64"]
    assert machine.run("true", **newer).returncode == 0
    assert machine.kernels() == ["linux-image-6.0.0-11-amd64"], "and only the newest"


def test_a_kernel_that_is_booted_stays(machine: Machine) -> None:
    with running(machine.start("true", PRETENDED_HANGS="yes")) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "guest 0\n"
        assert machine.run("true", PRETENDED_KERNEL="linux-image-6.0.0-2-amd64").returncode == 0
        assert len(machine.kernels()) == 2
        process.terminate()
    assert machine.run("true", PRETENDED_KERNEL="linux-image-6.0.0-3-amd64").returncode == 0
    assert machine.kernels() == ["linux-image-6.0.0-3-amd64"]


def test_what_a_killed_run_was_fetching_goes(machine: Machine) -> None:
    (machine.cache / "pyrdma-softroce-fetch.1/unpacked").mkdir(parents=True)
    assert machine.run("true").returncode == 0
    assert machine.kernels() == ["linux-image-6.0.0-1-amd64"]


def test_a_module_that_the_kernel_lacks_is_named(machine: Machine) -> None:
    done = machine.run("true", PRETENDED_LACKS="rdma_ucm")
    assert unnamed(why_not_here(done), "6.0", "rdma_ucm") == []
    assert machine.kernels() == []
    assert machine.run("true", PRETENDED_LACKS="crc32_generic").returncode == 0, "newer: built in"


def test_an_initramfs_that_is_cut_short_is_not_kept(machine: Machine) -> None:
    done = machine.run("true", PRETENDED_FULL="yes")
    assert done.returncode == 1
    assert unnamed(done.stderr, "cpio") == []
    assert machine.kernels() == []
