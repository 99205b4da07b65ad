"""Digests of code are equal in every version of Python, and cover the whole package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pyrdma import registry, sources
from pyrdma._native import native
from pyrdma._syntax import function_text
from pyrdma.deploy import pythons

ROOT = Path(__file__).resolve().parents[2]

PRINT = """
import json, sys, types
root, packages, known, *files = sys.argv[1:]
sys.path[:] = [root, *sys.path, packages]  # of another version: modules without native parts
if sys.version_info < (3, 11):
    from pip._vendor import tomli
    sys.modules["tomli"] = tomli
# The native module is of one version. Experiments ask it for the parameters of profiles alone.
core = types.ModuleType("pyrdma._core")
core.source_digest, parameters = json.loads(known)
core.sim = types.SimpleNamespace(parameters=lambda: parameters)
sys.modules["pyrdma._core"] = core

from pyrdma import reach, registry, sources
names = [*registry.ids(), *files]
found = {name: reach.digest(registry.load(name).measure) for name in names}
for path in sorted(reach._FOLDER.rglob("*.py")):
    words = ("pyrdma", *path.relative_to(reach._FOLDER).with_suffix("").parts)
    if words[-1] != "__init__":
        found[".".join(words)] = reach._module_text(".".join(words))
print(json.dumps([found, sources.source_digest()]))
"""

KINDS = '''
"""All kinds of code and of objects that versions of Python represent differently."""
import asyncio, collections, dataclasses, enum, functools, typing
from pyrdma import Axis, Experiment

Pair = collections.namedtuple("Pair", "a b")

class Typed(typing.NamedTuple):
    a: int
    b: str = "x"

class Colour(enum.Enum):
    RED, GREEN = 1, "two"
    def upper(self):
        return self.name.upper()

class Level(enum.IntFlag):
    LOW, HIGH = 1, 2

class Word(str, enum.Enum):
    YES = "yes"

@dataclasses.dataclass
class Plain:
    """Docstring."""
    x: int
    y: list[int] = dataclasses.field(default_factory=list)
    def total(self):
        return self.x + sum(self.y)

@dataclasses.dataclass(frozen=True, order=True, slots=True)
class Frozen:
    x: float = 1.5

class Slots:
    __slots__ = ("a",)

T = typing.TypeVar("T")
class Of(typing.Generic[T]):
    value: "T"

@functools.lru_cache(maxsize=3)
def cached(x):
    return [x * y for y in range(x)] + [z for z in range(3) if z]

async def later(x):
    async with x as y:
        return {k: await v async for k, v in y}

def generator(*args, key=lambda v: -v, **more):
    try:
        yield from sorted(args, key=key)
    except ValueError as error:
        raise KeyError from error

def words(x, /, y=2, *, z=3):
    """Docstring."""
    match (x, y):
        case {"a": [1, *rest], **more} if rest:
            return f"{x!r:>{y}} {y=} {'a' 'b'}{x:%Y-%m}" f"{{}} {z}" "end"
        case [Plain(x=1) | None, "z"]:
            pass
    with open(x) as a, open(y) as b:
        while (n := a.read()) and not b:
            del n
    assert x is not z, f"{x}"
    return [lambda v: (x, *v), {**y}, {x for x in y}, (x if y else z), x[1:2, ...], -1, 1e9, 2j]

class Outer:
    factor = 3
    @property
    def twice(self):
        class Inner(Outer):
            def go(self):
                nonlocal_ = 1
                def inner():
                    nonlocal nonlocal_
                    nonlocal_ += super().twice
                    return __class__
                return inner
        return Inner
    @staticmethod
    def one(): return 1
    @classmethod
    def two(cls): return cls.factor

FIRST, SECOND = (lambda x: x + 1), (lambda x: x + 2)

TEXTS = ["\\U0001fae8", "\\udc80", b"\\xff", 'quoted "twice"']

def measure(point):
    return [Pair, Pair(1, 2), Typed, Colour, Colour.RED, Level.HIGH, Word.YES, Plain, Plain(1),
            Frozen, Frozen(), Slots, Of, cached, later, generator, words, Outer, Outer(), FIRST,
            SECOND, TEXTS, asyncio]

experiment = Experiment(
    id="every/kind", title="All", profile="cx5", axes={"n": Axis([1])}, measure=measure
)
'''


@pytest.fixture(scope="module")
def others() -> dict[str, Path]:
    """The Pythons of this machine but this one."""
    found = dict(pythons.find())
    del found[f"{sys.version_info.major}.{sys.version_info.minor}"]
    if not found:
        pytest.skip("there is no other Python here")
    return found


def digests(python: Path | str, file: Path) -> Any:
    """Return the digests that a Python computes: of experiments and modules, and of the package."""
    core: Any = native()
    known = json.dumps([core.source_digest, core.sim.parameters()])
    packages = Path(yaml.__file__).parents[1]
    done = subprocess.run(
        [python, "-I", "-B", "-c", PRINT, ROOT, packages, known, file],
        env={**os.environ, registry.VARIABLE: str(ROOT / "experiments")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_sources_have_one_digest_in_every_python(others: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "every_kind.py"
    file.write_text(KINDS)
    expected = digests(sys.executable, file)
    assert {str(file), registry.ids()[0], "pyrdma.hosts.clocks"} <= set(expected[0])
    assert expected[1] == sources.source_digest()
    for version, python in others.items():
        assert digests(python, file) == expected, version


def test_a_digest_is_the_same_before_and_after_a_part_of_the_package_is_loaded(
    tmp_path: Path,
) -> None:
    file = tmp_path / "whole.py"
    file.write_text(
        "import pyrdma as rd\n"
        "def measure(point):\n"
        "    with point.cluster(nodes=2) as cluster:\n"
        "        return cluster.run(rd.workload.PingPong())\n"
        "experiment = rd.Experiment(id='x/y', title='x', profile='cx5', axes={}, measure=measure)\n"
    )
    program = (
        "import sys\n"
        "from pyrdma import reach, registry\n"
        "measure = registry.load(sys.argv[1]).measure\n"
        "assert 'pyrdma.cluster' not in sys.modules, 'nothing can be tested'\n"
        "first = reach.digest(measure)\n"
        "import pyrdma.cluster\n"
        "assert first == reach.digest(measure)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_file_that_has_been_edited_is_no_source_of_a_loaded_function(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    file.write_text("def one():\n    return 1\n")
    place: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec", dont_inherit=True), place)
    code = place["one"].__code__
    assert function_text(code)
    file.write_text("def one():\n    return 2  # edited\n")
    assert function_text(code) is None


def test_the_package_s_digest_changes_with_each_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest() -> str:
        sources.source_digest.cache_clear()
        return sources.source_digest()

    copy = tmp_path / "pyrdma"
    shutil.copytree(sources._FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    here = digest()
    monkeypatch.setattr(sources, "_FOLDER", copy)
    assert digest() == here, "equal wherever it is"
    (copy / "experiments").mkdir(exist_ok=True)
    (copy / "experiments/mine.py").write_text("")
    assert digest() == here, "experiments have digests of their own"
    (copy / "calibrate/new.py").write_text("")
    assert digest() != here
    (copy / "calibrate/new.py").unlink()
    with (copy / "_frames.py").open("a") as file:
        file.write("# one more line\n")
    assert digest() != here
    monkeypatch.setattr(native(), "source_digest", "of other sources")
    shutil.copy(ROOT / "pyrdma/_frames.py", copy)
    assert digest() != here
    sources.source_digest.cache_clear()
