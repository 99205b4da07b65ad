"""The rules of the tree. Each takes sources and returns complaints, `path:line: what to do`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tests.tidy.tree import Source

# An upper layer may include a lower one. A system's protocol includes only the first layers; its
# workloads, fuzz scenarios, bindings and tests may include all of them.
PROTOCOL_LAYERS = ("base", "env", "fabric", "runtime")
LAYERS = (*PROTOCOL_LAYERS, "measure", "fuzz", "bindings", "systems", "calibration")
STANDS_ON = {"spindle": ("erpc",)}
"""The systems whose protocols a system uses. They have no cycle."""
ABOVE_PROTOCOL = ("workloads", "fuzz", "bindings", "system.cc")
# Protocol code runs in all worlds, so it may use only Env and the fabric.
PROTOCOL_CODE = ("native/runtime/", "native/systems/")
MAX_LINES = 450
# Files that were longer when the rule was made; they may shrink but not grow.
LONGER: dict[str, int] = {}

_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')

BANNED_IN_SYSTEMS: Sequence[tuple[str, str]] = (
    (r"\bstd::(?:recursive_|shared_|timed_)*mutex\b", "Mutex of env/sync.h"),
    (r"\bstd::(?:condition_variable\w*|counting_semaphore|latch|barrier)\b", "env/sync.h"),
    (r"\bstd::(?:j?thread|async|future|promise)\b|\bpthread_\w+", "Env::spawn"),
    (r"\bthread_local\b", "a member of the object that the thread owns"),
    (r"\bstd::chrono\b|\bclock_gettime\b|\bgettimeofday\b", "Env::now"),
    (r"\b_*rdtscp?\b", "Env::now"),
    (r"\b(?:std::)?s?rand\s*\(|\bstd::(?:random_device|mt19937\w*)\b", "Env::rng"),
    (r"\b(?:u|nano)?sleep\s*\(|\bsleep_for\b|\bsched_yield\b", "Env::sleep_until or poll_until"),
    (r"\b(?:secure_)?getenv\b", "a parameter given to the constructor"),
    (r"\bibv_\w+|\brdma_cm_\w+", "fabric/fabric.h"),
    (r"\bis_simulated\b", "a verb of Env for what the two worlds do differently"),
)


def include_rule(files: Iterable[Source]) -> list[str]:
    """The order of LAYERS; check stands on base.

    A system includes itself, lower layers, and the protocols of the systems that it stands on.
    """
    complaints = []
    for file in files:
        if len(file.parts) < 3 or file.parts[0] != "native":
            continue
        for number, line in enumerate(file.text.splitlines(), 1):
            match = _INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1)
            problem = _include_problem(file, target)
            if problem:
                complaints.append(f'{file.path}:{number}: includes "{target}": {problem}')
    return complaints


def _include_problem(file: Source, target: str) -> str:
    layer, parts = file.parts[1], target.split("/")
    head = parts[0]
    if head not in (*LAYERS, "check") or "/" not in target:
        return 'write it from native/, as in "base/units.h"; system headers take <>'
    if layer == "systems" and len(file.parts) > 3:
        return _system_problem(file, parts)
    if layer == head:
        return ""
    if layer == "check":
        return "" if head == "base" else "check stands on base alone"
    if layer not in LAYERS:
        return f"native/{layer} is not a layer; the layers are {', '.join(LAYERS)} and check"
    if head == "check":
        above = LAYERS.index(layer) >= LAYERS.index("measure")
        return "" if above else "only measure and what stands above it use check"
    if LAYERS.index(head) > LAYERS.index(layer):
        return f"{layer} stands below {head}; turn it round or move the shared part down"
    return ""


def _system_problem(file: Source, target: list[str]) -> str:
    """Judge an include of a file in a system's folder."""
    system, part = file.parts[2], file.parts[3]
    is_above = part in ABOVE_PROTOCOL or "fuzz" in file.parts[3:-1]
    is_protocol = not is_above and "_test." not in file.path
    if target[0] == "systems":
        if len(target) > 2 and target[1] in STANDS_ON.get(system, ()):
            is_inside = target[2] not in ABOVE_PROTOCOL
            return "" if is_inside else f"{system} stands on the protocol of {target[1]} alone"
        if len(target) > 2 and target[1] != system:
            return f"{system} is one system and {target[1]} another; move the shared part down"
        if is_protocol and (len(target) == 2 or target[2] in ABOVE_PROTOCOL):
            return f"the protocol of {system} stands below {target[-2]}"
        return ""
    if is_protocol and target[0] not in PROTOCOL_LAYERS:
        return f"the protocol of {system} stands on {', '.join(PROTOCOL_LAYERS)}, not {target[0]}"
    return ""


def includes_exist(files: Sequence[Source]) -> list[str]:
    """Every quoted include names a file, and every header is included by another file."""
    paths = {file.path for file in files}
    used: set[str] = set()
    complaints = []
    for file in files:
        if file.parts[0] != "native" or not file.path.endswith((".h", ".cc")):
            continue
        for number, line in enumerate(file.text.splitlines(), 1):
            match = _INCLUDE.match(line)
            if not match:
                continue
            target = f"native/{match.group(1)}"
            if target != file.path:
                used.add(target)
            if target not in paths:
                complaints.append(f"{file.path}:{number}: {target} does not exist")
    complaints += [
        f"{path}: no file includes it; delete it"
        for path in sorted(paths)
        if path.startswith("native/") and path.endswith(".h") and path not in used
    ]
    return complaints


def banned_in_systems(files: Iterable[Source]) -> list[str]:
    """Protocol code reaches the world through Env alone, so that it runs in all worlds.

    The rule excludes tests: a test may collect the nodes' results under a lock of the library.
    """
    rules = [(re.compile(pattern), instead) for pattern, instead in BANNED_IN_SYSTEMS]
    complaints = []
    for file in files:
        if not file.path.startswith(PROTOCOL_CODE) or "_test." in file.path:
            continue
        code = file.code
        for pattern, instead in rules:
            for number, text in file.matches(pattern, code):
                complaints.append(f"{file.path}:{number}: {text.strip()}: use {instead}")
    return complaints


def unordered_iteration(files: Sequence[Source]) -> list[str]:
    """Protocols must not walk a hash table, whose order differs between runs and libraries."""
    declared = re.compile(r"\bunordered_\w+\s*<[^;{}]*>\s*&?\s*(\w+)\s*[;{=,)]")
    systems = [file for file in files if file.path.startswith(PROTOCOL_CODE)]
    names_of: dict[str, set[str]] = {}
    for file in systems:  # a member declared in x.h is walked in x.cc
        stem = file.path.rsplit(".", 1)[0]
        names_of.setdefault(stem, set()).update(declared.findall(file.code))
    complaints = []
    for file in systems:
        names = names_of[file.path.rsplit(".", 1)[0]]
        if not names:
            continue
        any_name = "|".join(sorted(names))
        walk = re.compile(
            rf"for\s*\([^;]*:\s*(?:{any_name})\s*\)|\b(?:{any_name})\s*\.\s*c?begin\b"
        )
        for number, text in file.matches(walk, file.code):
            complaints.append(
                f"{file.path}:{number}: {text}: walks an unordered container; "
                "use a sorted vector or std::map"
            )
    return complaints


def catch_all(files: Iterable[Source]) -> list[str]:
    """A killed node unwinds by an exception, which no handler may swallow.

    A handler may catch all exceptions only to pass them on: by `throw;`, or to another thread by
    `std::current_exception()`. Env ends the unwinding; bindings translate exceptions for Python.
    """
    pattern = re.compile(r"\bcatch\s*\(\s*\.\.\.\s*\)\s*\{")
    complaints = []
    for file in files:
        if file.parts[0] != "native" or not file.path.endswith((".h", ".cc")):
            continue
        if file.parts[1] in ("env", "bindings"):
            continue
        code = file.code
        for match in pattern.finditer(code):
            block = code[match.end() : _closing_brace(code, match.end())]
            if not re.search(r"\bthrow;|\bcurrent_exception\(\)", block):
                number = code.count("\n", 0, match.start()) + 1
                complaints.append(
                    f"{file.path}:{number}: catch (...) that ends the exception: "
                    "name what is caught, or hand it on; a killed node must unwind"
                )
    return complaints


def _closing_brace(code: str, start: int) -> int:
    """Return where the block that is open at `start` closes."""
    depth = 1
    for position in range(start, len(code)):
        depth += {"{": 1, "}": -1}.get(code[position], 0)
        if depth == 0:
            return position
    return len(code)


def thread_local_state(files: Iterable[Source]) -> list[str]:
    """No file uses thread_local: a fiber moves between threads, and a node is not a process."""
    pattern = re.compile(r"\bthread_local\b")
    return [
        f"{file.path}:{number}: thread_local: keep it in the object that the thread owns"
        for file in files
        if file.parts[0] == "native" and file.path.endswith((".h", ".cc"))
        for number, _ in file.matches(pattern, file.code)
    ]


def loop_over_lost_owner(files: Iterable[Source]) -> list[str]:
    """No loop walks over `f()->member`: what f() returns goes before the loop begins."""
    pattern = re.compile(r"\bfor \([^;()]* : [\w.:>-]+\([^()]*\)->")
    return [
        f"{file.path}:{number}: what {text} points to may be gone: name the pointer first"
        for file in files
        if file.parts[0] == "native" and file.path.endswith((".h", ".cc"))
        for number, text in file.matches(pattern, file.code)
    ]


def pragma_once(files: Iterable[Source]) -> list[str]:
    """Every header begins with #pragma once."""
    return [
        f"{file.path}:1: a header begins with #pragma once (after its comment)"
        for file in files
        if file.parts[0] == "native" and file.path.endswith(".h")
        if not re.search(r"^#pragma once$", file.text, re.MULTILINE)
    ]


def leftovers(files: Iterable[Source]) -> list[str]:
    """The tree has no notes of open work."""
    pattern = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
    return [
        f"{file.path}:{number}: {text}: finish it, or open an issue"
        for file in files
        if not file.path.startswith("tests/tidy/")
        for number, text in file.matches(pattern)
    ]


def machine_names(files: Iterable[Source]) -> list[str]:
    """The tree names no paths of one machine."""
    pattern = re.compile(r"(?<![\w.>])/(?:root|work|home/\w+|Users/\w+)(?=/|\b)")
    return [
        f"{file.path}:{number}: {text}: name it relative to the tree, or not at all"
        for file in files
        for number, text in file.matches(pattern)
    ]


def compared_sentences(files: Iterable[Source]) -> list[str]:
    """Tests compare the class or code of an error and the values that it names, not its words."""
    sentence = r"""["'][^"'\n]* [^"'\n]*"""
    direct = (
        r"\braises\(.*\bmatch=|\bwhat\(\)\)?\.find\(|\berror_of\(.*\.find\(|"
        rf"{sentence}[\"'] (?:not )?in str\("
    )
    held = re.compile(
        r"\b(\w+)(?:\[[^\]]*\])?\s*=\s*(?:\w+\()?(?:error_of\(|\w+\.what\(\)|str\(\w+\.value)"
    )
    complaints = []
    for file in files:
        if file.path.startswith("tests/tidy/") or "test" not in file.path:
            continue
        pattern = direct
        if texts := "|".join(sorted(set(held.findall(file.text)))):
            text = rf"\b(?:{texts})\b(?:\[[^\]]*\])?"
            pattern += rf"|{text}\.find\(|{text}(?: == |,\s*){sentence}"
            pattern += rf"|{sentence}[\"'] (?:not )?in {text}"
        for match in re.finditer(pattern, file.text):
            number = file.text.count("\n", 0, match.start()) + 1
            complaints.append(
                f"{file.path}:{number}: {match.group()}: compare class and values, by "
                "tests/errors.py or base/error_test.h"
            )
    return complaints


def file_length(files: Iterable[Source], longer: dict[str, int] | None = None) -> list[str]:
    """A file of code that nobody generates has at most 450 lines."""
    allowed = LONGER if longer is None else longer
    complaints = []
    for file in files:
        if not file.path.endswith((".cc", ".h", ".c", ".py", ".pyi", ".sh")):
            continue
        if file.path.endswith("/generated.py"):
            continue
        limit = allowed.get(file.path, MAX_LINES)
        lines = file.text.count("\n")
        if lines > limit:
            complaints.append(f"{file.path}:{lines}: {lines} lines, at most {limit}: split it")
        elif file.path in allowed and lines < limit:
            complaints.append(f"{file.path}:1: {lines} lines now; lower its entry in LONGER")
    return complaints


def system_readmes(files: Sequence[Source]) -> list[str]:
    """Each system's folder has a README.md that maps the paper's sections to files."""
    paths = {file.path for file in files}
    folders = {
        file.parts[2]
        for file in files
        if file.path.startswith("native/systems/")
        if len(file.parts) > 3
    }
    return [
        f"native/systems/{folder}: has no README.md that maps paper sections to files"
        for folder in sorted(folders)
        if f"native/systems/{folder}/README.md" not in paths
    ]


def folders_in_readme(files: Sequence[Source]) -> list[str]:
    """The table of native/README.md has a row for each folder below native/."""
    page = next((file.text for file in files if file.path == "native/README.md"), "")
    rows = set(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE))
    folders = {file.parts[1] for file in files if file.parts[0] == "native" and len(file.parts) > 2}
    return [
        f"native/{folder}: native/README.md has no row for it: | `{folder}/` | its content | page |"
        for folder in sorted(folders - rows)
    ] + [
        f"native/README.md: the folder {folder}/ of a row does not exist"
        for folder in sorted(rows - folders)
    ]
