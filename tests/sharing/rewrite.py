"""Archives that somebody has changed, as a hostile or a careless program would."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from pyrdma.sharing.crate import METADATA


def contents(path: Path) -> dict[str, bytes]:
    """Return the files of an archive by name."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path: Path, target: Path, changes: Mapping[str, bytes | None]) -> Path:
    """Write an archive with changed, added or removed (None) files, whose digests fit them."""
    files = {**contents(path), **changes}
    document = json.loads(files.pop(METADATA) or b"")
    parts = {
        name: {
            "@id": name,
            "@type": "File",
            "contentSize": str(len(content)),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for name, content in files.items()
        if content is not None
    }
    graph = [e for e in document["@graph"] if e["@type"] != "File"]
    document["@graph"] = [*graph, *parts.values()]
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(METADATA, json.dumps(document))
        for name in parts:
            content = files[name]
            assert content is not None
            archive.writestr(name, content)
    return target
