"""Results of testbeds and of hosts that measured apart are judged, drawn and compared as others."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import pyrdma as rd
from pyrdma import claims
from pyrdma.hosts.fleet import Fleet
from pyrdma.places import Place
from pyrdma.sharing import archive, crate, report
from pyrdma.sharing.verify import verify
from tests.errors import raises, unnamed
from tests.harness.support import pyrdma
from tests.sharing.rewrite import contents
from tests.stored.tree import Tree, tree

__all__ = ["tree"]  # a fixture

LAB = "results/fake/rates/shm@lab"
HOSTS = "all: {vars: {ansible_connection: local, pyrdma_testbed: lab}, hosts: {a: {}, b: {}}}"


@pytest.fixture
def measured(tree: Tree) -> Tree:
    """A tree whose experiment two hosts of a testbed have measured over ``shm``, each apart."""
    inventory = tree.folder / "hosts.yml"
    inventory.write_text(HOSTS)
    with Fleet.open(inventory) as fleet:
        tree.run(fabric="shm", fleet=fleet)
    return tree


def change(tree: Tree, host: str) -> None:
    """Give the points of a host other numbers."""
    for path in (tree.folder / LAB / "points").iterdir():
        header, body = path.read_bytes().splitlines()
        document = json.loads(body)
        if document["identity"]["host"] == host:
            document["rows"][0][1] *= 2
            body = json.dumps(document).encode()
            first = {**json.loads(header), "sha256": hashlib.sha256(body).hexdigest()}
            path.write_bytes(json.dumps(first).encode() + b"\n" + body + b"\n")


def test_the_text_of_a_place_names_it() -> None:
    for text in ("sim", "shm@lab", "verbs@my-lab.1/node_0"):
        assert str(Place.of(text)) == text
    for text in ("smh", "shm@", "shm@lab/", "shm/a", "shm@../a", "shm@lab/../a", "shm@lab/a/b", ""):
        with raises(rd.InvalidArgument, text, "shm"):
            Place.of(text)


def test_each_host_has_its_verdict_and_its_figure(measured: Tree) -> None:
    change(measured, "b")
    assert measured.verdict("shm@lab/a").verdict == "held"
    assert measured.verdict("shm@lab/b").verdict == "missed"
    for fabric in ("shm@lab", "shm@lab/c", "shm"):
        verdict = measured.verdict(fabric)
        assert verdict.verdict == "not evaluated"
        assert unnamed(verdict.reason, "shm@lab" if fabric == "shm" else "shm@lab/a") == []
    pictures = {path.name for path in (measured.folder / LAB).glob("*.png")}
    assert pictures == {"rates-host=a.png", "rates-host=b.png"}
    done = pyrdma("claims", "--fabric", "shm@lab/b", "--json", cwd=measured.folder)
    assert json.loads(done.stdout)[0]["verdict"] == "missed"
    assert claims.undecided(measured.out, fabric="shm@lab/a") == []
    assert claims.undecided(measured.out, fabric="shm@lab") == ["fake/rates"]
    done = pyrdma("claims", "--fabric", "shm@lab/b", "--run", cwd=measured.folder)
    assert done.returncode == 2
    assert unnamed(done.stderr, "--run", "--inventory") == []


def test_the_only_host_of_a_testbed_needs_no_name(tree: Tree) -> None:
    (tree.folder / "hosts.yml").write_text(HOSTS)
    with Fleet.open(tree.folder / "hosts.yml", "b") as fleet:
        tree.run(fabric="shm", fleet=fleet)
    assert tree.verdict("shm@lab").verdict == "held"
    done = pyrdma("summary", cwd=tree.folder)
    assert unnamed(done.stdout, "shm@lab") == []


def test_an_archive_judges_each_host_and_a_changed_verdict_is_found(
    measured: Tree, tmp_path: Path
) -> None:
    change(measured, "b")
    path = tmp_path / "a.zip"
    archive.make(measured.out, path, say=print)
    found = {
        host: json.loads(contents(path)[f"verdicts/shm@lab/{host}.json"])["verdicts"][0]["verdict"]
        for host in "ab"
    }
    assert found == {"a": "held", "b": "missed"}
    measured.edit("value: 400", "value: 900", measured.folder / "experiments/claims/fake.yaml")
    with crate.unpacked(path) as (opened, folder):
        verification = verify(opened, folder)
    assert unnamed(verification.differences, "fake/peak on shm@lab/a") == []
    assert len(verification.differences) == 2
    assert verification.equal["figures"] == 4


def test_a_report_judges_by_a_host(measured: Tree) -> None:
    change(measured, "b")
    target = measured.folder / "report.html"
    assert report.write(measured.out, target, "shm@lab/b") == 2
    text = target.read_text()
    assert unnamed(text, "shm@lab/b", "rates-host=a", "rates-host=b", "800") == []
    with raises(rd.InvalidArgument, "smh"):
        report.write(measured.out, target, "smh")


def test_hosts_are_compared_with_themselves_and_testbeds_with_each_other(
    measured: Tree, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "fake/rates").mkdir(parents=True)
    archive.copy_points(measured.out, other)
    change(measured, "b")
    frame = rd.compare(other, measured.out)
    different = frame[frame["differs"]]
    assert set(different["host"]) == {"b"}
    assert different["ratio"].tolist() == [2.0, 2.0]
    for out, host in ((measured.out, "a"), (other, "b")):
        for path in (out / "fake/rates/shm@lab/points").iterdir():
            if f'"host": "{host}"' in path.read_text():
                path.unlink()
    # Host a of one folder, host b of the other: one host on each side needs no name.
    assert rd.compare(other, measured.out)["ratio"].tolist() == [2.0, 2.0]
