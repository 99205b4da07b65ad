"""Read a trace of memory accesses: the instructions and cache lines of each step of a protocol."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import IO

ORIGINS = ("near", "llc", "nic", "core", "memory")
"""Where a line comes from, as in ``native/env/scope.h``; the nearest first."""

WINDOW = 168
"""Instructions that a core has in flight: the reorder buffer of Sandy Bridge, the smallest among
the profiles' CPUs. Waits for lines within it overlap."""

FIRST_LEVEL, SECOND_LEVEL = 512, 4096
"""Lines of the caches that the count assumes: 32 KiB and 256 KiB."""

FIRST, LAST = 20, 12
"""Passes through the first step before the count, while threads start, and after it, while they
end."""

_STACK = 128 * 1024
"""Fewer bytes than from the begin of one stack to that of the next."""
_LINES = 6
_PAGE = 12


@dataclass
class Cost:
    """The counts of a step, summed over its passes."""

    passes: int = 0
    instructions: int = 0
    inner: int = 0
    """Passes through steps inside."""
    calls: int = 0
    """Calls of the world."""
    lines: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ORIGINS, 0))

    def add(self, other: Cost, sign: int = 1) -> None:
        """Add the counts of another, or subtract them."""
        self.passes += sign * other.passes
        self.instructions += sign * other.instructions
        self.inner += sign * other.inner
        self.calls += sign * other.calls
        for origin, number in other.lines.items():
            self.lines[origin] += sign * number

    def copy(self) -> Cost:
        """Return the counts so far."""
        return replace(self, lines=dict(self.lines))

    def row(self) -> list[float]:
        """Return the means, as in a list of steps."""
        passes = max(1, self.passes)
        means = [self.instructions / passes, *(self.lines[o] / passes for o in ORIGINS)]
        return [float(f"{mean:.3g}") for mean in means]


@dataclass
class Counts:
    """What the runs of a system's calibrations have counted."""

    steps: dict[str, Cost] = field(default_factory=dict)
    outside: int = 0
    """Instructions of the protocols outside of every step."""

    @property
    def covered(self) -> float:
        """The part of the protocols' instructions that lie in steps."""
        inside = sum(cost.instructions for cost in self.steps.values())
        return inside / max(1, inside + self.outside)


class _Pass:
    """A pass through a step, or what a thread does outside of steps."""

    __slots__ = ("cost", "last", "seen", "step", "until_last")

    def __init__(self, step: Cost | None) -> None:
        self.step = step
        """The counts that get the cost at the end; None: nobody's."""
        self.cost = Cost(passes=1) if step is not None else Cost()
        self.seen: set[int] = set()
        """The lines that it has touched."""
        self.last: Cost | None = None
        """The step of the last pass inside."""
        self.until_last = self.cost
        """The cost at the end of that pass."""


class _Thread:
    """A thread of a simulated node: its open passes and what its core's caches hold."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.bit = 1 << number
        self.open = [_Pass(None)]
        self.executed = 0
        self.waited: tuple[int, int] | None = None
        """The instruction that waits for a line, and the rank of the line's origin."""
        self.first: OrderedDict[int, None] = OrderedDict()
        self.second: OrderedDict[int, None] = OrderedDict()

    def recency(self, line: int) -> str | None:
        """Note an access; return the cache that had the line, or None for the nearest."""
        near = line in self.first
        far = near or line in self.second
        for cache, size in ((self.first, FIRST_LEVEL), (self.second, SECOND_LEVEL)):
            cache[line] = None
            cache.move_to_end(line)
            if len(cache) > size:
                cache.popitem(last=False)
        return None if near else "near" if far else "llc"


class Reader:
    """Reads a trace, line by line."""

    def __init__(self, marks: Mapping[str, str], first: str) -> None:
        self.marks: dict[bytes, tuple[str, str]] = {}
        for text, address in marks.items():
            kind, _, name = text.partition(" ")
            self.marks[b"%08x" % int(address, 16)] = (kind, name)
        self.first = first
        self.steps: dict[str, Cost] = {}
        self.own: dict[str, Cost] = {}
        self.kept: deque[tuple[dict[str, Cost], list[Cost]]] = deque(maxlen=LAST)
        self.passes = 0  # through the first step
        self.counting = False
        self.threads: list[_Thread] = []
        self.stacks: list[tuple[int, _Thread]] = []
        self.nic_pages: set[int] = set()
        self.walked_pages: set[int] = set()
        self.writer: dict[int, int] = {}  # line -> number of its last writer, -1: the NIC
        self.sharers: dict[int, int] = {}  # line -> bits of the threads that have it

    def begin(self, stack: int) -> _Thread:
        """Return a new thread, whose stack may have been another one's."""
        thread = _Thread(len(self.threads))
        self.threads.append(thread)
        self.stacks = [at for at in self.stacks if abs(at[0] - stack) >= _STACK]
        self.stacks.insert(bisect_right(self.stacks, stack, key=itemgetter(0)), (stack, thread))
        return thread

    def thread_at(self, stack: int) -> _Thread:
        """Return the thread whose stack begins at the next higher address."""
        return self.stacks[bisect_right(self.stacks, stack - 4096, key=itemgetter(0))][1]

    def read(self, trace: IO[bytes]) -> None:
        """Count a whole trace."""
        marks = self.marks
        protocol = False
        thread: _Thread | None = None
        announced: list[int] = []
        expecting = ""
        instructions = 0
        for line in trace:
            kind = line[:2]
            if kind == b"I ":
                instructions += 1
                continue
            if kind not in (b" L", b" S", b" M"):
                continue
            address = line[3 : line.index(b",")]
            if kind == b" L":
                # The compiler may put a load of another size in between.
                if expecting and line.endswith(b",1\n"):
                    announced.append(int(address, 16))
                    if expecting in ("protocol", "thread"):
                        begins = expecting == "thread"
                        thread = (self.begin if begins else self.thread_at)(announced[0])
                        protocol, instructions = True, 0
                    elif len(announced) < 2:
                        continue
                    else:
                        pages = self.nic_pages if expecting == "region" else self.walked_pages
                        pages.update(range(announced[0] >> _PAGE, (announced[1] >> _PAGE) + 1))
                    expecting = ""
                    continue
                mark = marks.get(address)
                if mark is not None:
                    if protocol and thread is not None:
                        self.count(thread, instructions)
                    instructions = 0
                    name = mark[0]
                    if name == "world":
                        protocol = False
                        if thread is not None:
                            thread.open[-1].cost.calls += 1
                            thread.waited = None
                    elif name in ("begin", "end"):
                        if thread is not None:
                            self.step(thread, name, mark[1])
                    else:
                        expecting, announced = name, []
                    continue
            at = int(address, 16)
            if protocol and thread is not None:
                self.access(thread, at, kind, instructions)
            elif kind != b" L" and at >> _PAGE in self.nic_pages:
                self.writer[at >> _LINES] = -1
                self.sharers[at >> _LINES] = 0

    def count(self, thread: _Thread, instructions: int) -> None:
        thread.open[-1].cost.instructions += instructions
        thread.executed += instructions

    def step(self, thread: _Thread, kind: str, name: str) -> None:
        if kind == "end":
            done = thread.open.pop()
            if done.step is not None:
                done.step.add(done.cost)  # only now: a pass cut off would lower the mean
            around = thread.open[-1]
            if len(thread.open) > 1:
                around.last, around.until_last = done.step, around.cost.copy()
            if name == self.first:
                self.keep()
            return
        self.passes += name == self.first
        if self.passes == FIRST and not self.counting:
            self.counting = True
            for other in self.threads:
                other.open = [_Pass(None) for _ in other.open]
        step = None
        if name.startswith("calibration/"):
            step = self.own.setdefault(name, Cost())
        elif self.counting:
            step = self.steps.setdefault(name, Cost())
        begun, around = _Pass(step), thread.open[-1]
        around.cost.inner += 1
        if step is not None and around.last is step:
            # The loop around a repeated step belongs to each turn, so that its cost follows their
            # number. A wait has many turns.
            begun.cost.add(around.cost)
            begun.cost.add(around.until_last, -1)
            around.cost = around.until_last
        thread.open.append(begun)

    def keep(self) -> None:
        """Keep the counts of now, of which the oldest ones kept are taken at the end."""
        outside = [thread.open[0].cost.copy() for thread in self.threads]
        self.kept.append(({name: cost.copy() for name, cost in self.steps.items()}, outside))

    def add_to(self, counts: Counts, prefix: str = "") -> None:
        """Add the counts of steps that begin with `prefix`, without the marks' instructions."""
        inner = self.own["calibration/inner"]
        inside = inner.instructions / inner.passes
        outer = self.own["calibration/outer"]
        around = outer.instructions / outer.passes - inside
        call = self.own["calibration/call"]
        # An empty step calls the world once, to charge its cost.
        per_call = call.instructions / call.passes - inside

        def own(cost: Cost) -> float:
            calls = cost.calls - cost.passes
            marks = cost.passes * inside + cost.inner * around + calls * per_call
            return max(0.0, cost.instructions - marks)

        steps, outside = self.kept[0]
        for name, cost in steps.items():
            if not name.startswith(prefix):
                continue
            sums = counts.steps.setdefault(name, Cost())
            sums.passes += cost.passes
            sums.instructions += round(own(cost))
            for origin, number in cost.lines.items():
                sums.lines[origin] += number
        if not prefix:
            counts.outside += round(sum(own(cost) for cost in outside))

    def access(self, thread: _Thread, at: int, kind: bytes, executed: int) -> None:
        """Note an access, `executed` instructions after the last mark.

        A plain store waits for nothing: the store buffer hides it. A load does not wait for a line
        again while the core waits for one that is as far away. A locked instruction overlaps with
        nothing; the trace shows it as a modification, like others that change memory.
        """
        stores, locked = kind != b" L", kind == b" M"
        if locked:
            thread.waited = None
        line = at >> _LINES
        of = thread.open[-1]
        seen = of.seen
        if line in seen and not stores:
            return
        sharers = self.sharers.get(line)
        origin = thread.recency(line)
        if sharers is None:
            origin = None  # new memory, which a long run would have touched before
        elif not sharers & thread.bit:
            origin = "nic" if self.writer.get(line) == -1 else "core"
        if stores:
            self.writer[line] = thread.number
            self.sharers[line] = thread.bit
        else:
            self.sharers[line] = (sharers or 0) | thread.bit
        if line in seen:
            return
        seen.add(line)
        if kind == b" S" or origin is None or at >> _PAGE in self.walked_pages:
            return
        now, rank = thread.executed + executed, ORIGINS.index(origin)
        if thread.waited is not None:
            then, other = thread.waited
            if now - then < WINDOW and rank <= other:
                return
        if not locked:
            thread.waited = (now, rank)
        of.cost.lines[origin] += 1
