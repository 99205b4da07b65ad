from collections.abc import Sequence

replications: list[str]
durabilities: list[str]
placements: list[str]
header_bytes: int
checksum_bytes: int

def replica(objects: Sequence[tuple[str | bytes, str | bytes]], /) -> bytes:
    """Return the bytes of a replica: objects of (key, value), each with its checksum."""

def scan(replica: str | bytes, /) -> tuple[int, int, str]:
    """Scan a replica: return the valid bytes, the objects in them, and why it ended."""
