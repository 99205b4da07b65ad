"""The measurements of a run: rows and latency histograms, separate from their display."""

from __future__ import annotations

import base64
import json
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from . import _shapes
from ._native import native
from .arguments import Between, FilePath, Seed, checked, shown
from .data import check_name
from .errors import Error, InvalidArgument, nearest
from .files import write_atomically, write_json

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SCHEMA", "Latency", "Result", "Sample"]

SCHEMA = 2
"""Version of the tables and of ``run.json``; it rises when a column changes its meaning."""

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9}
HISTORY = "history.jsonl"
"""File of a result's history, as `Result.history` returns it."""

_LOWEST_NS, _HIGHEST_NS, _DIGITS = 1, 3_600_000_000_000, 3
_HEADER = struct.Struct(">IIIIQQd")  # header of a V2 histogram

# Values of several threads add up in these units; values in other units have no total.
_ADDITIVE = {"op/s", "byte/s", "op", "byte", "B", "count"}


Value = bool | int | float | str
"""A parameter's value: a type that both JSON and a table's cell can hold."""


@checked
@dataclass(frozen=True)
class Row:
    """One measured number, when a point yields more than one per metric.

    Parameters
    ----------
    metric, value, unit
        The number. Units as in `pyrdma.units`: prefer ``ns``, ``op/s``, ``byte/s``, ``B``.
    labels
        Further columns of this row, such as ``{"phase": "handshake"}``.
    """

    metric: str
    value: float
    unit: str = ""
    labels: Mapping[str, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # An item of an array becomes a plain number.
        labels = {k: v.item() if hasattr(v, "item") else v for k, v in self.labels.items()}
        for name, value in labels.items():
            check_name(name, f"the label of {self.metric}")
            if not _shapes.is_value(value):
                raise InvalidArgument(
                    f"{self.metric}: label {name} = {value!r} is not a text, bool or finite number"
                )
        object.__setattr__(self, "labels", labels)


@dataclass(frozen=True)
class Sample:
    """One recorded number; thread -1 stands for the whole node, node -1 for the cluster."""

    node: int
    thread: int
    metric: str
    value: float
    unit: str = ""


class Latency:
    """Latencies of one operation, merged from all threads' histograms.

    Percentiles come from the merged counts; percentiles of single threads are never averaged.
    The precision is three significant digits, from 1 ns to 1 h.
    """

    @checked
    def __init__(self, encoded: Sequence[bytes]) -> None:
        from hdrh.histogram import HdrHistogram

        self._merged: Any = HdrHistogram(_LOWEST_NS, _HIGHEST_NS, _DIGITS)
        for payload in encoded:
            check_payload(payload)
            try:
                self._merged.add(HdrHistogram.decode(wrap(payload)))
            except (ValueError, LookupError, TypeError, ArithmeticError) as error:
                raise InvalidArgument(f"a histogram cannot be decoded: {error}") from None

    @checked
    def percentile(self, percentile: Annotated[float, Between(0, 100)]) -> float:
        """Return the latency in ns that `percentile` percent of operations do not exceed."""
        return float(self._merged.get_value_at_percentile(percentile))

    @property
    def count(self) -> int:
        """Number of operations."""
        return int(self._merged.total_count)

    @property
    def mean(self) -> float:
        """Mean in ns, over all operations."""
        return float(self._merged.get_mean_value())

    @property
    def max(self) -> float:
        """Largest in ns."""
        return float(self._merged.get_max_value())

    def encode(self) -> str:
        """Return the merged histogram as an HdrHistogram V2 text, for HdrHistogram's own tools."""
        return str(self._merged.encode().decode())


def check_payload(payload: bytes) -> None:
    """Refuse anything but a V2 histogram of our range before a decoder allocates for its range.

    Raises
    ------
    InvalidArgument
        Cookie, length or range differ.
    """
    ours = (0x1C849313, len(payload) - _HEADER.size, 0, _DIGITS, _LOWEST_NS, _HIGHEST_NS)
    if len(payload) < _HEADER.size or _HEADER.unpack_from(payload)[:6] != ours:
        raise InvalidArgument(
            f"the {len(payload)} bytes are not a histogram of {_LOWEST_NS} ns to 1 h with "
            f"{_DIGITS} digits"
        )


def wrap(payload: bytes) -> bytes:
    """Compress a histogram's V2 payload into the text that HdrHistogram's tools exchange."""
    compressed = zlib.compress(payload)
    head = (0x1C849304 | 0x10).to_bytes(4, "big") + len(compressed).to_bytes(4, "big")
    return base64.b64encode(head + compressed)


@checked
@dataclass
class Result:
    """Rows and histograms of one run of one workload on a cluster.

    Attributes
    ----------
    samples
        Numbers per node and thread.
    histograms
        Operation name -> V2 payloads of its threads' latency histograms, in order.
    fabric, clock, seed
        Origin of the numbers: clock is ``virtual`` or ``real``.
    params
        Parameters of the workload that were in effect, with the defaults.
    rows
        Computed (not recorded) numbers of the whole cluster.
    histories
        Histories that nodes have recorded, as JSON Lines.
    clock_bound_ns
        Largest difference between the clocks of two nodes during the run.
    """

    samples: list[Sample] = field(default_factory=list)
    histograms: dict[str, list[bytes]] = field(default_factory=dict)
    fabric: str = ""
    clock: str = ""
    seed: Seed = 0
    params: Mapping[str, Value | list[int]] = field(default_factory=dict)
    rows: Sequence[Row] = ()
    histories: Sequence[bytes] = ()
    clock_bound_ns: Annotated[int, Between(0, 2**63 - 1)] = 0

    def history(self) -> bytes:
        """Return the nodes' histories as one, as JSON Lines, for `pyrdma.check`.

        The end of each operation is later by ``clock_bound_ns``, so that no order of two operations
        rests on clocks that disagree. A sweep's tables leave histories out: an experiment checks
        them in `measure`.

        Raises
        ------
        InvalidArgument
            No node has recorded a history, it was withheld since the hosts' clocks could not be
            compared, or one is damaged.
        """
        if not self.histories:
            raise InvalidArgument(
                "the run has no history; give the workload history=1, if it has this parameter; "
                "on hosts, the flag 'histories withheld' says that their clocks are unknown"
            )
        core: Any = native()
        merged: bytes = core.check.merge_histories(list(self.histories), self.clock_bound_ns)
        return merged

    @property
    @checked
    def frame(self) -> pd.DataFrame:
        """Tidy rows: metric, value, unit, node, thread, then the origin of the numbers."""
        import pandas as pd

        return pd.DataFrame(
            {
                "metric": [s.metric for s in self.samples],
                "value": [s.value for s in self.samples],
                "unit": [s.unit for s in self.samples],
                "node": [s.node for s in self.samples],
                "thread": [s.thread for s in self.samples],
                "fabric": self.fabric,
                "clock": self.clock,
                "seed": self.seed,
            }
        )

    @checked
    def value(self, metric: str) -> float:
        """Return `metric` of the whole cluster.

        Rates (``rate``, ``bandwidth``: each thread's, over its own measured time), counts and sizes
        add up. Any other metric must have one row.
        """
        found = [s for s in self.samples if s.metric == metric]
        if not found:
            known = sorted({s.metric for s in self.samples})
            raise InvalidArgument(
                f"no metric {shown(metric)}{nearest(metric[:100], known)}; "
                f"the metrics are {', '.join(known)}"
            )
        if len(found) > 1 and found[0].unit not in _ADDITIVE:
            raise InvalidArgument(
                f"{metric} ({found[0].unit}) has {len(found)} rows, which do not add up; "
                "use frame for the rows, or latency() for percentiles"
            )
        return sum(s.value for s in found)

    @checked
    def latency(self, operation: str) -> Latency:
        """Return the merged latencies of `operation`, for example ``read``."""
        if operation not in self.histograms:
            known = ", ".join(sorted(self.histograms)) or "none; run with mode='latency'"
            raise InvalidArgument(
                f"no latencies of operation {shown(operation)}"
                f"{nearest(operation[:100], self.histograms)}; the operations are {known}"
            )
        return Latency(self.histograms[operation])

    def summary(self) -> list[Row]:
        """Return the numbers of the whole cluster: totals, and percentiles of each histogram."""
        rows = list(self.rows)
        by_metric: dict[str, list[Sample]] = {}
        for sample in self.samples:
            by_metric.setdefault(sample.metric, []).append(sample)
        for metric, found in by_metric.items():
            if len(found) == 1 or found[0].unit in _ADDITIVE:
                rows.append(Row(metric, sum(s.value for s in found), found[0].unit))
        for name in self.histograms:
            merged = self.latency(name)
            for suffix, percentile in PERCENTILES.items():
                rows.append(Row(f"{name}_latency_{suffix}", merged.percentile(percentile), "ns"))
            rows.append(Row(f"{name}_latency_mean", merged.mean, "ns"))
            rows.append(Row(f"{name}_latency_max", merged.max, "ns"))
            rows.append(Row(f"{name}_latency_count", float(merged.count), "count"))
        return rows

    @checked
    def save(self, folder: FilePath) -> Path:
        """Write ``results.parquet``, ``hist.parquet`` and ``run.json`` into `folder`.

        A history goes into ``history.jsonl``.
        """
        from . import provenance

        target = Path(folder)
        write_table(target / "results.parquet", self.frame)
        write_histograms(target / "hist.parquet", [({}, 0, self.histograms)])
        document = {
            "schema": SCHEMA,
            "fabric": self.fabric,
            "clock": self.clock,
            "seed": self.seed,
            "params": dict(self.params),
            "provenance": provenance.collect(),
        }
        write_json(target / "run.json", document)
        if self.histories:
            write_atomically(target / HISTORY, self.history())
        else:
            (target / HISTORY).unlink(missing_ok=True)
        return target

    @classmethod
    @checked
    def load(cls, folder: FilePath) -> Result:
        """Read the files that `save` wrote.

        Raises
        ------
        InvalidArgument
            A file is missing or damaged, or another version wrote it.
        """
        from pyarrow.lib import ArrowException

        source = Path(folder)
        try:
            return cls._load(source)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            if isinstance(error, InvalidArgument) and str(source) in str(error):
                raise
            raise InvalidArgument(
                f"the folder {source} has no valid result: {error}; measure again"
            ) from None
        except (OSError, MemoryError, RecursionError, ArrowException) as error:
            raise InvalidArgument(
                f"the folder {source} cannot be read: {error}; measure again"
            ) from None

    @classmethod
    def _load(cls, source: Path) -> Result:
        import pandas as pd

        document = json.loads((source / "run.json").read_text(encoding="utf-8"))
        if document.get("schema") != SCHEMA:
            raise InvalidArgument(
                f"{source}/run.json has schema {document.get('schema')!r}, but this version reads "
                f"{SCHEMA}; measure again"
            )
        frame = pd.read_parquet(source / "results.parquet")
        names = ["node", "thread", "metric", "value", "unit"]
        samples = [
            Sample(int(node), int(thread), str(metric), float(value), str(unit))
            for node, thread, metric, value, unit in zip(*(frame[n] for n in names), strict=True)
        ]
        histograms: dict[str, list[bytes]] = {}
        for row in pd.read_parquet(source / "hist.parquet").itertuples():
            check_payload(row.payload)
            histograms.setdefault(str(row.operation), []).append(bytes(row.payload))
        fields = {name: document[name] for name in ("fabric", "clock", "seed", "params")}
        recorded = source / HISTORY
        fields["histories"] = [recorded.read_bytes()] if recorded.exists() else []
        return cls(samples, histograms, **fields)


def normalise(measured: Any) -> Result:
    """Turn the return value of `Experiment.measure` into a result of finite numbers.

    Raises
    ------
    Error
        The value has none of the allowed types, or a number is infinite or not a number; the
        message names the metric.
    """
    if isinstance(measured, Mapping):
        measured = [_row(metric, value) for metric, value in measured.items()]
    if isinstance(measured, (list, tuple)) and all(isinstance(r, Row) for r in measured):
        measured = Result(rows=[replace(r, value=_number(r)) for r in measured])
    if not isinstance(measured, Result):
        raise Error(
            f"measure() returned {type(measured).__name__}; return a Result, a mapping of metrics "
            "or a list of pyrdma.Row"
        )
    for row in measured.rows:
        _number(row)
    for sample in measured.samples:
        _number(sample)
    return measured


def _row(metric: str, value: Any) -> Row:
    number, unit = value if isinstance(value, tuple) and len(value) == 2 else (value, "")
    try:
        return Row(metric, float(number), unit)
    except (TypeError, ValueError, OverflowError):
        raise Error(
            f"measure() returned {shown(metric)} = {shown(value)}; give a finite number, or a pair "
            "of one and its unit, or leave the metric out"
        ) from None


def _number(row: Row | Sample) -> float:
    try:
        value = float(row.value)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise Error(
            f"measure() returned {row.metric} = {shown(row.value)}; give a finite number, or leave "
            "the metric out"
        )
    return value


def write_table(path: Path, frame: pd.DataFrame) -> None:
    """Write a table as Parquet, atomically."""
    import io

    stream = io.BytesIO()
    frame.to_parquet(stream, index=False)
    write_atomically(path, stream.getvalue())


def write_histograms(
    path: Path,
    entries: Iterable[tuple[Mapping[str, Value], int, Mapping[str, Sequence[bytes]]]],
) -> None:
    """Write ``(params, repetition, histograms)`` with one histogram per row."""
    import pandas as pd

    rows = [
        {
            "params": json.dumps(dict(params), sort_keys=True),
            "repetition": repetition,
            "operation": operation,
            "part": part,
            "payload": payload,
        }
        for params, repetition, histograms in entries
        for operation, payloads in histograms.items()
        for part, payload in enumerate(payloads)
    ]
    columns = ["params", "repetition", "operation", "part", "payload"]
    write_table(path, pd.DataFrame(rows, columns=columns))
