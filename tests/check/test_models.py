"""A correct and a wrong hand-written history of each model."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyrdma import InvalidArgument
from pyrdma.check import check, models
from tests.check.histories import write
from tests.errors import raises, unnamed

GOOD = {
    "register": """
        0 + write 1
        1 + read
        0 . write
        1 . read
        0 + cas [1,2]
        0 . cas true
        1 + fetch_add 5
        1 . fetch_add 2
        1 + read
        1 . read 7
    """,
    "kv": """
        0 + put 1 key="a"
        1 + insert 9 key="b"
        0 . put
        1 . insert true
        0 + get key="b"
        0 . get 9
        1 + delete key="a"
        1 . delete true
        1 + get key="a"
        1 . get
        1 + insert 4 key="b"
        1 . insert false
    """,
    "queue": """
        0 + enq 1
        1 + enq 2
        0 . enq
        1 . enq
        0 + deq
        0 . deq 2
        0 + deq
        0 . deq 1
        0 + deq
        0 . deq
    """,
    "lock": """
        0 + lock
        1 + lock
        1 . lock
        1 + unlock
        0 . lock
        1 . unlock
    """,
    "counter": """
        0 + add 2
        1 + add 3
        0 . add
        2 + read
        2 . read 5
        1 . add
        2 + fetch_add 1
        2 . fetch_add 5
    """,
    "map": """
        0 + put 10 key=1
        1 + scan 2 key=0
        1 . scan [1,10] key=0
        0 . put key=1
        0 + put 20 key=3
        0 . put key=3
        1 + scan 2 key=1
        1 . scan [1,10,3,20] key=1
        0 + scan 5 key=2
        0 . scan 20 key=2
    """,
    "fifo": """
        0 + enq 1
        0 . enq
        0 + enq 2
        0 . enq
        1 + deq
        1 . deq 1
    """,
    "mutex": """
        0 + lock
        0 . lock 7
        0 + unlock
        1 + lock
        1 . lock 8
        0 . unlock
    """,
    "barrier": """
        0 + barrier [1,2]
        1 + barrier [1,2]
        0 . barrier
        1 . barrier
    """,
    "multicast": """
        0 ! view [0,1] node=0 epoch=1
        1 ! view [0,1] node=1 epoch=1
        9 + bcast [0,1]
        9 . bcast
        0 ! deliver [0,1] node=0 epoch=1
        1 ! deliver [0,1] node=1 epoch=1
    """,
    "rpc": """
        5 + rpc [5,1,1]
        0 ! exec [5,1,1]
        5 . rpc
    """,
    "raft": """
        0 ! leader node=0 epoch=1
        0 ! append "x" node=0 key=1 epoch=1
        1 ! append "x" node=1 key=1 epoch=1
        0 ! commit 1 node=0 epoch=1
        0 ! apply "x" node=0 key=1
        1 ! apply "x" node=1 key=1
    """,
}

# The lines added to the correct history, and the operation that the verdict names.
BAD: dict[str, tuple[str, list[object]]] = {
    "register": ("1 + read\n1 . read 2", ["read -> 2"]),
    "kv": ('0 + get key="b"\n0 . get 4', ["kv", '"b"']),
    "queue": ("0 + deq\n0 . deq 2", ["queue"]),
    "lock": ("1 + lock\n1 . lock", ["lock"]),
    "counter": ("0 + read\n0 . read 5", ["counter"]),
    "map": ("0 + scan 2 key=1\n0 . scan [1,10] key=1", ["scan [1 2] -> [1 10]"]),
    "fifo": ("1 + deq\n1 . deq", [2]),
    "mutex": ("2 + lock\n2 . lock 9", [9]),
    "barrier": ("2 + barrier [1,2]", [3, 2]),
    "multicast": ("1 ! deliver [0,1] node=1 epoch=1", [1, "[0 1]"]),
    "rpc": ("0 ! exec [5,1,1]", ["[5 1 1]", 1, 3]),
    "raft": ("1 ! leader node=1 epoch=1", ["Election Safety", 1]),
}


def test_every_model_is_here() -> None:
    assert sorted(GOOD) == sorted(BAD) == sorted(models())


@pytest.mark.parametrize("model", GOOD)
def test_good_history(model: str, tmp_path: Path) -> None:
    verdict = check(write(tmp_path, GOOD[model], model=model, seed=3))
    assert (verdict.answer, verdict.text, verdict.window) == ("yes", "", [])
    assert verdict.ok
    assert verdict.operations > 0
    assert verdict.model == model
    assert verdict.seed == 3


@pytest.mark.parametrize("model", BAD)
def test_bad_history(model: str, tmp_path: Path) -> None:
    more, values = BAD[model]
    path = write(tmp_path, GOOD[model].rstrip() + "\n" + more)
    verdict = check(path, model)
    assert verdict.answer == "no"
    assert unnamed(verdict.text, *values) == []
    assert verdict.events
    if model in ("register", "kv", "queue", "lock", "counter", "map"):
        assert any(operation.impossible for operation in verdict.window)


def test_unknown_outcomes_may_happen_late_or_never(tmp_path: Path) -> None:
    lost = "0 + write 1\n0 ! write\n1 + read\n1 . read\n"
    assert check(write(tmp_path, lost, model="register")).ok
    late = lost + "1 + read\n1 . read 1"
    assert check(write(tmp_path, late, model="register")).ok
    back = late + "\n1 + read\n1 . read"
    assert not check(write(tmp_path, back, model="register")).ok
    failed = late.replace("0 ! write", "0 - write")
    assert not check(write(tmp_path, failed, model="register")).ok


def test_the_initial_value_is_the_headers(tmp_path: Path) -> None:
    text = "0 + fetch_add 2\n0 . fetch_add 7\n0 + read\n0 . read 9"
    assert check(write(tmp_path, text, model="register", initial=7)).ok
    assert not check(write(tmp_path, text, model="register", initial=8)).ok


def test_appends_as_public_logs_have_them(tmp_path: Path) -> None:
    text = """
        0 + get key="5"
        0 . get "" key="5"
        0 + append "x_0_0_y" key="0"
        0 . append "x_0_0_y" key="0"
        1 + append "x_1_0_y" key="0"
        1 . append "x_1_0_y" key="0"
        0 + get key="0"
        0 . get "x_0_0_yx_1_0_y" key="0"
        0 + put "z" key="0"
        0 . put "z" key="0"
        1 + get key="0"
        1 . get "z" key="0"
    """
    assert check(write(tmp_path, text, model="kv")).ok
    lost = text.replace("x_0_0_yx_1_0_y", "x_0_0_y")
    verdict = check(write(tmp_path, lost, model="kv"))
    assert verdict.answer == "no"
    assert unnamed(verdict.text, "kv", '"0"', '"x_0_0_y"') == []
    number = '0 + append 1 key="0"\n0 . append key="0"'
    with raises(InvalidArgument, 0, "append", 1, "text"):
        check(write(tmp_path, number, model="kv"))


def test_time_that_runs_backwards_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD["register"], model="register")
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[3] = lines[3].replace('"time": 200', '"time": 90')
    path.write_text("\n".join(lines), encoding="utf-8")
    with raises(InvalidArgument, path, 4, 90, 100, 3):
        check(path)


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD["register"], model="register")
    path.write_text(path.read_text(encoding="utf-8"), encoding="utf-8-sig")
    assert check(path).ok
    path.write_text(path.read_text(encoding="utf-8-sig"), encoding="utf-16")
    with raises(InvalidArgument, path, 1, "UTF-16", "UTF-8"):
        check(path)


def test_names_of_jepsen(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_text(
        '{"type":":invoke","f":":enqueue","value":1,"process":0}\n'
        '{"type":":info","f":":kill","value":":random","process":":nemesis"}\n'
        '{"type":":ok","f":":enqueue","value":1,"process":0}\n'
        '{"type":":invoke","f":":dequeue","value":null,"process":1}\n'
        '{"type":":ok","f":":dequeue","value":1,"process":1}\n',
        encoding="utf-8",
    )
    verdict = check(path, "queue")
    assert verdict.ok
    assert verdict.operations == 2


def test_wrong_use_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD["queue"])
    with raises(InvalidArgument, "model"):
        check(path)
    with raises(InvalidArgument, "heap", "register", "kv"):
        check(path, "heap")
    with raises(InvalidArgument, 0, "enq", "register"):
        check(path, "register")
    with raises(InvalidArgument, "raft"):
        check(path, "raft")
    with raises(InvalidArgument, "configurations", 0, 1):
        check(path, "queue", configurations=0)
    with raises(InvalidArgument, tmp_path / "none"):
        check(tmp_path / "none", "queue")
