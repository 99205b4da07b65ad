"""``pyrdma check``: exit status, text, JSON and picture; arbitrary bytes as a history."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrdma import InvalidArgument, check, figures
from pyrdma._core import check as native
from pyrdma.files import DiskFull
from tests.check.histories import events, write
from tests.check.test_models import GOOD
from tests.errors import unnamed
from tests.harness.support import pyrdma

STALE = """
    0 + write 1
    0 . write
    3 + write 5
    0 + write 2
    1 + read
    0 . write
    1 . read 2
    2 + read
    2 . read 1
"""


def test_yes_is_0(tmp_path: Path) -> None:
    done = pyrdma("check", str(write(tmp_path, GOOD["kv"], model="kv")), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert unnamed(done.stdout, 6, 2, "kv") == []
    assert [path.name for path in tmp_path.iterdir()] == ["history.jsonl"]


def test_violation_is_1_with_window_and_picture(tmp_path: Path) -> None:
    path = write(tmp_path, STALE, model="register")
    done = pyrdma("check", str(path), "--out", str(tmp_path / "out"))
    assert (done.returncode, done.stderr) == (1, "")
    assert unnamed(done.stdout, "register", "read -> 1", 2, 7, 8) == []
    for suffix in ("png", "pdf"):
        picture = tmp_path / "out" / f"history-violation.{suffix}"
        assert str(picture) in done.stdout
        assert picture.stat().st_size > 3000


def test_picture_shows_bars_and_marks_one(tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    verdict = check.check(write(tmp_path, STALE), "register")
    png = next(path for path in check.draw(verdict, tmp_path) if path.suffix == ".png")
    pixels = plt.imread(png)[:, :, :3]
    assert pixels.shape[0] > 150
    rgb = np.array([0xBB, 0x55, 0x66]) / 255  # frames and arrow of the contradiction
    marked = (np.abs(pixels - rgb).max(axis=2) < 0.02).any(axis=1)
    assert marked.nonzero()[0].max() - marked.nonzero()[0].min() > 100  # of two rows
    grey = pixels.mean(axis=2)
    assert grey.std() > 0.05


def operation(text: str, ns: tuple[int, int | None], place: int | None = None) -> check.Operation:
    return check.Operation(0, text, *ns, 0, None, False, text == "impossible", place)


@pytest.mark.parametrize(
    ("window", "pair"),
    [
        ([operation("a", (0, 1), 0), operation("b", (0, 1), 1)], ["b", "impossible"]),
        ([operation("a", (0, 1)), operation("b", (0, 3)), operation("c", (0, 9))], ["b"]),
        ([operation("a", (0, None))], []),
    ],
)
def test_the_contradicting_pair(window: list[check.Operation], pair: list[str]) -> None:
    found = check.contradiction([*window, operation("impossible", (5, 6))])
    assert [o.text for o in found] == [*pair[:1], "impossible"]
    assert check.contradiction(window) == []


def test_many_overlapping_operations_are_drawn(tmp_path: Path) -> None:
    operations = [
        check.Operation(
            n % 7, f"write {n}", n, None if n % 3 else n + 40, n, None, False, n == 150, n
        )
        for n in range(200)
    ]
    paths = check.draw(check.Verdict("no", "register", 3, "", operations), tmp_path, "many")
    assert all(path.stat().st_size > 3000 for path in paths)
    assert check.draw(check.Verdict("no", "raft", None, "text"), tmp_path) == []


def test_labels_do_not_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []

    def save(figure: Any, *_: object, **__: object) -> list[Path]:
        drawn.append(figure)
        return []

    monkeypatch.setattr(figures, "save", save)
    operations = [
        replace(
            operation(f"write {10**9 + n}", (9 * n, None if n == 7 else 9 * n + 5)), process=n % 3
        )
        for n in range(30)
    ]
    check.draw(check.Verdict("no", "register", 3, "", operations), tmp_path)
    (figure,) = drawn
    figure.canvas.draw()
    (ax,) = figure.axes
    labels = [text.get_window_extent() for text in ax.texts if text.get_text()]
    assert len(labels) == 30
    assert not any(a.overlaps(b) for a, b in itertools.combinations(labels, 2))
    assert max(label.x1 for label in labels) <= ax.get_window_extent().x1


def test_json_alone(tmp_path: Path) -> None:
    path = write(tmp_path, STALE, model="register")
    done = pyrdma("check", str(path), "--json", "--out", str(tmp_path))
    assert done.returncode == 1
    document = json.loads(done.stdout)
    assert document["answer"] == "no"
    assert [row["text"] for row in document["window"] if row["impossible"]] == ["read -> 1"]
    pictures = [tmp_path / f"history-violation.{suffix}" for suffix in ("png", "pdf")]
    assert done.stderr.split() == [str(picture) for picture in pictures]
    assert all(picture.exists() for picture in pictures)


@pytest.mark.parametrize(
    "value",
    ["$x^2", r"\$\frac$", "a" * 500_000, "\u001b[31m\u202e\r\n"],
    ids=["mathematics", "backslash", "long", "control"],
)
def test_any_value_is_printed_and_drawn(value: str, tmp_path: Path) -> None:
    quoted = json.dumps(value).replace(" ", "\\u0020")
    text = f"0 + write {quoted}\n0 . write\n1 + read\n1 . read 1\n2 + read\n2 . read {quoted}"
    path = write(tmp_path, text, model="register")
    done = pyrdma("check", str(path), "--out", str(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    assert "is not valid" in done.stdout
    assert len(done.stdout) < 2000
    assert all(line.isprintable() for line in done.stdout.splitlines())
    assert (tmp_path / "history-violation.pdf").stat().st_size > 3000


def test_a_long_key_with_control_characters_is_drawn(tmp_path: Path) -> None:
    operation = check.Operation(0, r"$get -> \x1b" + "b" * 10_000, 0, 9, 0, 1, False, True, None)
    verdict = check.Verdict("no", "kv", "$\u202e" + "a" * 500_000, "", [operation])
    assert all(path.stat().st_size > 3000 for path in check.draw(verdict, tmp_path))
    assert len(check._shortened("a" * 10_000)) == check.MOST_CHARACTERS


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("fault", [DiskFull("no space left"), ValueError("glyph"), MemoryError()])
def test_the_verdict_comes_before_a_picture_that_fails(
    fault: Exception,
    as_json: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said_before = []

    def save(*_: object, **__: object) -> None:
        said_before.append(capsys.readouterr().out)
        raise fault

    monkeypatch.setattr(figures, "save", save)
    path = write(tmp_path, STALE, model="register")
    assert check.command(path, None, tmp_path, as_json) == check.STATUS["no"]
    assert "read -> 1" in said_before[0]
    if as_json:
        assert json.loads(said_before[0])["answer"] == "no"
    after = capsys.readouterr()
    assert after.out == ""
    assert unnamed(after.err, tmp_path, str(fault) or "MemoryError") == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, STALE, model="register")
    done = pyrdma("check", str(path), "--out", str(path / "folder"))
    assert done.returncode == 1
    assert "read -> 1" in done.stdout
    assert unnamed(done.stderr, path / "folder") == []
    assert "Traceback" not in done.stderr


def long_search(folder: Path) -> Path:
    """Return a history whose search visits every subset of 24 concurrent additions."""
    lines = [f"{n} + add {2**n}" for n in range(24)] + [f"{n} . add" for n in range(24)]
    return write(folder, "\n".join([*lines, "0 + read", f"0 . read {2**30}"]), model="counter")


@pytest.mark.parametrize("what", ["a search", "a file that does not come"])
def test_ctrl_c_ends_it_within_a_second(what: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    if what == "a search":
        long_search(tmp_path)
    else:
        os.mkfifo(path)
    call = [sys.executable, "-m", "pyrdma", "check", str(path)]
    with subprocess.Popen(call, stderr=subprocess.PIPE, text=True) as process:
        descriptor = None if what == "a search" else os.open(path, os.O_WRONLY)
        time.sleep(2)
        assert process.poll() is None
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        seconds = time.monotonic() - begin
        if descriptor is not None:
            os.close(descriptor)
    assert (process.returncode, said.count("\n")) == (130, 1)
    assert "interrupted" in said
    assert seconds < 3  # a second, and the scheduling of a loaded machine


def test_an_endless_file_is_refused(tmp_path: Path) -> None:
    done = pyrdma("check", "/dev/zero", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert unnamed(done.stderr, "/dev/zero", 1, 1048576) == []


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("{}\n{]\n", [2, '"', "]"]),
        ('{"model":"queue"}\n{"process":0,"type":"ok","f":"enq"}\n', [2, 0]),
        ("", ["model"]),
        ('{"model":"heap"}\n', ["heap", "register", "kv", "queue"]),
    ],
)
def test_unreadable_is_2_and_names_the_line(
    text: str, values: list[object], tmp_path: Path
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(text, encoding="utf-8")
    done = pyrdma("check", str(path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    assert unnamed(done.stderr, path, *values) == []


def check_or_refuse(text: bytes, model: str) -> None:
    """Expect a verdict, or the error that names the unreadable part."""
    with contextlib.suppress(InvalidArgument):
        assert native.check_file(io.BytesIO(text).read, model, 1000)["answer"] in (
            "yes",
            "no",
            "unknown",
        )


@settings(max_examples=400, deadline=None, database=None)
@given(st.binary(max_size=300), st.sampled_from(sorted(GOOD)))
def test_any_bytes_are_an_answer_or_an_error(text: bytes, model: str) -> None:
    check_or_refuse(text, model)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None, database=None)
@given(
    st.sampled_from(sorted(GOOD)),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from(
        ["index", "time", "process", "type", "f", "key", "value", "node", "epoch", "op"]
    ), json_values | st.sampled_from(["invoke", "ok", "info", "fail", "read", "enq"])), max_size=3),
)  # fmt: skip
def test_changed_fields_are_an_answer_or_an_error(
    model: str, changes: list[tuple[int, str, object]]
) -> None:
    lines = events(GOOD[model])
    for where, field, value in changes:
        lines[where % len(lines)][field] = value
    text = "".join(json.dumps(line) + "\n" for line in lines)
    check_or_refuse(text.encode(), model)
