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

def completion_dtype() -> np.dtype[np.void]:
    """Return the dtype of the arrays of `CompletionQueue.poll`."""

def request_dtype() -> np.dtype[np.void]:
    """Return the dtype of the arrays that `QueuePair.post` takes."""

class Opcode(enum.IntEnum):
    """Operation of a request or a completion."""

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
    """Outcome of a request, with the meanings of ibv_wc_status."""

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
    """State of a queue pair."""

    RESET = 0
    INIT = 1
    READY_TO_RECEIVE = 2
    READY_TO_SEND = 3
    SEND_QUEUE_ERROR = 4
    ERROR = 5

class QpAddress:
    """Address by which a peer connects to a queue pair. Immutable."""

    @property
    def node(self) -> int:
        """Node of the queue pair."""

    @property
    def qp_num(self) -> int:
        """Number of the queue pair."""

    @property
    def psn(self) -> int:
        """Its first packet sequence number."""

    @property
    def qkey(self) -> int:
        """The key that its datagrams must carry, for UD; for DC, the access key."""

    @property
    def reads(self) -> int:
        """Reads and atomics of a peer that it serves at once."""

    def to_bytes(self) -> bytes:
        """Encode it, to send it to a peer."""

    @staticmethod
    def from_bytes(packed: bytes) -> QpAddress:
        """Decode what `to_bytes` returned."""

class RemoteRegion:
    """Address and key by which a peer reaches a memory region. Immutable."""

    def __init__(self, addr: int, length: int, rkey: int, node: int) -> None: ...
    @property
    def addr(self) -> int:
        """Its first address at its node."""

    @property
    def length(self) -> int:
        """Its size in bytes."""

    @property
    def rkey(self) -> int:
        """The key that a peer's request names."""

    @property
    def node(self) -> int:
        """Node of the region."""

    def to_bytes(self) -> bytes:
        """Encode it, to send it to a peer."""

    @staticmethod
    def from_bytes(packed: bytes) -> RemoteRegion:
        """Decode what `to_bytes` returned."""

class Sge:
    """A local buffer: address, length in bytes, key."""

    def __init__(self, addr: int, length: int, lkey: int) -> None: ...
    @property
    def addr(self) -> int:
        """Its first address."""

    @property
    def length(self) -> int:
        """Its length in bytes."""

    @property
    def lkey(self) -> int:
        """The local key of its memory region."""

class AddressHandle:
    """Destination of datagrams and of dynamically connected requests."""

    @property
    def peer(self) -> QpAddress:
        """The address that it leads to."""

    def close(self) -> None:
        """Free the handle. InvalidArgument while a queue pair has sent with it."""

class Request:
    """One send-queue request; pyrdma.verbs.write, read, send, ... make them."""

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
    def wr_id(self) -> int:
        """Identifier that the completion returns."""

    @property
    def opcode(self) -> Opcode:
        """The operation."""

class Receive:
    """One receive request: the buffer of the next message."""

    def __init__(self, sges: Sequence[Sge], wr_id: int = ...) -> None: ...
    @property
    def wr_id(self) -> int:
        """Identifier that the completion returns."""

class MemoryRegion:
    """Registered memory."""

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """The bytes as a NumPy array of uint8, without a copy. The array keeps the memory."""

    @property
    def remote(self) -> RemoteRegion:
        """The whole region, for a peer's request."""

    @property
    def lkey(self) -> int:
        """The local key, for requests of its node."""

    @property
    def size(self) -> int:
        """Size in bytes."""

    def sge(self, offset: int, length: int) -> Sge:
        """Name `length` bytes from `offset` on as a local buffer of a request."""

    def close(self) -> None:
        """Deregister the memory. BufferError while an array refers to the region."""

class CompletionQueue:
    """Queue of the completions of requests."""

    @property
    def entries(self) -> int:
        """The most completions that the queue holds."""

    def poll(
        self, max: int = ..., timeout_s: float = ..., check: bool = ...
    ) -> npt.NDArray[np.void]:
        """Take completions off the queue.

        Parameters
        ----------
        max
            The most completions to take, 1 to 2**20.
        timeout_s
            Wait for the first one up to this many seconds of the cluster's clock.
        check
            Raise `pyrdma.CompletionError` for a completion whose status is not SUCCESS.

        Returns
        -------
        array, shape (0 to max,), dtype COMPLETION_DTYPE
            Empty if none came in time. `pyrdma.Exhausted` if the queue has overrun its entries.
        """

    def close(self) -> None:
        """Free the queue. InvalidArgument while a queue pair uses it."""

class SharedReceiveQueue:
    """Receives for many queue pairs."""

    def post_receive(self, receives: Sequence[Receive]) -> int:
        """Post buffers for the next messages, in order.

        Parameters
        ----------
        receives
            Messages take them in this order.

        Returns
        -------
        int
            Number of accepted receives, which is smaller than given when the queue is full.
        """

    def close(self) -> None:
        """Free the queue. InvalidArgument while a queue pair uses it."""

class QueuePair:
    """One end of a connection."""

    @property
    def qp_num(self) -> int:
        """Number of the queue pair, unique at its device."""

    @property
    def state(self) -> QpState:
        """The state now."""

    @property
    def address(self) -> QpAddress:
        """What a peer needs to connect to it."""

    def connect(self, peer: QpAddress | None = ...) -> None:
        """Make the queue pair ready to send.

        Parameters
        ----------
        peer
            The `address` of the other queue pair, for RC and UC. UD and DC take none.
        """

    def modify(self, state: QpState, peer: QpAddress | None = ...) -> None:
        """Change the state, as ibv_modify_qp does.

        Parameters
        ----------
        state
            The new state. `InvalidArgument` if the present one does not lead there.
        peer
            The `address` of the other queue pair, for the step to READY_TO_RECEIVE of RC and UC.
        """

    def post(
        self,
        requests: Sequence[Request] | npt.NDArray[np.void],
        address_handle: AddressHandle | None = ...,
    ) -> int:
        """Post requests in order, in one call with one doorbell.

        Parameters
        ----------
        requests
            A list of requests, or an array of dtype REQUEST_DTYPE. From the first invalid one on,
            none is posted; `InvalidArgument` names it and says which were posted.
        address_handle
            Destination of those without one of their own, on a UD or DC queue pair.

        Returns
        -------
        int
            Number of accepted requests, which is smaller than given when the send queue is full.
        """

    def post_receive(self, receives: Sequence[Receive]) -> int:
        """Post buffers for the next messages, in order.

        Parameters
        ----------
        receives
            Messages take them in this order.

        Returns
        -------
        int
            Number of accepted receives, which is smaller than given when the queue is full.
        """

    def close(self) -> None:
        """Free the queue pair, with the receives that it holds."""

class ProtectionDomain:
    """Protection domain: owner of memory and queue pairs."""

    def allocate(self, size: int, access: int = ...) -> MemoryRegion:
        """Make zeroed, registered memory.

        Parameters
        ----------
        size
            Bytes, at least 1.
        access
            The rights of the NIC and of peers, who have none by default: LOCAL_WRITE |
            REMOTE_WRITE, REMOTE_READ, LOCAL_WRITE | REMOTE_ATOMIC, or any combination. A request
            without the right ends with Status.REMOTE_ACCESS.
        """

    def allocate_device_memory(self, size: int, access: int = ...) -> MemoryRegion:
        """Make a region of the NIC's own memory, as `allocate` does of the host's."""

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
    ) -> QueuePair:
        """Make a queue pair in state RESET.

        Parameters
        ----------
        send_queue, receive_queue
            Queues of the completions of requests and of receives; None: one queue for both.
        transport
            rc, uc, ud or dc.
        send_entries, receive_entries
            The most requests and receives that it holds.
        max_sges, max_inline
            The most buffers of a request, and bytes of an inline payload.
        shared_receives
            Take receives from there.
        dc_target
            Make a target of DC, which receives, not an initiator.
        retry_count, rnr_retry
            Retries after a lost packet, and of a send without a receive at the peer; 7 of the
            latter is for ever.
        timeout_us
            Time until a packet counts as lost.
        pkey_index
            The partition, as a place in the port's table of P_Keys; 0 on sim and shm.
        service_level, traffic_class
            0 to 15, and 0 to 255, for the network of a device of fabric verbs; 0 on sim and shm. A
            UD queue pair takes them from the address handle.
        receive_strides
            Datagrams that a receive of a UD queue pair takes, at most the capability
            max_receive_strides. Each lands in the next equal part of the buffer; the column stride
            of its completion says in which.
        """

    def shared_receive_queue(self, entries: int, max_sges: int = ...) -> SharedReceiveQueue:
        """Make a queue of `entries` receives, of at most `max_sges` buffers each."""

    def address_handle(
        self, peer: QpAddress, service_level: int = ..., traffic_class: int = ...
    ) -> AddressHandle:
        """Make a destination of UD and DC requests; the last two are those of `queue_pair`."""

    def close(self) -> None:
        """Close the domain. Objects made in it stay usable."""

class Device:
    """A node's RDMA device."""

    @property
    def node(self) -> int:
        """Its node."""

    @property
    def index(self) -> int:
        """Number of the device at its node."""

    @property
    def name(self) -> str:
        """Name of the device, such as mlx5_0."""

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the device can do, by name.

        ``rc``, ``uc``, ``ud``, ``dc``, ``atomics``, ``srq`` and ``device_memory`` are True or
        False; the names that begin with ``max_`` are bounds. ``link_gbps`` is the rate of one link
        in Gbit/s, 0 where there is no link or nobody knows its rate.
        """

    @property
    def now_ns(self) -> int:
        """The node's clock; virtual in the simulated world."""

    def open(self) -> None:
        """Allocate the device's context. In the simulated world it takes the driver's time."""

    def sleep(self, seconds: float) -> None:
        """Let time pass; virtual time in the simulated world."""

    def protection_domain(self) -> ProtectionDomain:
        """Make a protection domain."""

    def completion_queue(self, entries: int) -> CompletionQueue:
        """Make a completion queue for `entries` completions, at most max_completions."""
