"""The code of the README runs, and the commands and files that it names exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
EXPERIMENT = next(block for block in BLOCKS if "Experiment(" in block)
PROTOCOL = next(block for block in BLOCKS if "Protocol(" in block)
SCRIPTS = [block for block in BLOCKS if block not in (EXPERIMENT, PROTOCOL)]


def run(folder: Path, *words: str) -> str:
    result = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize(
    "script",
    SCRIPTS,
    ids=[
        *(
            "cluster",
            "verbs",
            "programs",
            "awaits",
            "channels",
            "load",
            "calls",
            "multicast",
            "members",
        ),
        *("dds", "store", "store_load", "connections", "faults", "timeline"),
    ],
)
def test_script_runs(script: str, tmp_path: Path) -> None:
    assert run(tmp_path, sys.executable, "-c", script)


@pytest.mark.parametrize("fabric", ["sim", "shm"])
def test_experiment_runs(fabric: str, tmp_path: Path) -> None:
    (tmp_path / "read_rate.py").write_text(EXPERIMENT)
    pyrdma = str(Path(sys.executable).with_name("pyrdma"))
    run(tmp_path, pyrdma, "run", "read_rate.py", "--fabric", fabric, "--out", "out")
    assert (tmp_path / "out" / "mine" / "read_rate" / fabric / "results.parquet").exists()


def test_protocol_is_fuzzed(tmp_path: Path) -> None:
    (tmp_path / "my_protocol.py").write_text(PROTOCOL)
    pyrdma = str(Path(sys.executable).with_name("pyrdma"))
    assert "0 of 20" in run(tmp_path, pyrdma, "fuzz", "my_protocol.py", "--seeds", "20")


def test_named_paths_exist() -> None:
    named = re.findall(r"`((?:native|pyrdma|experiments|notebooks|tests)/[\w./*]*)`", README)
    assert named
    for name in named:
        if "*" in name:
            assert list(ROOT.glob(name)), name
        elif not name.startswith("pyrdma/lib/"):  # of the installed package
            assert (ROOT / name).exists(), name


def test_named_commands_exist() -> None:
    commands = set(re.findall(r"^    pyrdma (\w+)", README, re.MULTILINE))
    pyrdma = str(Path(sys.executable).with_name("pyrdma"))
    for command in commands:
        run(ROOT, pyrdma, command, "--help")
