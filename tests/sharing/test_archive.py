"""An archive holds all that its figures and verdicts need, and a verification finds any change."""

from __future__ import annotations

import hashlib
import io
import json
import re
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from PIL import Image

import pyrdma as rd
from pyrdma import claims, notebook, registry, sensitivity
from pyrdma.files import DamagedFile
from pyrdma.sharing import archive, crate
from pyrdma.sharing.verify import Verification, verify
from tests.errors import raises, unnamed
from tests.harness.support import pyrdma
from tests.sharing.rewrite import contents, rewritten
from tests.stored.tree import Tree, forget, tree

__all__ = ["tree"]  # a fixture

PLACE = "results/fake/rates/sim"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of a fake paper's results, in an archive's folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("made")
        patch.chdir(folder)
        forget()
        fake = Tree(folder)
        fake.run()
        target = folder / "a.zip"
        archive.make(fake.out, target, license="CC-BY-4.0", author="A. Author", say=print)
    forget()
    return target


def verified(path: Path) -> Verification:
    with crate.unpacked(path) as (opened, folder):
        return verify(opened, folder)


def test_an_archive_is_a_crate_that_lists_every_file(made: Path) -> None:
    files = contents(made)
    document = json.loads(files.pop(crate.METADATA))
    by_id = {entity["@id"]: entity for entity in document["@graph"]}
    assert by_id[crate.METADATA]["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.2"}
    root = by_id["./"]
    assert {"name", "description", "datePublished", "license", "hasPart"} <= root.keys()
    assert root["license"]["@id"].endswith("CC-BY-4.0")
    assert by_id[root["author"]["@id"]]["name"] == "A. Author"
    assert {part["@id"] for part in root["hasPart"]} == files.keys()
    for name, content in files.items():
        assert by_id[name]["sha256"] == hashlib.sha256(content).hexdigest()
        assert by_id[name]["contentSize"] == str(len(content))
    wanted = ("results.parquet", "hist.parquet", "rates.png", "rates.pdf", "run.json")
    assert {f"{PLACE}/{name}" for name in wanted} <= files.keys()
    assert {"experiments/fake/rates.py", "experiments/claims/fake.yaml"} <= files.keys()
    assert {"profiles/cx5.toml", "verdicts/sim.json", "README.md"} <= files.keys()
    assert unnamed(files["README.md"].decode(), rd.__version__, "CC-BY-4.0", "A. Author") == []


def test_an_archive_names_no_folder_of_its_maker(made: Path) -> None:
    for name, content in contents(made).items():
        assert str(made.parent).encode() not in content, name
        assert b"pyrdma-archive-" not in content, name


@pytest.mark.usefixtures("tree")
def test_an_archive_agrees_with_itself(made: Path) -> None:
    found = verified(made)
    assert found.differences == ()
    wanted = {"points": 2, "tables": 2, "figures": 2, "verdicts": 1}
    assert wanted.items() <= dict(found.equal).items()
    assert found.sha256 == hashlib.sha256(made.read_bytes()).hexdigest()
    assert found.notes == ()


def test_results_of_other_code_keep_their_verdicts(tree: Tree, made: Path) -> None:
    tree.edit("FACTOR = 100", "FACTOR = 200")  # today's points would be others
    found = verified(made)
    assert found.differences == ()
    assert unnamed(found.notes, "experiments/fake/rates.py", "--run-archived") == []


def test_another_figure_and_another_judge_are_found(tree: Tree, made: Path) -> None:
    tree.edit('LABEL = "label 1"', 'LABEL = "other"')
    tree.edit("value: 400", "value: 900", tree.folder / "experiments/claims/fake.yaml")
    found = verified(made)
    assert unnamed(found.differences, "fake/rates/sim/rates.png", "fake/peak") == []
    assert unnamed(found.differences, 900, "missed") == []
    done = pyrdma("verify", str(made), cwd=tree.folder)
    assert done.returncode == 1
    assert unnamed(done.stdout, "fake/peak", found.sha256) == []
    done = pyrdma("verify", str(made), "--run-archived", "--json", cwd=tree.folder)
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["differences"] == []


def test_verdicts_under_changed_estimates_come_along(tree: Tree, tmp_path: Path) -> None:
    tree.run()
    experiment = registry.load("fake/rates")
    changed = {"cpu.poll_ns halved": {"fake/peak": "missed"}}
    basis = sensitivity.basis_of(experiment)
    record = sensitivity.Sensitivity(basis, {"fake/peak": "held"}, changed, whole=True)
    record.write(tree.out, experiment)
    assert tree.verdict().verdict == claims.NOT_ROBUST
    path = tmp_path / "b.zip"
    archive.make(tree.out, path, say=print)
    assert claims.NOT_ROBUST.encode() in contents(path)["verdicts/sim.json"]
    tree.edit("FACTOR = 100", "FACTOR = 200")
    assert verified(path).differences == ()


def test_results_of_a_testbed_and_its_hosts_come_along(tree: Tree, tmp_path: Path) -> None:
    tree.run(fabric="shm")
    place = tree.out / "fake/rates/shm@lab-1"
    (tree.out / "fake/rates/shm").rename(place)
    pd.DataFrame({"host": ["a"]}).to_parquet(place / "hosts.parquet")
    (tree.out / "fake/rates/shm@lab-1/notes.txt").write_text("mine")
    archive.make(tree.out, tmp_path / "b.zip", say=print)
    there = {name for name in contents(tmp_path / "b.zip") if name.startswith("results/")}
    names = {Path(name).name for name in there if "/shm@lab-1/" in name and "points" not in name}
    wanted = {"results.parquet", "hist.parquet", "hosts.parquet", "run.json"}
    assert names == {*wanted, "rates.png", "rates.pdf"}
    assert len(there) == len(names) + 2, "and two points"


def changed_point(files: dict[str, bytes]) -> dict[str, bytes | None]:
    """A point with another rate, whose own hash fits."""
    [name, *_] = sorted(n for n in files if n.endswith(".jsonl"))
    header, body = files[name].splitlines()
    document = json.loads(body)
    document["rows"][0][1] += 50
    body = json.dumps(document).encode()
    first = {**json.loads(header), "sha256": hashlib.sha256(body).hexdigest()}
    return {name: json.dumps(first).encode() + b"\n" + body + b"\n"}


@pytest.mark.usefixtures("tree")
def test_a_changed_point_differs_in_table_and_figure(made: Path, tmp_path: Path) -> None:
    path = rewritten(made, tmp_path / "b.zip", changed_point(contents(made)))
    found = verified(path)
    assert unnamed(found.differences, "fake/rates/sim/results.parquet", "value") == []
    [figure] = [text for text in found.differences if text.startswith("fake/rates/sim/rates.png")]
    assert re.search(r"\d\.\d+%", figure)
    assert "1.2.3" not in figure
    document = json.loads(contents(path)["provenance.json"])
    document["by"]["packages"]["matplotlib"] = "1.2.3"
    changes = {"provenance.json": json.dumps(document).encode()}
    found = verified(rewritten(path, tmp_path / "c.zip", changes))
    assert unnamed(found.differences, "matplotlib", "1.2.3") == []


def picture(colour: str, size: int = 8) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (size, size), colour).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{PLACE}/rates.png", picture("red")),
        (f"{PLACE}/rates.png", b"\x89PNG\r\n\x1a\n" + bytes(40)),
        (f"{PLACE}/rates.png", None),
        (f"{PLACE}/rates.pdf", b"%PDF-1.4"),
        (f"{PLACE}/more.png", picture("red")),
        (f"{PLACE}/results.parquet", b"PAR1"),
        (f"{PLACE}/results.parquet", None),
        (f"{PLACE}/points/{'0' * 20}.jsonl", b"{}\n{}\n"),
        ("results/else/where.jsonl", b"{}"),
        ("results/fake/no_points/sim/a.png", picture("red")),
        ("verdicts/shm.json", b'{"verdicts": []}'),
        ("verdicts/sim.json", b'{"verdicts": []}'),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_changed_file_is_found(
    made: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    found = verified(rewritten(made, tmp_path / "b.zip", {name: content}))
    what = "fake/peak" if name == "verdicts/sim.json" else name.removeprefix("results/")
    assert unnamed(found.differences, what) == []
    assert len(found.differences) == 1


@pytest.mark.usefixtures("tree")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("provenance.json", None),
        ("provenance.json", b"{}"),
        ("provenance.json", b"["),
        ("provenance.json", b'{"by": {"packages": []}}'),
        ("verdicts/sim.json", None),
        ("verdicts/sim.json", b"{}"),
        ("verdicts/sim.json", b'{"verdicts": [1]}'),
        ("verdicts/sim.json", b"[" * 100_000),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_archive_in_another_form_is_refused(
    made: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    path = rewritten(made, tmp_path / "b.zip", {name: content})
    with raises(rd.Error, path, name):
        verified(path)


def test_code_of_an_archive_does_not_run(tree: Tree, made: Path, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    source = contents(made)["experiments/fake/rates.py"]
    code = f"open({str(mark)!r}, 'w').close()\n".encode()
    path = rewritten(made, tmp_path / "b.zip", {"experiments/fake/rates.py": code + source})
    assert verified(path).differences == ()
    assert not mark.exists()
    assert pyrdma("verify", str(path), "--run-archived", cwd=tree.folder).returncode == 0
    assert mark.exists(), "the test's code does not run at all"


def test_an_experiment_that_is_not_here_is_named(tree: Tree, tmp_path: Path) -> None:
    tree.run()
    tree.file.rename(tree.file.with_name("moved.py"))
    forget()
    said: list[str] = []
    archive.make(tree.out, tmp_path / "b.zip", say=said.append)
    assert unnamed(said, "fake/rates") == []
    assert f"{PLACE}/rates.png" in contents(tmp_path / "b.zip"), "the stored figure comes along"
    differences = verified(tmp_path / "b.zip").differences
    assert unnamed(differences, "fake/rates", "fake/rates/sim/rates.png") == []


def test_a_damaged_point_is_left_out_and_named(tree: Tree, tmp_path: Path) -> None:
    tree.run()
    tree.points[0].write_bytes(b"{}")
    with pytest.warns(DamagedFile, match=tree.points[0].name):
        archive.make(tree.out, tmp_path / "b.zip", say=print)
    assert verified(tmp_path / "b.zip").equal["points"] == 1
    assert tree.points[0].read_bytes() == b"{}", "the results folder is only read"


def test_bad_arguments_of_archive_are_named(tree: Tree, tmp_path: Path) -> None:
    target = tmp_path / "b.zip"
    with raises(rd.InvalidArgument, tree.out):
        archive.make(tree.out, target)
    tree.run()
    with raises(rd.InvalidArgument, tree.out / "fake"):
        archive.make(tree.out / "fake", target)
    with raises(rd.InvalidArgument, "nowhere"):
        archive.make(tmp_path / "nowhere", target)
    with raises(rd.InvalidArgument, "a licence"):
        archive.make(tree.out, target, license="a licence")
    with raises(rd.InvalidArgument, tmp_path / "none"):
        archive.make(tree.out, tmp_path / "none/b.zip")
    target.write_text("mine")
    with raises(rd.InvalidArgument, target):
        archive.make(tree.out, target)
    assert target.read_text() == "mine"


# --- fetch ----------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/pyrdma/archives"


def test_a_fetched_archive_is_a_results_folder(made: Path, cache: Path) -> None:
    fetched = rd.fetch(made)
    pd.testing.assert_frame_equal(rd.load(fetched), rd.load(made.parent / "results"))
    assert fetched.is_relative_to(cache)
    assert cache.stat().st_mode & 0o022 == 0
    before = fetched.stat().st_mtime_ns, fetched.stat().st_ino
    assert rd.fetch(str(made)) == fetched
    assert (fetched.stat().st_mtime_ns, fetched.stat().st_ino) == before, "unpacked once"
    assert rd.fetch(made.parent / "results") == made.parent / "results"


def test_a_partial_copy_is_removed(made: Path, cache: Path) -> None:
    (cache / "partial-1").mkdir(parents=True)
    (cache / "partial-1/a").touch()
    fetched = rd.fetch(made)
    assert {p.name for p in cache.iterdir()} == {"lock", fetched.parent.name}


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("change", ["changed", "added", "removed", "linked", "folder"])
def test_a_changed_copy_is_refused(made: Path, tmp_path: Path, change: str) -> None:
    fetched = rd.fetch(made)
    [file, *_] = sorted(fetched.rglob("*.jsonl"))
    if change == "added":
        file = file.with_name("new.jsonl")
        file.touch()
    elif change == "folder":
        file = fetched / "more"
        file.symlink_to(tmp_path, target_is_directory=True)
    elif change == "changed":
        file.write_bytes(file.read_bytes()[:-2])
    else:
        content = file.read_bytes()
        file.unlink()
        if change == "linked":
            (tmp_path / "target").write_bytes(content)
            file.symlink_to(tmp_path / "target")
    with raises(rd.Error, fetched.parent, file.name):
        rd.fetch(made)


@pytest.mark.usefixtures("cache")
def test_other_sources_are_refused(tmp_path: Path) -> None:
    for name, content in (("hosts.yml", b"all: {}\n"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        with raises(rd.InvalidArgument, tmp_path / name):
            rd.fetch(tmp_path / name)
    with raises(rd.InvalidArgument, "nowhere"):
        rd.fetch("nowhere")


def test_a_notebook_shows_an_archive_as_it_is(
    made: Path, cache: Path, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    display = SimpleNamespace(display=shown.append, Image=lambda filename: filename)
    monkeypatch.setattr(notebook, "import_module", lambda _: display)
    monkeypatch.setattr(notebook, "progress", lambda _: None)
    monkeypatch.setenv("PYRDMA_RESULTS", str(made))
    tree.edit(
        "FACTOR = 100", "FACTOR = 200"
    )  # today's points would be others, and are not measured
    out = rd.fetch(notebook.results_folder())
    assert out.is_relative_to(cache)
    notebook.show(out, "fake/rates", "fake/none")
    assert shown == [str(out / "fake/rates/sim/rates.png")]
    assert notebook.verdicts(out)["verdict"].tolist() == ["held"]
    assert rd.fetch(made) == out, "nothing was written"
    notebook.show(tree.out, "fake/rates")
    assert shown[1:] == [str(tree.out / "fake/rates/sim/rates.png")]
    monkeypatch.setenv("PYRDMA_RESULTS", str(tree.folder / "new"))
    assert list(rd.fetch(notebook.results_folder()).iterdir()) == []


def test_a_large_file_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "large.json").write_bytes(bytes(24 << 20))
    tracemalloc.start()
    try:
        crate.pack(folder, tmp_path / "a.zip", {}, [])
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    with crate.unpacked(tmp_path / "a.zip") as (opened, unpacked):
        assert (unpacked / "large.json").stat().st_size == 24 << 20
        tracemalloc.start()
        try:
            assert crate.changed(opened, unpacked) == []
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()


def test_a_file_that_does_not_fit_into_an_archive_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zipfile.ZIP64_LIMIT", 1 << 20)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "large.json").write_bytes(bytes(2 << 20))
    with raises(rd.Error, "4 GiB"):
        crate.pack(folder, tmp_path / "a.zip", {}, [])
    assert not (tmp_path / "a.zip").exists()
