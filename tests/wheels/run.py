"""Builds a wheel with each Python of this machine, checks it, and runs it in a fresh environment.

    python -m tests.wheels.run [VERSION]...

The wheels are left in ``dist/``. `pyrdma bundle --wheels dist` takes them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyrdma.deploy import pythons, wheels
from pyrdma.errors import Error
from tests.wheels.checks import complaints

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "dist"

# Runs in the environment of a wheel. All wheels have equal digests, and simulate equal bits.
PROGRAM = """
import json
import pyrdma as rd
from pyrdma import _core, reach, registry, sources

if __name__ == "__main__":
    assert "site-packages" in rd.__file__, rd.__file__
    assert _core.ibverbs.has_provider()
    load = rd.workload.VerbsLoad(op="write", size=64, depth=16)
    with rd.Cluster.sim(nodes=4, profile="cx5", seed=1) as cluster:
        rate = cluster.run(load, duration_s=1e-3).value("rate")
    with rd.Cluster.local(nodes=2, fabric="shm") as cluster:
        assert cluster.run(load, duration_s=0.1).value("rate") > 1e5
    digests = {name: reach.digest(registry.load(name).measure) for name in registry.ids()}
    print(json.dumps({"simulated": rate, "source": sources.source_digest(), **digests}))
"""


def main() -> int:
    """Return the exit status: 0 if every wheel is right."""
    found = pythons.find()
    wanted = sys.argv[1:] or list(found)
    if absent := sorted(set(wanted) - set(found)):
        print(f"not here: Python {', '.join(absent)}; name it in {pythons.VARIABLE}")
        return 1
    for version in sorted(set(pythons.VERSIONS) - set(wanted)):
        print(f"Python {version}: left out, or not here (${pythons.VARIABLE} names interpreters)")
    told: dict[str, dict[str, Any]] = {}
    wrong = 0
    for version in wanted:
        began = time.monotonic()
        wheel, bad = Path(f"Python {version}"), [""]
        try:
            wheel, bad = made(version, found[version])
            told[version] = run(wheel, found[version])
        except Error as error:
            bad = [str(error)]
        except subprocess.CalledProcessError as error:
            bad = [f"{error}\n{error.stdout}\n{error.stderr}"]
        took = time.monotonic() - began
        size = f"{wheel.stat().st_size / 1e6:.2f} MB, " if wheel.is_file() else ""
        print(f"{wheel.name}: {size}{took:.0f} s: {'; '.join(bad) or 'right'}", flush=True)
        wrong += bool(bad)
    expected: dict[str, Any] = next(iter(told.values()), {})
    for version, values in told.items():
        for name in sorted(expected.keys() | values.keys()):
            if values.get(name) != expected.get(name):
                print(f"Python {version}: {name}: {values.get(name)}, not {expected.get(name)}")
                wrong += 1
    return int(wrong > 0 or not told)


def made(version: str, python: Path) -> tuple[Path, list[str]]:
    """Build the wheel for a Python into `DIST`; return it with its complaints."""
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob(f"pyrdma-*-cp{version.replace('.', '')}-*.whl"):
        old.unlink()
    wheel = wheels.build(ROOT, python, DIST)
    with tempfile.TemporaryDirectory(prefix="pyrdma-wheel-") as folder:
        return wheel, complaints(wheel, Path(folder))


def run(wheel: Path, python: Path) -> dict[str, Any]:
    """Install a wheel into a fresh environment, run it, and return what the program prints."""
    with tempfile.TemporaryDirectory(prefix="pyrdma-wheel-") as name:
        folder = Path(name)
        output(python, "-m", "venv", folder / "venv")
        programs = folder / "venv/bin"
        output(programs / "python", "-m", "pip", "install", "--quiet", wheel)
        output(programs / "pyrdma", "doctor", cwd=folder)
        (folder / "program.py").write_text(PROGRAM)
        printed = output(programs / "python", folder / "program.py", cwd=folder)
        found: dict[str, Any] = json.loads(printed)
        return found


def output(*command: str | Path, cwd: Path | None = None) -> str:
    """Return what a command prints."""
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
