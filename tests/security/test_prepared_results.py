"""A results folder that another user has prepared: nothing outside is written or removed."""

from __future__ import annotations

from pathlib import Path

from tests.errors import unnamed
from tests.harness.support import FAKE, pyrdma
from tests.security.other_user import common_folder, give, needs_other_user

PLACE = "fake/numbers/sim"


@needs_other_user
def test_a_foreign_results_folder_is_refused(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    with common_folder() as common:
        out = common / "results"
        (out / PLACE).mkdir(parents=True)
        (out / PLACE / "lock").symlink_to(precious)
        (out / PLACE / "points").symlink_to(tmp_path)
        give(out)
        done = pyrdma("run", FAKE, "--out", str(out))
        assert done.returncode == 1
        assert unnamed(done.stderr, out, "--out") == []
        assert "Traceback" not in done.stderr
        out.rename(common / "moved")
        out.symlink_to("moved")
        assert pyrdma("run", FAKE, "--out", str(out)).returncode == 1
    assert precious.read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


@needs_other_user
def test_a_foreign_part_of_a_results_folder_is_refused(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    with common_folder() as common:
        (common / "fake").symlink_to(tmp_path)
        give(common / "fake")
        done = pyrdma("run", FAKE, "--out", str(common))
        assert done.returncode == 1
        assert unnamed(done.stderr, common / "fake") == []
        (common / "fake").unlink()
        (common / "fake").mkdir()
        give(common / "fake")
        assert pyrdma("run", FAKE, "--out", str(common)).returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
