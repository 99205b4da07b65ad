"""The recipe "Add an experiment", followed in a copy of the experiments."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from tests.experiments import test_experiments
from tests.recipes import page

ROOT = page.ROOT
EXPERIMENT, CLAIMS, COMMANDS, REQUIRED = page.blocks("Add an experiment")
TOOLS = Path(sys.executable).parent


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [TOOLS / words[0], *words[1:]], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_recipe_measures_draws_and_decides(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    for block in (EXPERIMENT, CLAIMS):
        path = tmp_path / block.path
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
    for line in COMMANDS.text.splitlines():
        run(tmp_path, *line.split())
    for fabric in ("sim", "shm"):
        found = {path.suffix for path in (tmp_path / "results/mine/window" / fabric).iterdir()}
        assert {".parquet", ".png", ".pdf", ".json"} <= found
    verdicts = json.loads(run(tmp_path, "pyrdma", "claims", "mine", "--json"))
    assert [(v["claim"], v["verdict"]) for v in verdicts] == [("mine/window_helps", "held")]


def test_recipe_keeps_the_style(tmp_path: Path) -> None:
    path = tmp_path / EXPERIMENT.path
    path.parent.mkdir(parents=True)
    path.write_text(EXPERIMENT.text, encoding="utf-8")
    config = str(ROOT / "pyproject.toml")
    run(tmp_path, "ruff", "check", "--no-cache", "--config", config, EXPERIMENT.path)
    run(tmp_path, "ruff", "format", "--no-cache", "--check", "--config", config, EXPERIMENT.path)


def test_recipe_requires_what_it_adds() -> None:
    required = yaml.safe_load(REQUIRED.text)
    assert required == {
        "claims_sha256": hashlib.sha256(CLAIMS.text.encode()).hexdigest(),
        "experiments": [Path(EXPERIMENT.path).stem],
    }
    assert all(required.keys() >= paper.keys() for paper in test_experiments.REQUIRED.values())
    assert ROOT / REQUIRED.path == test_experiments.FOLDER / f"{Path(CLAIMS.path).stem}.yaml"
