"""The workload classes of the tree agree with the native tables."""

from __future__ import annotations

from tests.generated.workload_classes import COMMAND, ROOT, files


def test_the_generated_files_are_up_to_date() -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, text in files().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not stale, f"{stale} differ from the native tables; generate them with: {COMMAND}"
