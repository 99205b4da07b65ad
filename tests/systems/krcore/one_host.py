"""A program for a Soft-RoCE guest, which has no DC: services on reliable connections alone."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyrdma as rd
from tests.errors import raises

ATTACHED = """
import sys
import pyrdma as rd
app = rd.krcore.attach(sys.argv[1])
inbox = app.vqp(bind=9)
memory = app.reg_mr(65536)
inbox.pop_msgs(timeout_s=1000)
"""


def until(done: object, seconds: float = 60.0) -> None:
    """Wait until a call returns true."""
    end = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def connects(service: rd.krcore.Service) -> None:
    """A connect that misses waits for its reliable connection; the next ones do not."""
    app = service.app(node=1)
    first = app.vqp()
    missed = first.connect(node=2)
    assert first.is_reliable or service.cluster.fabric != "verbs"
    hits = sorted(app.vqp().connect(node=2) for _ in range(20))
    assert hits[10] < missed
    text = f"connect: {missed / 1e6:.1f} ms with its connection, {hits[10] / 1e3:.0f} us beside it"
    if shutil.which("cmtime") is not None:
        server = subprocess.Popen(["cmtime", "-c", "20"], stdout=subprocess.DEVNULL)
        time.sleep(1)
        [address] = subprocess.run(
            ["hostname", "-I"], capture_output=True, text=True, check=True
        ).stdout.split()[:1]
        said = subprocess.run(
            ["cmtime", "-s", address, "-c", "20"],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        ).stdout
        server.kill()
        server.wait()
        rows = re.findall(r"^connect .*", said, re.MULTILINE)
        text += f"; cmtime (total ms, max ms, min us, us each): {' '.join(rows) or 'said nothing'}"
    print(text, flush=True)


def data(service: rd.krcore.Service) -> None:
    """One-sided requests, messages, zero copy, and a region that ends."""
    owner, user = service.app(node=2), service.app(node=1)
    inbox = owner.vqp(bind=7)
    region = owner.reg_mr(4096)
    vqp = user.vqp()
    vqp.connect(node=2, port=7)
    vqp.write(region, b"far memory")
    assert vqp.read(region, 10) == b"far memory"
    assert vqp.fetch_add(region, 5, offset=64) == 0
    assert vqp.compare_swap(region, 5, 9, offset=64) == 5
    vqp.send(b"hello")
    [(reply, message)] = inbox.pop_msgs(timeout_s=20)
    assert message == b"hello"
    long = bytes(range(256)) * 200
    sender = threading.Thread(target=vqp.send, args=(long, 60.0))
    sender.start()
    [(_, message)] = inbox.pop_msgs(timeout_s=60)
    inbox.pop_msgs(timeout_s=0.1)  # tells the sender that it has read
    sender.join()
    assert message == long
    assert service.counters(node=2)["zero_copies"] >= 1
    reply.close()
    region.deregister()
    time.sleep(0.3)  # the lease
    with raises(rd.InvalidArgument, "does not exist any more"):
        vqp.read(region, 8)
    print("one-sided requests, messages, zero copy, leases", flush=True)


def killed(service: rd.krcore.Service) -> None:
    """An application in another process that is killed leaves nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = service.listen(node=0, folder=Path(folder) / "door")
        with subprocess.Popen([sys.executable, "-c", ATTACHED, path]) as child:

            def has_port() -> bool:
                probe = service.app(node=0)
                try:
                    probe.vqp(bind=9)
                except rd.InvalidArgument:
                    return True
                finally:
                    probe.close()
                return False

            until(has_port)
            child.send_signal(signal.SIGKILL)
        until(lambda: service.attached(node=0) == 0)
        assert not has_port()
        until(lambda: service.counters(node=0)["ending_regions"] == 0)
        service.hang_up(node=0)
    print("a killed application", flush=True)


def race(fabric: str) -> None:
    """A table on virtual queue pairs of reliable connections."""
    with rd.Cluster.local(nodes=3, fabric=fabric, mode="thread") as cluster:
        load = rd.workload.KrcoreRace(
            system="krcore", transport="rc", clients=2, keys=200, iterations=200
        )
        result = cluster.run(load, duration_s=100, timeout_s=600)
        print(f"RACE: {result.value('rate'):.0f} op/s", flush=True)


def main(fabric: str = "verbs") -> None:
    """Run all."""
    with rd.Cluster.local(nodes=3, fabric=fabric, mode="thread") as cluster:
        service = rd.krcore.Service(cluster, arena_bytes=8 << 20, lease_s=0.1)
        connects(service)
        data(service)
        killed(service)
    race(fabric)
    print("all good")


if __name__ == "__main__":
    main(*sys.argv[1:])
