"""Two Soft-RoCE guests with systemd and sshd, from boot to a figure; `sh tests/run.sh deploy`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

import pyrdma as rd
from pyrdma import registry, runs
from tests.hosts.bed import ROOT
from tests.playbooks.conftest import Play
from tests.softroce.machines import ADDRESSES, TESTBED, machines, make_disk

LIMITS_S = {"rdma": 360, "bare": 600}
"""From boot to a figure, by disk of tests/softroce/disk.sh."""
MOST_TASKS = 12
PYRDMA = str(Path(sys.executable).with_name("pyrdma"))
BUNDLES = ROOT / "build/bundles"
NAME = "fabric/latency"
POINTS = ["--set", "transport=rc", "--set", "op=write"]
AWAIT_THE_RUN = """
state() { systemctl show --property=SubState --value pyrdma-run.service; }
[ "$(state)" != running ] || echo alone
while [ "$(state)" = running ]; do sleep 1; done
state
"""
pytestmark = [
    pytest.mark.skipif(
        os.environ.get("PYRDMA_DEPLOY") != "1", reason="sh tests/run.sh deploy runs it"
    ),
    pytest.mark.timeout(2400),
]


class Stages:
    """The seconds of each stage, printed as it ends."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def end(self, stage: str) -> float:
        """Print how long a stage took, and return the time from the first."""
        now = time.monotonic()
        print(f"\n{stage}: {now - self._last:.0f} s", flush=True)
        self._last = now
        return now - self._began


def ssh(inventory: Path, host: str, command: str) -> str:
    """Run a command on a host of the inventory, in a connection of its own."""
    every = yaml.safe_load(inventory.read_text())["all"]
    v = every["vars"] | every["hosts"][host]
    login = ["-p", str(v["ansible_port"]), "-i", v["ansible_ssh_private_key_file"], "-l", "root"]
    words = ["ssh", "-o", "BatchMode=yes", *v["ansible_ssh_common_args"].split(), *login]
    done = subprocess.run(
        [*words, v["ansible_host"], command], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("kind", LIMITS_S)
def test_from_boot_to_a_figure(kind: str, play: Play, tmp_path: Path) -> None:
    disk, results = make_disk(kind), tmp_path / "results"
    stages = Stages()
    for more in ([], ["--controller"]):
        bundle = [PYRDMA, "bundle", "--glibc", "2.35", "--out", str(BUNDLES), "--python", "3.11"]
        subprocess.run([*bundle, *more], check=True, capture_output=True)
    stages.end("the archives of the release, before the boot")

    stages = Stages()
    with machines(disk, tmp_path, limit_s=1800) as inventory:
        stages.end(f"boot from the disk {kind}")
        document = yaml.safe_load(inventory.read_text())
        for host, address in zip(document["all"]["hosts"].values(), ADDRESSES, strict=True):
            host["pyrdma_listen"] = f"{address}:7777"
        document["all"]["vars"] |= {
            "pyrdma_huge_pages": 64,  # a guest has 2 GiB
            "pyrdma_bundles": str(BUNDLES),
            "pyrdma_results": str(results),
        }
        inventory.write_text(yaml.safe_dump(document))

        done = play("site.yml", inventory, limit_s=900)
        assert done.status == 0, done.text
        spent = (tmp_path / "spent").read_text()
        print(spent)
        stages.end("site.yml")
        tasks = Counter(line.split()[1] for line in spent.splitlines())
        assert max(tasks.values()) <= MOST_TASKS

        words = {"pyrdma_experiment": NAME, "pyrdma_run_options": POINTS}
        done = play("run.yml", inventory, limit_s=900, variables=words)
        assert (done.status, "started" in done.text) == (0, True), done.text
        stages.end("run.yml")
        play.leave()
        said = ssh(inventory, "node-0", AWAIT_THE_RUN)
        journal = ssh(inventory, "node-0", "journalctl --output=cat --unit=pyrdma-run.service")
        assert said.split() == ["alone", "exited"], journal
        stages.end("the driver alone")
        done = play("collect.yml", inventory, limit_s=900)
        assert done.status == 0, done.text
        stages.end("collect.yml")
        [report] = runs.draw(NAME, results, "verbs")
        assert report.figures, report
        took = stages.end("the figure")
        print(f"from boot to a figure, disk {kind}: {took:.0f} s", flush=True)

        frame = rd.load(rd.fetch(inventory))
        assert set(frame["testbed"]) == {TESTBED}
        assert set(frame["size"]) == set(registry.load(NAME).axes["size"].quick)
        stages.end("fetch")
        driven = ["--inventory", str(inventory), "--out", str(tmp_path / "driven")]
        point = [*POINTS, "--set", "size=64"]
        subprocess.run(
            [PYRDMA, "run", NAME, "--fabric", "verbs", *driven, *point], check=True, timeout=900
        )
        stages.end("a point, driven from here")
    assert took <= LIMITS_S[kind]
