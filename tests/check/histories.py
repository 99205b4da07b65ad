"""Hand-written histories: one line per event, such as `0 + write 3` (invoked), `0 . write` (ok)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TYPES = {"+": "invoke", ".": "ok", "!": "info", "-": "fail"}


def events(text: str) -> list[dict[str, Any]]:
    """Return the events of lines `process type f [value] [name=value ...]`, values as JSON."""
    found = []
    for index, line in enumerate(text.strip().splitlines()):
        process, kind, f, *rest = line.split()
        event: dict[str, Any] = {
            "index": index,
            "time": 100 * index,
            "process": int(process),
            "type": TYPES[kind],
            "f": f,
            "value": None,
        }
        for word in rest:
            name, separator, value = word.partition("=")
            if separator:
                event[name] = json.loads(value)
            else:
                event["value"] = json.loads(word)
        found.append(event)
    return found


def write(folder: Path, text: str, **header: Any) -> Path:
    """Write the events of `text` behind a header and return the file."""
    path = folder / "history.jsonl"
    lines = ([header] if header else []) + events(text)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
