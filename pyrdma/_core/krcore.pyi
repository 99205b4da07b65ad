rc_policies: list[str]
dct_meta_bytes: int

def meta_table_bytes(nodes: int, /) -> int:
    """Return the bytes of a meta server's table for so many nodes."""
