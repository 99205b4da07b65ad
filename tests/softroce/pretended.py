"""A fake machine: programs in place of QEMU, apt and others, to test run.sh itself."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.softroce.bed import RUN

_PROGRAMS = {
    # The fake guest runs the command on this machine. A guest that hangs sleeps instead.
    "qemu-system-x86_64": r"""
number=$(printf '%s' "$*" | sed -n 's/.*softroce.guest=\([0-9]\).*/\1/p')
echo $$ >>"$PRETENDED/guests"
case " $* " in *server=on*) python3 -c '
import socket; socket.socket(socket.AF_UNIX).bind("wire")' ;; esac
echo "guest $number"
control=$PWD/control
[ "$(grep -c . "$PRETENDED/guests")" -gt "$PRETENDED_STUCK" ] || exec sleep 300
: >"$control/booted.$number"
case "$*" in *softroce.disk*)
  : >"$control/ready.$number"
  exec sleep 300 ;; esac
[ -z "$PRETENDED_HANGS" ] || exec sleep 300
printf 'softroce: from the console\r\nnothing\r\n' >"console.$number"
. "$control/environment.$number"
cd "$(cat "$control/directory")"
sh "$control/command"
echo $? >"$control/status.$number"
""",
    "apt-cache": '[ -z "$PRETENDED_KERNEL" ] || echo "  Depends: $PRETENDED_KERNEL"',
    "apt-get": r"""
echo "$*" >>"$PRETENDED/apt"
[ -n "$PRETENDED_NETWORK" ] || exit 100
case "$*" in *download*) : >package.deb ;; esac
""",
    "sudo": 'shift; exec "$@"',
    "dpkg": 'mkdir -p "$3/lib/modules/6.0" "$3/boot"; : >"$3/boot/vmlinuz-6.0"',
    "modprobe": r"""
for module; do :; done
[ "$module" != "$PRETENDED_LACKS" ] || exit 1
: >"$2/$module.ko"
echo "insmod $2/$module.ko"
""",
    "cpio": '[ -z "$PRETENDED_FULL" ] || exit 1; cat',
    **dict.fromkeys(["busybox", "depmod", "rdma", "ibv_devices", "rping", "ib_write_lat"], ""),
}
_SETTINGS = {
    "PRETENDED_HANGS": "",
    "PRETENDED_STUCK": "0",  # boots
    "PRETENDED_KERNEL": "linux-image-6.0.0-1-amd64",
    "PRETENDED_NETWORK": "yes",
    "PRETENDED_LACKS": "",
    "PRETENDED_FULL": "",
}


class Machine:
    """A machine whose programs, cache and temporary folder lie in a folder."""

    def __init__(self, folder: Path, temporary: Path | None = None) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.temporary = temporary or folder / "temporary, with blanks"
        self.temporary.mkdir(exist_ok=True)
        programs = folder / "programs"
        programs.mkdir()
        for name, text in _PROGRAMS.items():
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        self._environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PYRDMA_S")},
            **_SETTINGS,
            "PRETENDED": str(folder),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TMPDIR": str(self.temporary),
            "PYRDMA_SOFTROCE_CACHE": str(self.cache),
        }

    def start(self, *arguments: str, **settings: str) -> subprocess.Popen[str]:
        """Start run.sh; settings replace those of the environment."""
        return subprocess.Popen(
            ["sh", str(RUN), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self._environment, **settings},
            cwd=self.folder,
        )

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run run.sh and wait for its end."""
        process = self.start(*arguments, **settings)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def guests(self) -> list[int]:
        """Return the process ids of all guests that have started."""
        log = self.folder / "guests"
        return [int(line) for line in log.read_text().split()] if log.exists() else []

    def apt(self) -> str:
        """Return the arguments of each call of apt-get, one line per call."""
        log = self.folder / "apt"
        return log.read_text() if log.exists() else ""

    def kernels(self) -> list[str]:
        """Return the packages in the cache, without the checksums in their names."""
        return sorted(path.name.rpartition("-")[0] for path in self.cache.iterdir())

    def leftovers(self) -> list[str]:
        """Return the files in the temporary folder."""
        return sorted(path.name for path in self.temporary.iterdir())


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Kill a process on leaving, since a failing test does not end it."""
    with process:
        try:
            yield process
        finally:
            process.kill()


def is_alive(process: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def ends(processes: list[int], within_s: float) -> bool:
    """Wait until none of the processes is alive; return False at a timeout."""
    deadline = time.monotonic() + within_s
    while any(map(is_alive, processes)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def run_folders(temporary: Path) -> Mapping[str, Path]:
    """Return the folders of runs in a temporary folder, by name."""
    return {path.name: path for path in temporary.glob("pyrdma-softroce-run.*") if path.is_dir()}
