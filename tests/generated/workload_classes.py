"""Writes the workload classes from the native tables.

``python -m tests.generated.workload_classes`` writes them into the package.

A class has a field for each parameter of its workload, with name, type, unit, default, bounds and
text of the table. It has no field `duration_ns`, which `Cluster.run` sets.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from pyrdma import systems
from pyrdma._native import native
from pyrdma._workload import allowed, shown_number

ROOT = Path(__file__).parents[2]
COMMAND = "python -m tests.generated.workload_classes"
WIDTH = 100

Entry = dict[str, Any]


def files() -> dict[Path, str]:
    """Return the text that each generated file should have."""
    core: Any = native()
    rows: dict[str, list[Entry]] = {owner: [] for owner in ("", *systems.NAMES)}
    for row in core.measure.workloads():
        owner = next((name for name in systems.NAMES if row["name"].startswith(f"{name}_")), "")
        rows[owner].append(row)
    return {_path(owner): _file(owner, of_owner) for owner, of_owner in rows.items()}


def _path(owner: str) -> Path:
    file = f"systems/{owner}/generated.py" if owner else "_workload_classes.py"
    return ROOT / "pyrdma" / file


def _class_name(row: Entry) -> str:
    """Return ``VerbsLoad`` for ``verbs_load``."""
    return "".join(word.capitalize() for word in row["name"].split("_"))


def _file(owner: str, rows: list[Entry]) -> str:
    core: Any = native()
    classes = [_class(row, core.measure.workload_parameters(row["name"])) for row in rows]
    names = "".join(f"    {_class_name(row)!r},\n" for row in rows)
    literal = ", Literal" if any("Literal[" in text for text in classes) else ""
    head = (
        f'"""Workload classes{f" of {owner}" if owner else ""}, written by ``{COMMAND}``."""\n\n'
        "from __future__ import annotations\n\n"
        "from dataclasses import dataclass\n"
        f"from typing import ClassVar{literal}\n\n"
        f"from {'pyrdma.' if owner else '.'}_workload import DEFAULT, Workload\n\n"
        f"__all__ = [\n{names}]\n"
    )
    return _formatted(head + "".join(f"\n\n{text}" for text in classes))


def _class(row: Entry, parameters: list[Entry]) -> str:
    fields = [p for p in parameters if p["name"] != "duration_ns"]
    first, _, rest = row["about"].strip().partition("\n")
    lines = ["@dataclass(frozen=True)", f"class {_class_name(row)}(Workload):", f'    """{first}']
    for paragraph in rest.strip().split("\n\n") if rest else []:
        lines += ["", *_wrapped(" ".join(paragraph.split()), 4)]
    if fields:
        lines += ["", "    Parameters", "    ----------"]
    for parameter in fields:
        lines += [f"    {parameter['name']}", *_wrapped(_text(parameter), 8)]
    lines += ['    """', "", f'    native: ClassVar[str] = "{row["name"]}"']
    if row["survives"]:
        lines.append("    survives: ClassVar[bool] = True")
    lines += [f"    {p['name']}: {_type(p)} = DEFAULT" for p in fields]
    return "\n".join(lines) + "\n"


def _wrapped(text: str, indent: int) -> list[str]:
    margin = " " * indent
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=margin,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _type(parameter: Entry) -> str:
    if 0 < len(parameter["choices"]) <= 8:  # longer lists of choices stay open
        return f"Literal[{', '.join(repr(choice) for choice in parameter['choices'])}]"
    if parameter["unit"] == "bool":
        return "bool"
    if isinstance(parameter["default"], list):
        return "list[int]"
    return type(parameter["default"]).__name__


def _text(parameter: Entry) -> str:
    """Return the description, then unit, bounds and default in parentheses."""
    description, default = parameter["description"], parameter["default"]
    if parameter["system"]:
        description += f"; {parameter['system']} only"
    facts = []
    if parameter["unit"] == "bool":
        facts.append(f"default {bool(default)}")
    elif isinstance(default, str):
        facts += [f"default {default}"] if default else []
    else:
        facts += [parameter["unit"]] if parameter["unit"] not in ("", "count") else []
        facts += [allowed(parameter), f"default {shown_number(default)}"]
    suffix = f" ({', '.join(facts)})" if facts else ""
    return f"{description[0].upper()}{description[1:]}{suffix}."


def _formatted(text: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
