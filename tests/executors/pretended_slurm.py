"""Stands in for Slurm's programs where there is no Slurm: a job is a process of this machine.

The folder in PRETENDED_SLURM holds a file for each job, which names its process group. Other files
there make programs fail. With ``silent`` squeue and sinfo fail, as they do when the controller is
gone. With ``limit`` sbatch takes no job while as many run as the file says. With ``held`` it does
not return. With ``unsaid`` it fails once although it has taken the job, as when the answer is lost.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.executors.processes import lives

PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo", "srun")
PLACE = "PRETENDED_SLURM"


def install(folder: Path) -> dict[str, str]:
    """Write the programs into a folder; return the environment in which they are found."""
    programs, jobs = folder / "bin", folder / "jobs"
    programs.mkdir(parents=True)
    jobs.mkdir()
    root = Path(__file__).resolve().parents[2]
    for name in PROGRAMS:
        script = programs / name
        start = f'cd {root} && exec {sys.executable} -m tests.executors.pretended_slurm {name} "$@"'
        script.write_text(f"#!/bin/sh\nPRETENDED_FROM=$PWD; export PRETENDED_FROM; {start}\n")
        script.chmod(0o755)
    return {PLACE: str(jobs), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def main() -> None:
    """Act as the program whose name is the first argument."""
    name, *words = sys.argv[1:]
    jobs = Path(os.environ[PLACE])
    named = next((w.partition("=")[2] for w in words if w.startswith("--name=")), "")
    if name in ("sinfo", "squeue") and (jobs / "silent").exists():
        sys.exit("slurm_load error: Unable to contact slurm controller")
    if name == "sbatch":
        number = _submit(jobs, Path(words[-1]))
        if (jobs / "unsaid").exists():
            (jobs / "unsaid").unlink()
            sys.exit("Batch job submission failed: Socket timed out on send/recv operation")
        print(f"Submitted batch job {number}")
    elif name == "sinfo":
        print("0/2/0/2")
    elif name == "squeue":
        print(*(job for job, _ in _running(jobs, named)), sep="\n")
    elif name == "scancel":
        for job, process in _running(jobs, named):
            if named or job in words:
                with suppress(ProcessLookupError):
                    os.killpg(process, signal.SIGTERM)


def _submit(jobs: Path, script: Path) -> int:
    if os.environ.get("SBATCH_PARTITION"):
        sys.exit(f"invalid partition specified: {os.environ['SBATCH_PARTITION']}")
    found = re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", script.read_text(), re.MULTILINE)
    settings = dict(found)
    limit = jobs / "limit"
    if limit.exists() and len(_running(jobs, "")) >= int(limit.read_text()):
        sys.exit("Batch job submission failed: Job violates accounting/QOS policy")
    while (jobs / "held").exists():
        time.sleep(0.05)
    number = len(list(jobs.glob("[0-9]*"))) + 1
    with Path(settings["output"].replace("%j", str(number))).open("ab") as log:
        process = subprocess.Popen(
            ["bash", str(script)],
            cwd=settings["chdir"],
            env={**os.environ, "SLURM_JOB_ID": str(number)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    (jobs / str(number)).write_text(f"{process.pid} {settings['job-name']}")
    return number


def _running(jobs: Path, named: str) -> list[tuple[str, int]]:
    found = []
    for path in sorted(jobs.glob("[0-9]*")):
        process, name = path.read_text().split()
        if lives(int(process)) and named in ("", name):
            found.append((path.name, int(process)))
    return found


if __name__ == "__main__":
    main()
