"""Stored files are hostile: a damaged one costs its own point, and nothing leaves the folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pyrdma as rd
from pyrdma import Axis, Experiment, InvalidArgument, Row
from pyrdma.arguments import shown
from pyrdma.files import DamagedFile, own_folder
from pyrdma.result import normalise
from pyrdma.store import Store
from tests.errors import raises, unnamed
from tests.harness.support import COMMAND, environment, pyrdma
from tests.stored.tree import Tree
from tests.stored.tree import tree as tree


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a stored document, with the hash that belongs to it."""
    import hashlib

    header, body = path.read_bytes().splitlines()
    document = json.loads(body)
    change(document)
    body = json.dumps(document).encode()
    first = {**json.loads(header), "sha256": hashlib.sha256(body).hexdigest()}
    path.write_bytes(json.dumps(first).encode() + b"\n" + body + b"\n")


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").touch()


def link_instead(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def pipe_instead(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda p: p.write_bytes(p.read_bytes()[:-40]),
    "empty": lambda p: p.write_bytes(b""),
    "text": lambda p: p.write_bytes(b"hello\n"),
    "list": lambda p: p.write_bytes(b"[]\n{}\n"),
    "deep": lambda p: p.write_bytes(b"[" * 100_000),
    "digit": lambda p: p.write_bytes(p.read_bytes().replace(b"00", b"01", 1)),
    "schema": lambda p: p.write_bytes(p.read_bytes().replace(b'"schema": 2', b'"schema": 1')),
    "types": lambda p: changed(p, lambda d: d.update(rows=3)),
    "missing": lambda p: changed(p, lambda d: d.pop("machine")),
    "nan": lambda p: changed(p, lambda d: d["rows"][0].__setitem__(1, float("nan"))),
    "large": lambda p: changed(p, lambda d: d["rows"][0].__setitem__(1, 10**400)),
    "base64": lambda p: changed(p, lambda d: d.update(histograms={"read": ["*"]})),
    "histogram": lambda p: changed(p, lambda d: d.update(histograms={"read": ["AAAA"]})),
    "foreign": lambda p: changed(p, lambda d: d["identity"]["params"].update(n=2)),
    "other": lambda p: changed(p, lambda d: d["identity"].update(experiment="a/b")),
    "folder": folder_instead,
    "link": link_instead,
    "pipe": pipe_instead,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_set_aside_and_measured_again(tree: Tree, damage: str) -> None:
    tree.run()
    bad = tree.points[0]
    DAMAGES[damage](bad)
    with pytest.warns(DamagedFile) as caught:
        left = rd.load(tree.out)
    assert len(left) == 1
    assert unnamed(str(caught[0].message), bad) == []
    with pytest.warns(DamagedFile):
        assert tree.verdict().verdict == "not evaluated"
    with pytest.warns(DamagedFile) as caught:
        outcome = tree.run().outcome
    assert (outcome.measured, outcome.reused) == (1, 1)
    aside = tree.out / "fake/rates/sim/damaged" / bad.name
    assert unnamed(str(caught[0].message), bad, aside) == []
    assert aside.is_symlink() or aside.exists()
    assert tree.verdict().verdict == "held"
    assert len(rd.load(tree.out)) == 2


def test_a_damaged_point_of_other_code_is_set_aside(tree: Tree) -> None:
    tree.run()
    old = tree.points
    tree.edit("FACTOR = 100", "FACTOR = 101")
    old[0].write_bytes(b"")
    with pytest.warns(DamagedFile):
        tree.run()
    assert len(rd.load(tree.out, superseded=True)) == 3


def test_what_lies_beside_the_points_stops_nothing(tree: Tree) -> None:
    tree.run()
    points = tree.points[0].parent
    (points / ".ipynb_checkpoints").mkdir()
    (points / ".ipynb_checkpoints" / tree.points[0].name).touch()
    (points / "notes.txt").touch()
    left = points / f".{tree.points[0].name}.abcdefgh"
    left.touch()
    (tree.out / "fake/rates/sim/results.parquet").write_bytes(b"")
    (tree.out / "fake/rates/sim/run.json").write_bytes(b"")
    assert tree.run().outcome.reused == 2
    assert tree.verdict().verdict == "held"
    assert not left.exists(), "a killed worker's temporary file"
    assert (points / "notes.txt").exists()


def test_a_broken_file_of_experiments_costs_itself_only(tree: Tree) -> None:
    tree.run()
    for name, text in {
        "syntax": "experiment = (\n",
        "raises": "experiment = 1 / 0\n",
        "exits": "import sys\nsys.exit('experiment')\nexperiment = None\n",
        "no_text": "experiment = '\xff'\n",
        "where": "from pyrdma import *\nexperiment = Experiment(id='fake/where', title='', "
        "profile='cx5', measure=len, axes={'n': Axis([1])}, where=lambda p: 1 / 0)\n",
        "profile": "from pyrdma import *\nexperiment = Experiment(id='fake/profile', title='', "
        "profile='nope', measure=None)\n",
        "axis": "from pyrdma import *\nexperiment = Experiment(id='fake/axis', title='', "
        "profile='cx5', measure=None, axes={'seed': Axis([1])})\n",
    }.items():
        (tree.file.parent / f"{name}.py").write_bytes(text.encode("latin-1"))
    listed = pyrdma("list", "--json", cwd=tree.folder)
    assert listed.returncode == 0, listed.stderr
    assert [entry["id"] for entry in json.loads(listed.stdout)] == ["fake/rates"]
    for name in ("syntax", "raises", "exits", "no_text", "axis", "where", "profile"):
        assert unnamed(listed.stderr, f"fake/{name}") == []
    assert unnamed(listed.stderr, "ZeroDivisionError", "line 1") == []
    assert "Traceback" not in listed.stderr
    (tree.file.parent / "claim.py").write_text(
        "from pyrdma import *\nexperiment = Experiment(id='fake/claim', title='', profile='cx5', "
        "measure=None, decides={'fake/nope': len, 'fake/peak': len})\n"
    )
    judged = pyrdma("claims", "--json", "--out", str(tree.out), cwd=tree.folder)
    assert judged.returncode == 0, judged.stderr
    assert [entry["verdict"] for entry in json.loads(judged.stdout)] != []
    assert unnamed(judged.stderr, "fake/claim", "fake/nope") == []
    ran = pyrdma("run", "all", "--out", str(tree.out), cwd=tree.folder)
    assert ran.returncode == 1
    assert "fake/rates: 2 points already measured" in ran.stdout
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -float("inf"), None, "x", 10**400],
    ids=["nan", "inf", "-inf", "none", "text", "large"],
)
def test_numbers_that_are_not_finite_are_refused(value: Any) -> None:
    with raises(rd.Error, "rate", shown(value)):
        normalise({"rate": value})
    with raises(rd.Error, "value"):
        Row("rate", value)
    with raises(rd.Error, "rate", shown(value)):
        normalise(rd.Result(samples=[rd.result.Sample(0, 0, "rate", value)]))


@pytest.mark.parametrize(
    "name", ["../evil", "a/../b", "a/b/c", "a", "/a/b", "a/.b", "a/b\n", "a/", "a/b c", "..", "ä/b"]
)
def test_ids_stay_in_the_folder(name: str) -> None:
    with pytest.raises(InvalidArgument):
        Experiment(id=name, title="", profile="cx5", measure=None)


@pytest.mark.parametrize("name", ["seed", "value", "metric", "node", "a b", "", "1a"])
def test_axes_and_labels_are_not_named_like_columns(name: str) -> None:
    with raises(InvalidArgument, name):
        Experiment(id="a/b", title="", profile="cx5", measure=None, axes={name: Axis([1])})
    with raises(InvalidArgument, name):
        Row("rate", 1.0, "op/s", {name: 1})


def test_values_of_axes_and_labels_are_plain() -> None:
    import numpy as np

    assert Row("rate", 1.0, "op/s", {"n": np.int64(3)}).labels == {"n": 3}
    for value in (None, [1], float("nan"), 2**64):
        with raises(InvalidArgument, value):
            Row("rate", 1.0, "op/s", {"n": value})  # type: ignore[dict-item]
        with raises(InvalidArgument, value):
            axes = {"n": Axis([value])}  # type: ignore[list-item]
            Experiment(id="a/b", title="", profile="cx5", measure=None, axes=axes)


@pytest.mark.parametrize("part", ["fake", "fake/rates", "fake/rates/sim", "fake/rates/sim/points"])
def test_no_link_is_followed_below_the_results(tree: Tree, part: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (victim / "points").mkdir(parents=True)
    precious = [victim / "lock", victim / "points" / f".{'0' * 20}.jsonl.abcdefgh"]
    for file in precious:
        file.write_text("precious")
    place = tree.out / part
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(victim)
    with raises(rd.Error, place):
        tree.run()
    assert all(file.read_text() == "precious" for file in precious)


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_a_lock_that_is_a_link_is_not_truncated(
    tree: Tree, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    tree.run()
    lock = tree.out / "fake/rates/sim/lock"
    lock.unlink()
    make(precious, lock)
    with raises(rd.Error, lock):
        tree.run()
    assert precious.read_text() == "precious"


def test_a_folder_for_all_users_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with raises(rd.Error, folder, "chmod"):
        own_folder(folder, "a")
    folder.chmod(0o1777)  # nobody can replace another user's entries
    assert own_folder(folder, "a").is_dir()
    (folder / "b").touch()
    with raises(rd.Error, folder / "b"):
        own_folder(folder, "b")


def test_a_file_system_without_locks_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno
    import fcntl

    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    Store(tmp_path, "a/b", "sim").close()


@pytest.mark.parametrize("command", ["claims", "summary", "draw", "compare"])
def test_a_results_folder_must_exist(tmp_path: Path, command: str) -> None:
    missing = tmp_path / "nowhere"
    words = [str(missing), str(missing)] if command == "compare" else ["--out", str(missing)]
    done = pyrdma(command, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert unnamed(done.stderr, missing, "pyrdma run") == []
    with raises(InvalidArgument, missing):
        rd.load(missing)
    shutil.copy(__file__, missing)
    with raises(InvalidArgument, missing, "not a folder"):
        rd.load(missing)


@pytest.mark.parametrize("command", [["list"], ["claims", "--json"]])
def test_an_output_that_cannot_be_written_is_an_error(tmp_path: Path, command: list[str]) -> None:
    words = [*COMMAND, *command]
    if command[0] == "claims":
        words += ["--out", str(tmp_path)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            words, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment()
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert unnamed(done.stderr, "output", "space") == []


def test_a_fabric_must_exist_for_claims(tmp_path: Path) -> None:
    done = pyrdma("claims", "--fabric", "smh", "--out", str(tmp_path))
    assert done.returncode == 2
    assert unnamed(done.stderr, "smh", "shm") == []
