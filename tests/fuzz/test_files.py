"""Damaged files: the error names the file; the parser's traceback never shows; no code runs."""

from __future__ import annotations

import copy
import hashlib
import ipaddress
import json
import math
import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

import pyrdma as rd
from pyrdma import cloudlab, workload
from pyrdma.profiles import FOLDER, Profile
from pyrdma.results import table
from pyrdma.sharing import crate
from pyrdma.store import read_point
from tests.cloudlab.test_inventory import MANIFESTS
from tests.fuzz.hostile import SEED, inputs
from tests.stored.test_tables import store


def test_any_profile_is_read_or_refused(tmp_path: Path) -> None:
    good = (FOLDER / "cx5.toml").read_bytes()
    lines = good.splitlines(keepends=True)
    file = tmp_path / "some.toml"
    refusals = []
    for content in inputs([good, b"".join(lines[:20]), b""]):
        file.write_bytes(content)
        try:
            profile = Profile.load(file)
        except rd.InvalidArgument as error:
            refusals.append(str(error))
        else:
            assert len(profile.values()) == len(profile.parameters)
    assert len(refusals) > 50
    assert all(str(file) in refusal for refusal in refusals)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    load = workload.VerbsLoad(op="read", mode="latency")
    with rd.Cluster.sim(nodes=2, profile="cx5", seed=1) as cluster:
        result = cluster.run(load, duration_s=20e-6)
    return result.save(tmp_path_factory.mktemp("result") / "saved")


@pytest.mark.parametrize("name", ["run.json", "results.parquet", "hist.parquet"])
def test_any_result_is_read_or_refused(saved: Path, tmp_path: Path, name: str) -> None:
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    good = (saved / name).read_bytes()
    refusals = []
    for content in inputs([good]):
        (tmp_path / name).write_bytes(content)
        try:
            result = rd.Result.load(tmp_path)
            for operation in result.histograms:
                result.latency(operation)
        except rd.Error as error:
            refusals.append(str(error))
    assert len(refusals) > 50
    unnamed = [t for t in refusals if str(tmp_path) not in t and "histogram" not in t]
    assert unnamed == []


def test_any_stored_point_is_read_or_refused(tmp_path: Path) -> None:
    store(tmp_path, "a/b", {1: 100.0}, size=8, op="read")
    [target] = (tmp_path / "a/b/sim/points").iterdir()
    good = target.read_bytes()
    header, body = good.splitlines()
    before = read_point(target)
    refused = 0
    for number, content in enumerate(inputs([good, body])):
        if number % 2:  # the hash fits, so that the fields are reached
            first = {**json.loads(header), "sha256": hashlib.sha256(content).hexdigest()}
            content = json.dumps(first).encode() + b"\n" + content
        target.write_bytes(content)
        try:
            found = read_point(target)
        except ValueError:
            refused += 1
            continue
        assert found.identity == before.identity
        assert all(math.isfinite(row.value) for row in found.rows)
        table([found])
    assert refused > 50


def with_value(choice: random.Random, manifest: bytes, value: bytes) -> bytes:
    """Return the manifest with this value in attributes or texts, or with elements copied."""
    root = ET.fromstring(manifest)
    text = re.sub("[^\t\n -\ud7ff]", "", value.decode("utf-8", "replace"))
    for _ in range(choice.randint(1, 3)):
        element = choice.choice(list(root.iter()))
        match choice.randrange(4):
            case 0:
                element.append(copy.deepcopy(choice.choice(list(root.iter()))))
            case 1:
                element.text = text
            case _:
                names = [*element.attrib, "port", "username", "client_id", "address"]
                element.set(choice.choice(names), text)
    return ET.tostring(root)


def test_any_manifest_becomes_a_safe_inventory_or_is_refused() -> None:
    choice = random.Random(SEED)
    manifests = [path.read_bytes() for path in sorted(MANIFESTS.iterdir())]
    values = [b"node-1", b"10.10.1.1", b"2001:db8::1", b"22", b"ada", b"{{ x }}", b"-o", b"a\nb: c"]
    taken, refusals = 0, []
    for number, content in enumerate(inputs([*manifests, *values])):
        if number % 4:  # well formed, so that the fields are reached
            content = with_value(
                choice, choice.choice(manifests), choice.choice([content[:80], *values])
            )
        try:
            found = cloudlab.read_manifest(content, "ada")
        except rd.Error as error:
            refusals.append(str(error))
            continue
        taken += 1
        assert yaml.safe_load(found.yaml()) == {"all": {"hosts": found.hosts}}
        for name, host in found.hosts.items():
            port, address = host["ansible_port"], host.get("pyrdma_address", "10.10.1.1")
            assert isinstance(port, int)
            assert 1 <= port <= 65535
            assert str(ipaddress.ip_address(address)) == address
            words = [word for word in host.values() if word not in (port, address)]
            for word in (name, *words):
                assert re.fullmatch("[A-Za-z0-9_][A-Za-z0-9._-]{0,252}", str(word)), word
    assert taken > 50
    assert len(refusals) > 50
    assert max(map(len, refusals)) < 3000


def test_any_archive_is_unpacked_or_refused(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(f"{name} " * 20)
    path = tmp_path / "some.zip"
    crate.pack(folder, path, {"name": "n"}, [])
    good = path.read_bytes()
    refusals = []
    for content in inputs([good, good[-300:]]):
        path.write_bytes(content)
        try:
            with crate.unpacked(path) as (archive, unpacked):
                found = {p.name: p.read_bytes() for p in unpacked.iterdir()}
        except rd.Error as error:
            refusals.append(str(error))
            continue
        digests = {n: hashlib.sha256(found[n]).hexdigest() for n in archive.files}
        assert digests == {n: digest for n, (_, digest) in archive.files.items()}
    assert len(refusals) > 50
    assert all(str(path) in refusal for refusal in refusals)


def test_a_result_is_data(saved: Path) -> None:
    for file in saved.iterdir():
        content = file.read_bytes()
        assert not content.startswith((b"\x80\x04", b"\x80\x05")), f"{file.name} is a pickle"
    document = json.loads((saved / "run.json").read_text(encoding="utf-8"))
    assert document["schema"]
