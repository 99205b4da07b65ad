"""Ansible as the tests run it: on hosts of the test bed, with nothing of the user's settings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.hosts.bed import ROOT, Hosts

PLAYBOOKS = ROOT / "playbooks"
HERE = Path(__file__).resolve().parent
STAND_IN = HERE / "stand_in.sh"
LIMIT_S = 200
_RECAP = re.compile(
    r"^([\w-]+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", re.MULTILINE
)


@dataclass(frozen=True)
class Played:
    """A playbook that has ended: status, output, and per host what it changed and what failed."""

    status: int
    text: str
    changed: dict[str, int]
    failed: dict[str, int]

    def error_of(self, host: str) -> str:
        """Return the last error of a host."""
        lines = re.findall(rf"^fatal: \[{host}[^\]]*\]: (.*)$", self.text, re.MULTILINE)
        assert lines, self.text
        return str(lines[-1])


def ansible() -> str:
    """Return the program beside this interpreter; skip without the extra `deploy`."""
    program = Path(sys.executable).with_name("ansible-playbook")
    if not program.exists():
        pytest.skip("no ansible-core here: pip install 'pyrdma[deploy]'")
    return str(program)


class Play:
    """Runs playbooks. Each task of a host adds a line to `spent`; see callbacks/spent.py."""

    def __init__(self, home: Path) -> None:
        self._program, self._home = ansible(), home
        # A path of a socket has at most 100 characters.
        self._sockets = Path("/tmp") / f"pyrdma-ansible-{os.getpid()}"
        usual = {name: value for name, value in os.environ.items() if "ANSIBLE" not in name}
        self._environment = usual | {
            "HOME": str(home),
            "ANSIBLE_HOME": str(home / "ansible"),
            "ANSIBLE_SSH_CONTROL_PATH_DIR": str(self._sockets),
            "ANSIBLE_FORCE_COLOR": "0",
            "ANSIBLE_FORKS": "8",
            "ANSIBLE_TIMEOUT": "60",
            "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callbacks"),
            "ANSIBLE_CALLBACKS_ENABLED": "spent",
            "PYRDMA_TEST_SPENT": str(home / "spent"),
            "LC_ALL": "C.UTF-8",
        }

    def __call__(
        self,
        playbook: str,
        inventory: Path,
        *words: str,
        variables: dict[str, Any] | None = None,
        limit_s: float = LIMIT_S,
    ) -> Played:
        """Run a playbook with an inventory and variables."""
        given = ["-e", yaml.safe_dump(variables, default_flow_style=True)] if variables else []
        done = subprocess.run(
            [self._program, "-i", str(inventory), *given, *words, str(PLAYBOOKS / playbook)],
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
            cwd=self._home,
            env=self._environment,
        )
        text = done.stdout + done.stderr
        rows = _RECAP.findall(text)
        return Played(
            done.returncode,
            text,
            {row[0]: int(row[2]) for row in rows},
            {row[0]: int(row[3]) + int(row[4]) for row in rows},
        )

    def leave(self) -> None:
        """End the connections that Ansible keeps for the next playbook."""
        for socket in self._sockets.glob("*"):
            subprocess.run(
                ["ssh", "-O", "exit", "-S", str(socket), "x"], capture_output=True, check=False
            )
        shutil.rmtree(self._sockets, ignore_errors=True)


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """Return what runs a playbook with an inventory and variables."""
    made = Play(tmp_path)
    yield made
    made.leave()


def inventory_of(
    hosts: Hosts, folder: Path, of_host: dict[str, dict[str, Any]] | None = None, **shared: Any
) -> Path:
    """Write an inventory of these hosts, with variables for the tests, and return its path."""
    document = yaml.safe_load(hosts.inventory.read_text())
    document["all"]["vars"] |= {
        "pyrdma_packages": ["python3"],
        "pyrdma_modules": [],
        "pyrdma_check_device": False,
        "pyrdma_bundle_command": ["sh", str(STAND_IN), "one"],
        "pyrdma_bundles": str(folder / "bundles"),
        "pyrdma_release_mb": 10,
        "pyrdma_driver_mb": 10,
        **shared,
    }
    for name, variables in (of_host or {}).items():
        document["all"]["hosts"][name] |= variables
    path = folder / "hosts.yml"
    path.write_text(yaml.safe_dump(document))
    return path


def files_of(hosts: Hosts) -> list[dict[str, str]]:
    """Return what each host has written: files with sizes, modes and times, without logs."""
    find = ("find", "/run/written", "-not", "-type", "d", "-printf", "%P\t%y %s %m %T@\n")
    others = ("var/log/", "var/lib/systemd/", "root/.ansible")
    found = []
    for host in hosts:
        rows = dict(line.split("\t", 1) for line in host.run(*find).stdout.splitlines())
        rows["huge pages"] = host.run("cat", "/proc/sys/vm/nr_hugepages").stdout
        found.append({name: row for name, row in rows.items() if not name.startswith(others)})
    return found
