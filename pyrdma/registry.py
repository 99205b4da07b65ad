"""Finds experiments by id, pattern or path."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import traceback
import types
from collections.abc import Mapping
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path

from .arguments import shown
from .errors import Error, InvalidArgument, Unavailable, nearest
from .experiment import Experiment
from .extras import lacking_extra
from .profiles import Profile
from .trust import distrusted_below

__all__ = ["broken", "find", "ids", "import_file", "load", "located", "root", "source"]

_DECLARES = re.compile(r"^experiment\b", re.MULTILINE)
_PACKAGE = "experiments"
VARIABLE = "PYRDMA_EXPERIMENTS"
"""The environment variable that names the folder of the experiments."""

_LIBRARIES = [
    Path(__file__).resolve().parent,
    *(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")),
]


@cache
def root() -> Path:
    """Return the folder of the experiments.

    It is the one that ``PYRDMA_EXPERIMENTS`` (or ``pyrdma --experiments``) names, or else the
    nearest folder ``experiments`` at or above the working folder, or else the package's own. Its
    code runs, so one that the user has not named must belong to the user or root (`pyrdma.trust`).
    """
    named = os.environ.get(VARIABLE)
    if named:
        return _named_root(Path(named))
    package = Path(__file__).resolve().parent
    own = [package.parent / _PACKAGE, package / _PACKAGE]
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the folder has been removed
        here = Path("/")
    passed_over = []
    for candidate in (*((folder / _PACKAGE).resolve() for folder in (here, *here.parents)), *own):
        if not _has_claims(candidate):
            continue
        # The code beside the running package is as safe as the package.
        reason = "" if candidate in own else distrusted_below(candidate)
        if not reason:
            return candidate
        passed_over.append(
            f"passed over the experiments in {str(candidate)!r}: {reason}. To run code from "
            f"there, name the folder: pyrdma --experiments DIR ..., or {VARIABLE}=DIR"
        )
        if f"{__package__}._worker" not in sys.modules:  # a worker's parent has said it
            print(f"pyrdma: {passed_over[-1]}", file=sys.stderr, flush=True)
    raise Unavailable(
        "; ".join(["no experiments found", *passed_over])
        + "; run pyrdma from within the source tree, or install the package again"
    )


def _named_root(named: Path) -> Path:
    for folder in (named, named / _PACKAGE):
        if _has_claims(folder):
            return folder.resolve()
    raise InvalidArgument(
        f"{VARIABLE} is {str(named)!r}, which holds no experiments; name a folder with `claims`, "
        "or unset it"
    )


def _has_claims(folder: Path) -> bool:
    return os.path.isdir(folder / "claims")  # noqa: PTH112 - Path raises if the folder is closed


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
            experiment = load(name)
            if experiment.measure is not None:
                list(experiment.points(quick=True))
            Profile.load(experiment.profile)
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
                f"no experiment has the name {shown(name)}{nearest(name, candidates)}; `pyrdma "
                "list` shows all"
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
    _expose_root()
    try:
        if name.endswith(".py"):
            module = import_file(Path(name))
        else:
            module = importlib.import_module(f"{_PACKAGE}.{name.replace('/', '.')}")
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and missing.startswith(_PACKAGE) and name not in ids():
            raise InvalidArgument(
                f"no experiment has the name {shown(name)}{nearest(name, ids())}; `pyrdma list` "
                "shows all"
            ) from None
        if missing is not None and not missing.startswith(_PACKAGE):
            raise Unavailable(
                lacking_extra(missing)
                or f"experiment {name} needs the package {missing}; install it with: pip install "
                f"{missing} ({line_of(error, source(name))})"
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
    text = str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError):
        return text if str(error.filename) in text else f"{text} ({error.filename or file})"
    return f"{text} ({line_of(error, file)})"


def line_of(error: BaseException, file: Path) -> str:
    """Return file and line of the last step of `file`, or of a helper near it, before an error."""
    own = file.resolve().parent.parent
    frames = traceback.extract_tb(error.__traceback__)
    real = [f for f in frames if not f.filename.startswith("<")]  # not <string>, <frozen ...>
    # The experiments of an installed package lie within a library.
    near = [f for f in real if _is_below(f.filename, own) and not _is_library(f.filename, own)]
    others = [f for f in real if not _is_library(f.filename)]
    last = (near or others or real or frames)[-1]
    return f"{last.filename}, line {last.lineno}"


def _is_below(file: str, folder: Path) -> bool:
    return folder in Path(file).resolve().parents


def _is_library(file: str, own: Path | None = None) -> bool:
    """Whether a file is of pyrdma, Python or a package, in a folder that does not hold `own`."""
    folders = (f for f in _LIBRARIES if own is None or f not in (own, *own.parents))
    return any(_is_below(file, folder) for folder in folders)


def beginning(function: object, file: Path) -> str:
    """Return file and line of the beginning of a function of `file`."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code else str(file)


def _expose_root() -> None:
    """Make helpers of a paper importable as ``experiments.<paper>._helper``."""
    if _PACKAGE not in sys.modules:
        package = types.ModuleType(_PACKAGE)
        package.__path__ = [str(root())]
        sys.modules[_PACKAGE] = package


class _SourceLoader(SourceFileLoader):
    """Loads a file from its source; `__pycache__` beside it may be another user's."""

    def get_code(self, fullname: str) -> types.CodeType:
        del fullname
        return self.source_to_code(self.get_data(self.path), self.path)


def import_file(path: Path) -> types.ModuleType:
    """Import a file that the user has named; its helpers come from the folder `root`."""
    if not path.is_file():
        raise InvalidArgument(f"no such experiment file: {path}")
    name = f"pyrdma_experiment_{path.stem}"
    loader = _SourceLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there for the names of a text annotation
    try:
        loader.exec_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != _PACKAGE:
            raise
        raise Unavailable(
            f"{path} needs {error.name}, which is not in {root()}; if it lies with the file, name "
            f"the folder `{_PACKAGE}` above the file: pyrdma --experiments DIR run {path}"
        ) from error
    return module
