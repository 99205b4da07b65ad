"""site.yml with a real release on four hosts, within its time limits; `sh tests/run.sh deploy`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hosts.bed import ROOT, Hosts, why_not_here
from tests.playbooks.conftest import Play, files_of, inventory_of

ASKED = os.environ.get("PYRDMA_DEPLOY") == "1"
BUNDLE = [sys.executable, "-I", "-m", "pyrdma", "bundle"]
BUNDLES = ROOT / "build/bundles"
pytestmark = [
    pytest.mark.skipif(not ASKED, reason="sh tests/run.sh deploy runs it"),
    pytest.mark.skipif(bool(why_not_here()), reason=f"no hosts here: {why_not_here()}"),
    pytest.mark.timeout(1800),
]


def timed(what: str, began: float) -> float:
    """Print the time since `began`, and return it."""
    took = time.monotonic() - began
    print(f"\n{what}: {took:.0f} s", flush=True)
    return took


def test_four_hosts_are_set_up_in_time(play: Play, tmp_path: Path) -> None:
    with Hosts(4) as hosts:
        version = hosts[0].run("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        words = ("--glibc", "2.35", "--out", str(BUNDLES), "--python", version.stdout.strip())
        began = time.monotonic()
        subprocess.run([*BUNDLE, *words], check=True)
        timed("the archive of the release", began)

        inventory = inventory_of(
            hosts,
            tmp_path,
            pyrdma_bundle_command=BUNDLE,
            pyrdma_bundles=str(BUNDLES),
            pyrdma_release_mb=200,
        )
        took = []
        for changes in (True, False):
            before = files_of(hosts)
            began = time.monotonic()
            done = play("site.yml", inventory)
            took.append(timed(f"site.yml on 4 hosts, {'first' if changes else 'again'}", began))
            assert done.status == 0, done.text
            assert {bool(count) for count in done.changed.values()} == {changes}, done.text
            assert (files_of(hosts) != before) == changes
            for host in hosts:
                said = host.run("/opt/pyrdma/current/bin/pyrdma", "doctor", "--json").stdout
                assert "fabric shm" in said
        done = play("clean.yml", inventory)
        assert done.status == 0, done.text
    assert took[0] <= 120
    assert took[1] <= 60
