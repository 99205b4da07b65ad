"""One good call of every public callable, on objects that are made anew for each test."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from typing import Any

import pyrdma as rd
from pyrdma import (
    check,
    claims,
    cloudlab,
    decide,
    devices,
    figures,
    fuzz,
    result,
    systems,
    timeline,
    units,
    verbs,
    workload,
)
from pyrdma.profiles import parse_overrides
from tests.face import program_calls
from tests.face.world import World
from tests.harness.support import FAKE

Call = tuple[Callable[..., Any], dict[str, Any]]


def _sim() -> dict[str, Any]:
    settings = {"overrides": {}, "cores_per_node": 1, "memory": "strong", "faults": {}}
    settings["devices_per_node"] = 1
    settings["variance"] = True
    return {"nodes": 2, "profile": "cx5", "seed": 1, **settings}


def _request(w: World) -> dict[str, Any]:
    words = {"remote_addr": 0, "rkey": 0, "immediate": 0, "compare_add": 0, "swap": 0}
    head = {"opcode": verbs.Opcode.WRITE, "sges": [w.sge], "wr_id": 0, "flags": 1}
    return {**head, **words, "address_handle": w.handle}


_HISTORY = b'{"model":"register"}\n'
_MANIFEST = (
    b'<rspec><node client_id="node-0"><services>'
    b'<login hostname="a.example" username="ada"/></services></node></rspec>'
)


def _tail(w: World) -> dict[str, Any]:
    return {"wr_id": 0, "flags": 1, "to": w.handle}


def _queue_pair(w: World) -> dict[str, Any]:
    queues = {"send_queue": w.queue, "receive_queue": w.queue, "transport": "rc"}
    entries = {
        "send_entries": 8,
        "receive_entries": 8,
        "max_sges": 1,
        "max_inline": 0,
        "receive_strides": 1,
    }
    shared = {"shared_receives": w.domain.shared_receive_queue(8), "dc_target": False}
    network = {"pkey_index": 0, "service_level": 0, "traffic_class": 0}
    tries = {"retry_count": 7, "rnr_retry": 7, "timeout_us": 1000}
    return {**queues, **entries, **shared, **tries, **network}


def _run(w: World) -> dict[str, Any]:
    what = {"name": FAKE, "set": {"n": [1]}, "seeds": (1,), "repetitions": 1}
    where = {"fabric": "shm", "profile": None, "inventory": None, "hosts": None}
    more = {"full": False, "out": w.folder / "out", "jobs": 1, "fresh": False}
    more |= {"timeline": None, "timeline_window": "", "timeline_limit": timeline.LIMIT}
    return {**what, **where, **more, "executor": "processes", "progress": lambda *_: None}


def _remote(w: World) -> dict[str, Any]:
    file = w.folder / "hosts.yml"
    file.write_text("all: {hosts: {here: {ansible_connection: local}}}")
    cluster = {"inventory": file, "nodes": 1, "fabric": "shm", "hosts": "here", "seed": 1}
    return {**cluster, "faults": {}}


def _options() -> dict[str, Any]:
    run = {"system": "fabric", "nodes": 2, "operations": 10, "profile": "cx5", "weak": True}
    faults = {"faults": {}, "kinds": (), "kept": ((0, 1),)}
    return {**run, **faults, "mutation": "", "preset": "", "duration_s": 1.0}


def _experiment() -> dict[str, Any]:
    functions = {"measure": len, "where": bool, "figure": len, "decides": {"a/c": len}}
    functions["misses"] = {"a/c": "r"}
    head = {"id": "a/b", "title": "t", "profile": "cx5", "axes": {"n": rd.Axis([1])}, **functions}
    return {**head, "fabrics": ("sim",), "why_not": {}, "max_repetitions": 2, "target": "rate"}


_OPTIONS = fuzz.Options(operations=10, nodes=2, faults={})

CALLS: dict[str, Callable[[World], Call]] = {
    "check.check": lambda w: (
        check.check,
        {"history": w.file("h", _HISTORY), "model": "register", "configurations": 10},
    ),
    "check.draw": lambda w: (
        check.draw,
        {"verdict": check.check(w.file("h", _HISTORY)), "folder": w.folder, "name": "n"},
    ),
    "claims.evaluate": lambda w: (
        claims.evaluate,
        {"out": w.folder, "system": claims.papers()[0], "fabric": "sim"},
    ),
    "claims.load": lambda w: (claims.load, {"folder": w.folder}),
    "claims.undecided": lambda w: (
        claims.undecided,
        {"out": w.folder, "system": claims.papers()[0], "fabric": "sim"},
    ),
    "cloudlab.inventory": lambda w: (
        cloudlab.inventory,
        {"manifest": w.file("m.xml", _MANIFEST), "user": "ada", "lan": "", "testbed": "utah"},
    ),
    "cluster.Cluster.local": lambda _: (
        rd.Cluster.local,
        {"nodes": 1, "fabric": "shm", "mode": "thread", "seed": 1, "device": "", "faults": {}},
    ),
    "cluster.Cluster.remote": lambda w: (rd.Cluster.remote, _remote(w)),
    "cluster.Cluster.sim": lambda _: (rd.Cluster.sim, _sim()),
    "cluster.InProcess.devices_of": lambda w: (w.cluster.devices_of, {"node": 0}),
    "cluster.InProcess.kill": lambda w: (w.threads.kill, {"node": 0}),
    "cluster.SimulatedCluster.block": lambda w: (
        w.cluster.block,
        {"source": 0, "target": 1, "duration_s": 0.1},
    ),
    "cluster.SimulatedCluster.counters": lambda w: (w.cluster.counters, {"node": 0, "device": 0}),
    "cluster.SimulatedCluster.fail_device": lambda w: (
        w.cluster.fail_device,
        {"node": 0, "device": 0, "duration_s": 0.1},
    ),
    "cluster.SimulatedCluster.kill": lambda w: (
        w.cluster.kill,
        {"node": 0, "crash": "host", "after_s": 0.1},
    ),
    "cluster.SimulatedCluster.pause": lambda w: (w.cluster.pause, {"node": 0, "duration_s": 0.1}),
    "cluster.SimulatedCluster.restart": lambda w: (
        w.cluster.restart,
        {"node": 0, "after_s": 0.1},
    ),
    "cluster.SimulatedCluster.slow_down": lambda w: (
        w.cluster.slow_down,
        {"node": 0, "shift": 1, "duration_s": 0.1},
    ),
    "cluster.SimulatedCluster.timeline": lambda w: (
        w.cluster.timeline,
        {"path": w.folder / "t.json", "window": "1us-2us", "limit": 10},
    ),
    "cluster_base.ClusterBase.devices_of": lambda w: (w.threads.devices_of, {"node": 0}),
    "cluster_base.ClusterBase.kill": lambda w: (w.threads.kill, {"node": 0}),
    "cluster_base.ClusterBase.pause": lambda w: (w.threads.pause, {"node": 0, "duration_s": 0.1}),
    "cluster_base.ClusterBase.restart": lambda w: (w.threads.restart, {"node": 0}),
    "cluster_base.ClusterBase.run": lambda w: (
        w.cluster.run,
        {"workload": workload.Idle(), "duration_s": 0.001, "timeout_s": 10.0},
    ),
    "comparison.compare": lambda w: (rd.compare, {"a": w.stored(), "b": w.stored()}),
    "data.Data": lambda w: (rd.Data, {"frame": w.frame}),
    "data.Data.select": lambda w: (w.data.select, {"metric": "rate"}),
    "data.Data.series": lambda w: (
        w.data.series,
        {"metric": "rate", "over": "size", "unit": "op/s"},
    ),
    "data.Data.unit": lambda w: (w.data.unit, {"metric": "rate"}),
    "data.Data.value": lambda w: (w.data.value, {"metric": "rate", "unit": "op/s"}),
    "data.Data.values_of": lambda w: (w.data.values_of, {"parameter": "size"}),
    "decide.ProfileValue": lambda _: (
        decide.ProfileValue,
        {"key": "link.rate_gbps", "unit": "Gbps", "name": "cx5", "scale": 1.0},
    ),
    "decide.ProfileValue.read": lambda w: (
        decide.ProfileValue("nodes").read,
        {"profile_name": "cx5", "claim": w.claim},
    ),
    "decide.all_of": lambda _: (decide.all_of, {"claims": {"a/c": len}}),
    "decide.by_construction": lambda _: (
        decide.by_construction,
        {"decider": len, "reason": "r"},
    ),
    "decide.cause": lambda _: (
        decide.cause,
        {"metric": "rate", "ahead": ({}, {}), "without": ({}, {}), "reason": ""},
    ),
    "decide.best": lambda _: (
        decide.best,
        {"metric": "rate", "by": "size", "winner": 8, "pick": "max"},
    ),
    "decide.crossover": lambda _: (
        decide.crossover,
        {"metric": "rate", "over": "size", "a": {}, "b": {}, "when": "above"},
    ),
    "decide.extreme": lambda _: (
        decide.extreme,
        {"metric": "rate", "over": "size", "pick": "max"},
    ),
    "decide.flat": lambda _: (decide.flat, {"metric": "rate", "over": "size", "within": 0.2}),
    "decide.profile": lambda _: (
        decide.profile,
        {"key": "link.rate_gbps", "unit": "Gbps", "profile": "cx5", "scale": 1.0},
    ),
    "decide.rank": lambda _: (
        decide.rank,
        {"metric": "rate", "order": [{"size": 8}, {"size": 9}], "slack": 0.0},
    ),
    "decide.ratio": lambda _: (
        decide.ratio,
        {"metric": "rate", "of": {}, "to": {}, "form": "ratio", "to_metric": "rate"},
    ),
    "decide.trend": lambda _: (
        decide.trend,
        {"metric": "rate", "over": "size", "direction": "rises", "slack": 0.1, "by": 0.0},
    ),
    "decide.value": lambda _: (decide.value, {"metric": "rate"}),
    "devices.Wish": lambda _: (
        devices.Wish,
        {"device": "mlx5_0", "port": 1, "gid_index": 0, "address": "10.0.0.1"},
    ),
    "devices.Wish.parse": lambda _: (devices.Wish.parse, {"text": "mlx5_0"}),
    "devices.choose": lambda _: (devices.choose, {"wish": devices.Wish("none")}),
    "experiment.Axis": lambda _: (rd.Axis, {"quick": [1], "full": [1, 2], "unit": "B"}),
    "experiment.Axis.values": lambda _: (rd.Axis([1]).values, {"quick": True}),
    "experiment.Experiment": lambda _: (rd.Experiment, _experiment()),
    "experiment.Experiment.points": lambda w: (
        wraps(w.experiment.points)(lambda **given: list(w.experiment.points(**given))),
        {"quick": True, "fabric": "sim", "profile": "cx5", "overrides": {}}
        | {"seed": 1, "settings": {"size": 8}},
    ),
    "experiment.Point": lambda _: (
        rd.Point,
        {"experiment": "a/b", "params": {}, "fabric": "sim", "profile": "cx5", "overrides": {}}
        | {"seed": 1, "repetition": 0, "quick": True},
    ),
    "experiment.Point.cluster": lambda _: (
        rd.Point("a/b", {}, profile="cx5").cluster,
        {"nodes": 1},
    ),
    "experiment.Point.duration": lambda _: (
        rd.Point("a/b", {}).duration,
        {"quick_s": 0.1, "full_s": 1.0},
    ),
    "faults.random": lambda _: (rd.faults.random, {"seed": 1, "probability": 0.5}),
    "figures.bars": lambda w: (
        figures.bars,
        {"ax": w.drawing[1], "names": ["a"], "groups": {"g": [1.0]}, "stacked": False}
        | {"values": "{:.1f}", "log": False},
    ),
    "figures.line": lambda w: (
        figures.line,
        {"ax": w.drawing[1], "data": w.data, "metric": "rate", "over": "size", "by": None}
        | {"unit": "op/s", "names": {}, "label": "l", "first": 0},
    ),
    "figures.legend_below": lambda w: (
        figures.legend_below,
        {"panels": [w.drawing[1]], "title": "all"},
    ),
    "figures.paper_says": lambda w: (figures.paper_says, {"ax": w.drawing[1], "text": "a above b"}),
    "figures.new": lambda _: (
        figures.new,
        {"rows": 1, "columns": 1, "wide": False, "height": 2.0},
    ),
    "figures.overlay": lambda w: (
        figures.overlay,
        {"ax": w.drawing[1], "numbers": [(w.claim, 1)], "unit": None, "names": {}, "first": 0},
    ),
    "figures.save": lambda w: (
        figures.save,
        {"figure": w.drawing[0], "folder": w.folder, "name": "drawn"}
        | {"title": "t", "about": "a", "caption": True, "note": "n", "points": ["p"]},
    ),
    "figures.style_of": lambda _: (figures.style_of, {"number": 0}),
    "fuzz.Options": lambda _: (fuzz.Options, _options()),
    "fuzz.Options.replay": lambda _: (_OPTIONS.replay, {"seed": 1, "fingerprint": 1}),
    "fuzz.differ": lambda _: (fuzz.differ, {"options": _OPTIONS, "seed": 1}),
    "fuzz.fuzz": lambda w: (
        fuzz.fuzz,
        {"options": _OPTIONS, "seeds": 1, "first": 1, "jobs": 1, "out": w.folder, "twice": False}
        | {"progress": lambda *_: None},
    ),
    "fuzz.minimise": lambda _: (
        fuzz.minimise,
        {"options": _OPTIONS, "seed": 1, "progress": lambda _: None},
    ),
    "fuzz.parse_ranges": lambda _: (fuzz.parse_ranges, {"text": "3,5-9"}),
    "fuzz.run": lambda w: (
        fuzz.run,
        {"options": _OPTIONS, "seed": 1, "trace": False, "history": False, "events": False}
        | {"timeline": timeline.Options(w.folder / "t.json")},
    ),
    "processes.ProcessCluster.incarnation": lambda w: (w.processes.incarnation, {"node": 0}),
    "processes.ProcessCluster.kill": lambda w: (w.processes.kill, {"node": 0}),
    "processes.ProcessCluster.pause": lambda w: (
        w.processes.pause,
        {"node": 0, "duration_s": 0.01},
    ),
    "processes.ProcessCluster.restart": lambda w: (w.processes.restart, {"node": 0}),
    "processes.ProcessCluster.resume": lambda w: (w.processes.resume, {"node": 0}),
    "processes.ProcessCluster.run": lambda w: (
        w.processes.run,
        {"workload": workload.Idle(), "duration_s": 0.001, "timeout_s": 10.0},
    ),
    "processes.ProcessCluster.stop": lambda w: (w.processes.stop, {"node": 0}),
    "profiles.Profile.load": lambda _: (
        rd.Profile.load,
        {"name_or_path": "cx5", "overrides": {"link.rate_gbps": 1.0}},
    ),
    "profiles.parse_overrides": lambda _: (parse_overrides, {"settings": {"link.rate_gbps": 1}}),
    "result.Latency": lambda w: (result.Latency, {"encoded": w.result.histograms["memcpy"]}),
    "result.Latency.percentile": lambda _: (result.Latency([]).percentile, {"percentile": 50.0}),
    "result.Result": lambda _: (
        rd.Result,
        {"samples": [], "histograms": {}, "fabric": "sim", "clock": "virtual", "seed": 1}
        | {"params": {"size": 8}, "rows": [rd.Row("rate", 1.0)]}
        | {"histories": [b"{}"], "clock_bound_ns": 5},
    ),
    "result.Result.latency": lambda w: (w.result.latency, {"operation": "memcpy"}),
    "result.Result.load": lambda w: (rd.Result.load, {"folder": w.result.save(w.folder / "r")}),
    "result.Result.save": lambda w: (w.result.save, {"folder": w.folder / "r"}),
    "result.Result.value": lambda w: (w.result.value, {"metric": "rate"}),
    "result.Row": lambda _: (
        rd.Row,
        {"metric": "rate", "value": 1.0, "unit": "op/s", "labels": {"phase": "one"}},
    ),
    "results.load": lambda w: (
        rd.load,
        {"path": w.stored(), "histograms": False, "superseded": False},
    ),
    "runs.run": lambda w: (rd.run, _run(w)),
    "sharing.fetching.fetch": lambda w: (rd.fetch, {"source": w.stored()}),
    "units.convert": lambda _: (units.convert, {"value": 1.0, "unit": "ns", "to": "us"}),
    "verbs.CompletionQueue.poll": lambda w: (
        w.queue.poll,
        {"max": 16, "timeout_s": 0.0, "check": True},
    ),
    "verbs.Device.completion_queue": lambda w: (w.device.completion_queue, {"entries": 8}),
    "verbs.Device.sleep": lambda w: (w.device.sleep, {"seconds": 0.001}),
    "verbs.MemoryRegion.sge": lambda w: (w.region.sge, {"offset": 0, "length": 8}),
    "verbs.ProtectionDomain.address_handle": lambda w: (
        w.domain.address_handle,
        {"peer": w.pair.address, "service_level": 0, "traffic_class": 0},
    ),
    "verbs.ProtectionDomain.allocate": lambda w: (w.domain.allocate, {"size": 64, "access": 15}),
    "verbs.ProtectionDomain.allocate_device_memory": lambda w: (
        w.domain.allocate_device_memory,
        {"size": 64, "access": 15},
    ),
    "verbs.ProtectionDomain.queue_pair": lambda w: (w.domain.queue_pair, _queue_pair(w)),
    "verbs.ProtectionDomain.shared_receive_queue": lambda w: (
        w.domain.shared_receive_queue,
        {"entries": 8, "max_sges": 1},
    ),
    "verbs.QpAddress.from_bytes": lambda w: (
        verbs.QpAddress.from_bytes,
        {"packed": w.pair.address.to_bytes()},
    ),
    "verbs.QueuePair.connect": lambda w: (w.pair.connect, {"peer": w.pair.address}),
    "verbs.QueuePair.modify": lambda w: (
        w.pair.modify,
        {"state": verbs.QpState.INIT, "peer": w.pair.address},
    ),
    "verbs.QueuePair.post": lambda w: (
        w.connected.post,
        {"requests": [verbs.send(w.sge)], "address_handle": w.handle},
    ),
    "verbs.QueuePair.post_receive": lambda w: (
        w.connected.post_receive,
        {"receives": [verbs.receive(w.sge)]},
    ),
    "verbs.Receive": lambda w: (verbs.Receive, {"sges": [w.sge], "wr_id": 0}),
    "verbs.RemoteRegion": lambda _: (
        verbs.RemoteRegion,
        {"addr": 0, "length": 8, "rkey": 1, "node": 0},
    ),
    "verbs.RemoteRegion.from_bytes": lambda w: (
        verbs.RemoteRegion.from_bytes,
        {"packed": w.region.remote.to_bytes()},
    ),
    "verbs.Request": lambda w: (verbs.Request, _request(w)),
    "verbs.Sge": lambda _: (verbs.Sge, {"addr": 0, "length": 8, "lkey": 1}),
    "verbs.SharedReceiveQueue.post_receive": lambda w: (
        w.domain.shared_receive_queue(8).post_receive,
        {"receives": [verbs.receive(w.sge)]},
    ),
    "verbs.compare_swap": lambda w: (
        verbs.compare_swap,
        {"old": w.sge, "target": w.region.remote, "offset": 0, "expected": 0, "desired": 1}
        | _tail(w),
    ),
    "verbs.fetch_add": lambda w: (
        verbs.fetch_add,
        {"old": w.sge, "target": w.region.remote, "offset": 0, "addend": 1} | _tail(w),
    ),
    "verbs.read": lambda w: (
        verbs.read,
        {"target": [w.sge], "source": w.region.remote, "offset": 0} | _tail(w),
    ),
    "verbs.receive": lambda w: (verbs.receive, {"target": [w.sge], "wr_id": 0}),
    "verbs.requests": lambda _: (
        verbs.requests,
        {"count": 1, "opcode": verbs.Opcode.WRITE, "flags": 1},
    ),
    "verbs.send": lambda w: (verbs.send, {"source": [w.sge], "immediate": 0} | _tail(w)),
    "verbs.write": lambda w: (
        verbs.write,
        {"source": [w.sge], "target": w.region.remote, "offset": 0, "immediate": 0} | _tail(w),
    ),
    "workload.Custom": lambda _: (workload.Custom, {"library": "my.so:mine", "settings": {}}),
    "workload.Custom.parameters": lambda _: (
        workload.Custom("my.so:mine").parameters,
        {"duration_s": 0.1},
    ),
    "workload.Workload.parameters": lambda _: (workload.Idle().parameters, {"duration_s": 0.1}),
}
"""Name -> the callable and keyword arguments that it accepts."""

CALLS.update(program_calls.CALLS)

SIGNED_OF_SYSTEMS: set[str] = set(program_calls.SIGNED)
"""Parameters of systems that take -1."""

for _system in systems.NAMES:
    # A system without the file fails the test that every public name has a good call.
    with suppress(ModuleNotFoundError):
        _own = import_module(f"tests.systems.{_system}.good_calls")
        CALLS.update(_own.CALLS)
        SIGNED_OF_SYSTEMS |= _own.SIGNED
