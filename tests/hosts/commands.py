"""The commands that make hosts, and their processes."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path


def end_process(process: subprocess.Popen[str]) -> None:
    """Wait for a process whose first child was killed, and which then ends itself."""
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def children(pid: int) -> list[int]:
    try:
        words = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [int(word) for word in words]


def dies_with_this() -> tuple[str, ...]:
    """Return the words that make a command end with this process."""
    return ("setpriv", "--pdeathsig", "KILL")


def start(log: Path, *words: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    with log.open("a") as errors:
        return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=errors, text=True)


def make_key(file: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "pyrdma-hosts", "-f", str(file)]
    )


def ip(*words: str, text: list[str] | None = None, inside: int = 0, check: bool = True) -> None:
    """Run ip, in the network namespace of the process `inside` if it is given."""
    enters = ["nsenter", "--net", "--target", str(inside)] if inside else []
    done = subprocess.run(
        [*enters, "ip", *words],
        input="\n".join(text or []),
        capture_output=True,
        text=True,
        check=False,
    )
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
