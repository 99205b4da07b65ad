"""Finds experiments by id, pattern or path."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import re
import sys
import traceback
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from .errors import Error, InvalidArgument, Unavailable, nearest
from .experiment import Experiment

__all__ = ["broken", "find", "ids", "load", "located", "root", "source"]

_DECLARES = re.compile(r"^experiment\b", re.MULTILINE)
_PACKAGE = "experiments"


@cache
def root() -> Path:
    """Return the folder of the experiments: of the working tree, or the installed one."""
    here = Path.cwd()
    package = Path(__file__).parent
    candidates = [
        *(folder / "experiments" for folder in (here, *here.parents)),
        package.parent / "experiments",
        package / "experiments",
    ]
    for candidate in candidates:
        if (candidate / "claims").is_dir():
            return candidate
    raise Unavailable(
        "no experiments found: run pyrdma from within the source tree, or install the package again"
    )


@cache
def ids() -> tuple[str, ...]:
    """Return the ids of all experiments, sorted."""
    found = []
    for path in sorted(root().glob("*/*.py")):
        if path.name.startswith("_") or not path.is_file():
            continue
        if _DECLARES.search(path.read_text(encoding="utf-8", errors="replace")):
            found.append(f"{path.parent.name}/{path.stem}")
    return tuple(found)


@cache
def broken() -> Mapping[str, str]:
    """Return the reason for each id whose file cannot be loaded; the others go on without it."""
    reasons = {}
    for name in ids():
        try:
            load(name)
        except Error as error:
            reasons[name] = str(error)
    return reasons


def find(names: list[str]) -> list[str]:
    """Return the ids or paths that `names` select, in order, each once.

    A name is an id, a pattern (``fabric/*``), a folder (``fabric``), ``all``, or the path of a
    Python file.

    Raises
    ------
    InvalidArgument
        A name selects nothing; the message has the nearest ids.
    """
    known = ids()
    found: list[str] = []
    for name in names:
        if name == "all":
            matches = list(known)
        elif name.endswith(".py"):
            matches = [_path_id(Path(name))]
        else:
            matches = [i for i in known if fnmatch.fnmatchcase(i, name) or i.startswith(f"{name}/")]
        if not matches:
            candidates = [*known, *{i.split("/")[0] for i in known}]
            raise InvalidArgument(
                f"unknown experiment {name!r}{nearest(name, candidates)}; `pyrdma list` shows all"
            )
        found += [match for match in matches if match not in found]
    return found


def _path_id(path: Path) -> str:
    """Return the id of a file below the root; for a file elsewhere, its path."""
    if not path.is_file():
        raise InvalidArgument(f"no such experiment file: {path}")
    resolved = path.resolve()
    if resolved.parent.parent == root().resolve():
        return f"{resolved.parent.name}/{resolved.stem}"
    return str(resolved)


def source(name: str) -> Path:
    """Return the file of an experiment given by id or path."""
    return Path(name) if name.endswith(".py") else root() / f"{name}.py"


def load(name: str) -> Experiment:
    """Return the experiment of an id or a path; its module is imported.

    Raises
    ------
    InvalidArgument
        There is no such experiment.
    Unavailable
        It needs a package that is missing.
    Error
        Its file cannot be loaded; the message names file and line.
    """
    try:
        if name.endswith(".py"):
            module = _import_file(Path(name))
        else:
            _expose_root()
            module = importlib.import_module(f"{_PACKAGE}.{name.replace('/', '.')}")
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and missing.startswith(_PACKAGE) and name not in ids():
            raise InvalidArgument(
                f"unknown experiment {name!r}{nearest(name, ids())}; `pyrdma list` shows all"
            ) from None
        if missing is not None and not missing.startswith(_PACKAGE):
            raise Unavailable(
                f"experiment {name} needs the package {missing}; "
                f"install it with: pip install {missing}"
            ) from error
        kind = InvalidArgument if isinstance(error, InvalidArgument) else Error
        raise kind(located(error, source(name))) from error
    found = getattr(module, "experiment", None)
    if not isinstance(found, Experiment):
        raise Error(f"{source(name)}: `experiment` is not a pyrdma.Experiment")
    if not name.endswith(".py") and found.id != name:
        raise Error(f"{source(name)}: the experiment's id is {found.id!r}; its path needs {name!r}")
    return found


def located(error: BaseException, file: Path) -> str:
    """Return an error's text with the line of `file`, or of a helper near it, that failed."""
    own = str(file.resolve().parent.parent)
    frames = traceback.extract_tb(error.__traceback__)
    near = [f for f in frames if str(Path(f.filename).resolve()).startswith(own)]
    text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return text if str(error.filename) in text else f"{text} ({error.filename})"
    last = (near or frames)[-1]
    return f"{text} ({last.filename}, line {last.lineno})"


def _expose_root() -> None:
    """Make helpers of a paper importable as ``experiments.<paper>._helper``."""
    if _PACKAGE not in sys.modules:
        package = types.ModuleType(_PACKAGE)
        package.__path__ = [str(root())]
        sys.modules[_PACKAGE] = package


def _import_file(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"pyrdma_experiment_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
