"""Fixtures of all executors."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder where each measurement leaves a file."""
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv("FAKE_MARKS", str(folder))
    return folder
