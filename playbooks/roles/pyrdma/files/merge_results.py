"""Adds collected results to a folder after it has checked their digests.

    python merge_results.py ARCHIVE RESULTS

The archive comes from a host, so its names, kinds and sizes are checked. A point is immutable: one
that is here with other content is an error, and nothing is written. Other files, such as tables,
are replaced.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tarfile
import tempfile
from pathlib import Path

MOST_FILES, MOST_BYTES, MOST_LIST = 1_000_000, 256 << 20, 256 << 20
"""Bounds: files of an archive, bytes of a file (that of a point), bytes of the list of digests."""
NAME = re.compile(r"(?:[\w@.+,=-]+/)+[\w@.+,=-]+\.(?:jsonl|json|parquet|pdf|png)")


def digests_of(archive: tarfile.TarFile) -> dict[str, str]:
    """Return the digest of each name, from the list at the archive's beginning."""
    first = archive.next()
    if first is None or first.name != "digests" or not first.isreg() or first.size > MOST_LIST:
        sys.exit("the archive does not begin with its digests; collect again")
    found = {}
    for line in archive.extractfile(first).read().decode().splitlines():
        digest, _, name = line.partition("  ./")
        parts = name.split("/")
        if not NAME.fullmatch(name) or any(part.startswith(".") for part in parts):
            sys.exit(f"the archive has the name {name!r}, which is none of results")
        if not re.fullmatch("[0-9a-f]{64}", digest):
            sys.exit(f"{name}: {digest!r} is no digest")
        found[name] = digest
    if len(found) > MOST_FILES:
        sys.exit(f"the archive has {len(found)} files; at most {MOST_FILES} are taken")
    return found


def unpack(archive: tarfile.TarFile, digests: dict[str, str], folder: Path) -> None:
    """Write each listed file below `folder`, by its digest, and check that none is missing."""
    left = dict(digests)
    for member in archive.getmembers()[1:]:
        if member.isdir():
            continue
        name = member.name.removeprefix("files/")
        if not member.isreg() or name not in left or member.size > MOST_BYTES:
            sys.exit(f"the archive has {member.name!r}, which its digests do not list")
        content = archive.extractfile(member).read()
        if hashlib.sha256(content).hexdigest() != left.pop(name):
            sys.exit(f"{name} does not have its digest; collect again")
        (folder / digests[name]).write_bytes(content)
    if left:
        sys.exit(f"the archive lacks {min(left)} and {len(left) - 1} more files; collect again")


def merge(digests: dict[str, str], folder: Path, results: Path) -> int:
    """Move what is new into `results`; return how many files were written."""
    new = {}
    for name, digest in digests.items():
        place = results / name
        for path in (place, *place.parents[: name.count("/")]):
            usual = path.is_file() if path == place else path.is_dir()
            if path.is_symlink() or (path.exists() and not usual):
                sys.exit(f"{path} is in the way; move it")
        if place.exists() and hashlib.sha256(place.read_bytes()).hexdigest() == digest:
            continue
        if place.exists() and "/points/" in name:
            sys.exit(f"{place} differs from the host's point of this name; move one of the two")
        new[place] = folder / digest
    for place, source in new.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        # Several names may share one content.
        temporary = place.with_name(f".{place.name}.collected")
        temporary.write_bytes(source.read_bytes())
        temporary.replace(place)
    return len(new)


def main() -> None:
    """Check the archive as a whole, then write."""
    archive, results = Path(sys.argv[1]), Path(sys.argv[2])
    results.mkdir(parents=True, exist_ok=True)
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix=".collect-", dir=results) as folder:
        try:
            with tarfile.open(archive, "r:gz") as opened:
                digests = digests_of(opened)
                unpack(opened, digests, Path(folder))
        except (tarfile.TarError, EOFError, UnicodeDecodeError, OSError) as error:
            sys.exit(f"{archive} cannot be read: {error}; collect again")
        print(merge(digests, Path(folder), results))


if __name__ == "__main__":
    main()
