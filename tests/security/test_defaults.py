"""The defaults are safe: no shared names, no visible secrets, no code in data."""

from __future__ import annotations

import ast
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyrdma as rd
from pyrdma import _node, workload
from pyrdma._node_process import NodeProcess
from pyrdma.processes import ProcessCluster
from tests.errors import unnamed

ROOT = Path(__file__).parents[2]
F_GET_SEALS, SEAL, SHRINK, GROW = 1034, 1, 2, 4
SOURCES = sorted(
    path for folder in ("pyrdma", "experiments") for path in (ROOT / folder).rglob("*.py")
)
NATIVE = sorted(
    path
    for path in (ROOT / "native").rglob("*")
    if path.suffix in (".cc", ".h") and not path.stem.endswith("_test")
)

# Modules that code must not load: each executes its input.
EXECUTING = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
# A pool of workers of one program has private pipes between a parent and its children.
POOLS = {"multiprocessing", "concurrent.futures.process"}
"""Modules whose messages are pickles. Futures and threads exchange none."""
WITH_POOLS = {
    "workers.py",
    "_worker.py",
    "points.py",
    "sweep.py",
    "dask_client.py",
    "slurm_jobs.py",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as made:
        assert isinstance(made, ProcessCluster)
        made.run(workload.VerbsLoad(op="read", size=8), duration_s=0.02)
        yield made


def segments(process: int) -> Iterator[Path]:
    for entry in Path(f"/proc/{process}/fd").iterdir():
        if target(entry).startswith("/memfd:pyrdma"):
            yield entry


def target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except FileNotFoundError:  # closed since it was listed
        return ""


def test_shared_memory_has_no_name_one_owner_and_one_size(cluster: ProcessCluster) -> None:
    found = 0
    for process in (os.getpid(), *cluster.process_ids):
        for entry in segments(process):
            found += 1
            assert target(entry).endswith("(deleted)")
            with entry.open("rb") as file:
                status = os.fstat(file.fileno())
                seals = fcntl.fcntl(file.fileno(), F_GET_SEALS)
            assert stat.S_IMODE(status.st_mode) == 0o600
            assert status.st_uid == os.geteuid()
            assert seals & (SEAL | SHRINK | GROW) == SEAL | SHRINK | GROW
    assert found >= 3  # the session's and one of each node


def test_no_node_holds_a_pipe_of_another(cluster: ProcessCluster) -> None:
    held = []
    for process in cluster.process_ids:
        names = {target(entry) for entry in Path(f"/proc/{process}/fd").iterdir()}
        held.append({name for name in names if name.startswith(("pipe:", "socket:"))})
        assert len(held[-1]) == 2  # from and to the controller
    assert not held[0] & held[1]


def test_the_token_is_nowhere_but_in_memory(cluster: ProcessCluster, tmp_path: Path) -> None:
    token = cluster._session.token
    assert re.fullmatch(r"[0-9a-f]{64}", token)
    with rd.Cluster.local(nodes=1, mode="process") as other:
        assert isinstance(other, ProcessCluster)
        assert other._session.token != token
    result = cluster.run(workload.Idle(), duration_s=0.01)
    folder = result.save(tmp_path / "result")
    for file in folder.iterdir():
        assert token.encode() not in file.read_bytes()
    for process in cluster.process_ids:
        for name in ("cmdline", "environ"):
            assert token.encode() not in Path(f"/proc/{process}/{name}").read_bytes()
    for node in cluster._nodes:
        assert isinstance(node, NodeProcess)
        node.stderr_file.seek(0)
        assert token.encode() not in node.stderr_file.read()
    with pytest.raises(rd.Error) as caught:
        cluster.run(workload.VerbsLoad(depth=1, batch=2), duration_s=0.01)
    assert token not in str(caught.value)


def test_a_native_complaint_does_not_show_the_token() -> None:
    secret = "0123456789abcdef" * 4
    error = TypeError(f"incompatible arguments. Invoked with: token='{secret}', node=0")
    message = _node._failure(error, 0, secret)
    assert secret not in message["error"]
    assert unnamed(message["error"], "token=", "node=0") == []


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
            yield from (alias.name for alias in node.names if "." in alias.name)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module.split(".")[0]
            yield node.module
            yield from (
                f"{node.module}.process" for n in node.names if n.name.startswith("Process")
            )


def problems(path: Path, text: str) -> Iterator[str]:
    tree = ast.parse(text)
    for name in imports(tree):
        if name in EXECUTING:
            yield f"{path}: imports {name}, which executes its input; use JSON or columns"
        if name in POOLS and path.name not in WITH_POOLS:
            yield f"{path}: imports {name}, whose messages are pickles; use pyrdma._frames"
    for name, call in calls(tree):
        keywords = {word.arg: word.value for word in call.keywords}
        if name in ("eval", "exec", "os.system", "os.popen", "tempfile.mktemp"):
            yield f"{path}:{call.lineno}: {name}"
        if name.endswith(("read_pickle", "to_pickle")):
            yield f"{path}:{call.lineno}: {name}"
        if name == "yaml.load" and "Loader" not in keywords:
            yield f"{path}:{call.lineno}: yaml.load without a safe loader"
        if name in ("np.load", "numpy.load") and "allow_pickle" in keywords:
            yield f"{path}:{call.lineno}: {name} with pickles"
        shell = keywords.get("shell")
        if isinstance(shell, ast.Constant) and shell.value:
            yield f"{path}:{call.lineno}: a command through a shell; give a list of words"
    for node in ast.walk(tree):
        text_of = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text_of, str) and re.match(r"/(var/)?tmp/\w", text_of):
            assert isinstance(node, ast.Constant)
            yield f"{path}:{node.lineno}: a fixed name in the temporary folder: use mkdtemp"


def test_nothing_that_is_read_is_run() -> None:
    assert len(SOURCES) > 40
    found = [line for path in SOURCES for line in problems(path, path.read_text("utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from multiprocessing.connection import Client",
        "from concurrent.futures import ProcessPoolExecutor",
        "eval(text)",
        "subprocess.run(words, shell=True)",
        "yaml.load(text)",
        "np.load(path, allow_pickle=True)",
        "pd.read_pickle(path)",
        "open('/tmp/pyrdma.lock')",
    ],
)
def test_the_rule_finds(text: str) -> None:
    assert list(problems(Path("some.py"), text))


def test_claims_are_read_by_the_safe_loader() -> None:
    text = (ROOT / "pyrdma" / "claims.py").read_text("utf-8")
    assert re.search(r"SafeLoader", text)
    assert not re.search(r"yaml\.(Unsafe|Full|)Loader", text)


def test_native_code_makes_no_names_and_runs_no_commands() -> None:
    banned = re.compile(
        r"\b(shm_open|shmget|mktemp|tmpnam|tempnam|system|popen|gets|strcpy|strcat|sprintf"
        r"|vsprintf|random_device)\s*\("
    )
    assert len(NATIVE) > 50
    found = [
        f"{path}:{number}: {line.strip()}"
        for path in NATIVE
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if banned.search(line.split("//")[0])
    ]
    assert found == []


def test_a_killed_node_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with rd.Cluster.local(nodes=2, fabric="shm", mode="process") as cluster:
        assert isinstance(cluster, ProcessCluster)
        cluster.run(workload.Soak(), duration_s=0.1)
        left = list(tmp_path.glob("pyrdma-storage-*"))
        assert len(left) == 2
        assert {stat.S_IMODE(folder.stat().st_mode) for folder in left} == {0o700}
        cluster.kill(1)
        # What the killed node has stored is there for its next start.
        assert sorted(tmp_path.glob("pyrdma-storage-*")) == sorted(left)
        assert len(list(tmp_path.glob("pyrdma-run-*"))) == len(list(tmp_path.iterdir())) - 2 == 1
    assert list(tmp_path.iterdir()) == []
