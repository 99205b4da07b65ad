import enum
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

SIGNALED: int
INLINE: int
FENCE: int
LOCAL_WRITE: int
REMOTE_WRITE: int
REMOTE_READ: int
REMOTE_ATOMIC: int
RELAXED_ORDERING: int
ALL_ACCESS: int
HAS_IMMEDIATE: int
HAS_GRH: int
CONGESTED: int
GRH_BYTES: int

def completion_dtype() -> np.dtype[np.void]: ...
def request_dtype() -> np.dtype[np.void]: ...

class Opcode(enum.IntEnum):
    WRITE = 0
    WRITE_IMM = 1
    SEND = 2
    SEND_IMM = 3
    READ = 4
    COMPARE_SWAP = 5
    FETCH_ADD = 6
    RECEIVE = 7
    RECEIVE_WRITE_IMM = 8

class Status(enum.IntEnum):
    SUCCESS = 0
    LOCAL_LENGTH = 1
    LOCAL_QP_OPERATION = 2
    LOCAL_PROTECTION = 3
    FLUSHED = 4
    REMOTE_INVALID_REQUEST = 5
    REMOTE_ACCESS = 6
    REMOTE_OPERATION = 7
    RETRY_EXCEEDED = 8
    RNR_RETRY_EXCEEDED = 9
    GENERAL = 10

class QpState(enum.IntEnum):
    RESET = 0
    INIT = 1
    READY_TO_RECEIVE = 2
    READY_TO_SEND = 3
    SEND_QUEUE_ERROR = 4
    ERROR = 5

class QpAddress:
    @property
    def node(self) -> int: ...
    @property
    def qp_num(self) -> int: ...
    @property
    def psn(self) -> int: ...
    @property
    def qkey(self) -> int: ...
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(packed: bytes) -> QpAddress: ...

class RemoteRegion:
    def __init__(self, addr: int, length: int, rkey: int, node: int) -> None: ...
    @property
    def addr(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def rkey(self) -> int: ...
    @property
    def node(self) -> int: ...
    def to_bytes(self) -> bytes: ...
    @staticmethod
    def from_bytes(packed: bytes) -> RemoteRegion: ...

class Sge:
    def __init__(self, addr: int, length: int, lkey: int) -> None: ...
    @property
    def addr(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def lkey(self) -> int: ...

class AddressHandle:
    @property
    def peer(self) -> QpAddress: ...
    def close(self) -> None: ...

class Request:
    def __init__(
        self,
        opcode: Opcode,
        sges: Sequence[Sge],
        wr_id: int = ...,
        flags: int = ...,
        remote_addr: int = ...,
        rkey: int = ...,
        immediate: int = ...,
        compare_add: int = ...,
        swap: int = ...,
        address_handle: AddressHandle | None = ...,
    ) -> None: ...
    @property
    def wr_id(self) -> int: ...
    @property
    def opcode(self) -> Opcode: ...

class Receive:
    def __init__(self, sges: Sequence[Sge], wr_id: int = ...) -> None: ...
    @property
    def wr_id(self) -> int: ...

class MemoryRegion:
    @property
    def array(self) -> npt.NDArray[np.uint8]: ...
    @property
    def remote(self) -> RemoteRegion: ...
    @property
    def lkey(self) -> int: ...
    @property
    def size(self) -> int: ...
    def sge(self, offset: int, length: int) -> Sge: ...
    def close(self) -> None: ...

class CompletionQueue:
    @property
    def entries(self) -> int: ...
    def poll(
        self,
        max: int = ...,  # noqa: A002 - of completions; as in the native call
        timeout_s: float = ...,
        check: bool = ...,
    ) -> npt.NDArray[np.void]: ...
    def close(self) -> None: ...

class SharedReceiveQueue:
    def post_receive(self, receives: Sequence[Receive]) -> int: ...
    def close(self) -> None: ...

class QueuePair:
    @property
    def qp_num(self) -> int: ...
    @property
    def state(self) -> QpState: ...
    @property
    def address(self) -> QpAddress: ...
    def connect(self, peer: QpAddress | None = ...) -> None: ...
    def modify(self, state: QpState, peer: QpAddress | None = ...) -> None: ...
    def post(
        self,
        requests: Sequence[Request] | npt.NDArray[np.void],
        address_handle: AddressHandle | None = ...,
    ) -> int: ...
    def post_receive(self, receives: Sequence[Receive]) -> int: ...
    def close(self) -> None: ...

class ProtectionDomain:
    def allocate(self, size: int, access: int = ...) -> MemoryRegion: ...
    def allocate_device_memory(self, size: int, access: int = ...) -> MemoryRegion: ...
    def queue_pair(
        self,
        send_queue: CompletionQueue,
        receive_queue: CompletionQueue | None = ...,
        transport: str = ...,
        send_entries: int = ...,
        receive_entries: int = ...,
        max_sges: int = ...,
        max_inline: int = ...,
        shared_receives: SharedReceiveQueue | None = ...,
        dc_target: bool = ...,
        retry_count: int = ...,
        rnr_retry: int = ...,
        timeout_us: int = ...,
        pkey_index: int = ...,
        service_level: int = ...,
        traffic_class: int = ...,
        receive_strides: int = ...,
    ) -> QueuePair: ...
    def shared_receive_queue(self, entries: int, max_sges: int = ...) -> SharedReceiveQueue: ...
    def address_handle(
        self, peer: QpAddress, service_level: int = ..., traffic_class: int = ...
    ) -> AddressHandle: ...
    def close(self) -> None: ...

class Device:
    @property
    def node(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def capabilities(self) -> dict[str, Any]: ...
    @property
    def now_ns(self) -> int: ...
    def open(self) -> None: ...
    def sleep(self, seconds: float) -> None: ...
    def protection_domain(self) -> ProtectionDomain: ...
    def completion_queue(self, entries: int) -> CompletionQueue: ...
