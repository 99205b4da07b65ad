from collections.abc import Sequence

replications: list[str]
durabilities: list[str]
placements: list[str]
header_bytes: int
checksum_bytes: int

def replica(objects: Sequence[tuple[str | bytes, str | bytes]], /) -> bytes: ...
def scan(replica: str | bytes, /) -> tuple[int, int, str]: ...
