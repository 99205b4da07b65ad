"""A Slurm of one node: munge, controller and node daemon as root on loopback, without accounting.

All files lie in a temporary folder, and everything ends with the bed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "squeue")

CONFIGURATION = """\
ClusterName=bed
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={controller_port}
SlurmdPort={node_port}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=1000
PartitionName=bed Nodes={host} Default=YES MaxTime=60
"""


def missing() -> str:
    """Return why there can be no bed here; an empty text if there can."""
    if os.getuid() != 0:
        return "only root may start Slurm's daemons"
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"not installed: {' '.join(lacking)}; sh tests/run.sh deploy does it" if lacking else ""


@contextmanager
def slurm_bed(cores: int = 2) -> Iterator[dict[str, str]]:
    """Start Slurm; yield the environment for its programs."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="pyrdma-slurm-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name in ("munge", "state", "spool"):
            (folder / name).mkdir(mode=0o755)
        folder.chmod(0o755)
        configuration = folder / "slurm.conf"
        controller_port, node_port = _free_ports()
        configuration.write_text(
            CONFIGURATION.format(
                host=socket.gethostname().partition(".")[0],
                folder=folder,
                cores=cores,
                controller_port=controller_port,
                node_port=node_port,
            )
        )
        key = folder / "munge/key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        environment = {**os.environ, "SLURM_CONF": str(configuration)}
        where = folder / "munge"
        files = (f"--{name}-file={where / name}" for name in ("key", "pid", "log", "seed"))
        for words in (
            ["munged", "--force", "--foreground", f"--socket={where / 'socket'}", *files],
            ["slurmctld", "-D", "-i", "-f", str(configuration)],
            ["slurmd", "-D", "-f", str(configuration)],
        ):
            _start(stack, words, environment, folder)
        _wait_for_node(environment, folder)
        yield environment


def _free_ports() -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _start(stack: ExitStack, words: list[str], environment: dict[str, str], folder: Path) -> None:
    with (folder / f"{words[0]}.said").open("wb") as said:
        process = subprocess.Popen(words, env=environment, stdout=said, stderr=said)

    def end() -> None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)


def _wait_for_node(environment: dict[str, str], folder: Path) -> None:
    deadline = time.monotonic() + 30
    said = ""
    while time.monotonic() < deadline:
        words = ["sinfo", "--noheader", "--format=%T"]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        if done.stdout.strip() == "idle":
            return
        time.sleep(0.2)
    logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.[ls]*"))
    raise AssertionError(f"Slurm does not start: {said}\n{logs}")
