"""Corosync's closed process groups: multicast in agreed order between two daemons of this machine.

Each of two nodes has a daemon and a member, ``corosync.c`` beside this file. Both members send, and
both are given all messages in one order, which they compare. ``rate_SIZE`` is the number of
messages of `SIZE` bytes that a member is given per second, its own included.

Two daemons cannot share a network: their clients find a daemon by the name of an abstract socket,
which belongs to the network and not to a folder. So each node is a network namespace, and a virtual
wire connects the two. The namespaces are those of a user without rights, so this needs no root, and
a daemon of this machine's own stays as it is. All files lie in a private folder or in file systems
that end with the namespaces; the daemons end with the first process in them.

The transport is knet without encryption. Its packets are as large as the wire takes, and more of
them than usual are under way (``window_size``, ``max_messages``): that gives 1.3 times the messages
of 1 KiB, and three times those of 10 KiB. Sending without a copy is faster for large messages in
some runs only, and slower for small ones. No process is pinned, since four share the CPUs, and none
has a special priority.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pyrdma.bench.peer import (
    Availability,
    PeerError,
    chosen,
    compiled,
    has_header,
    missing_tools,
    output_of,
    shared_memory_folder,
)

NAME = "Corosync"
INSTALL_COMMAND = "apt-get install corosync libcpg-dev iproute2 g++"
NODES = 2
SIZES = (1024, 10240)

MEASUREMENTS = {f"rate_{size}": "op/s" for size in SIZES}

_MTU = 65535
_OUTSIDE = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork"]
_OUTSIDE += ["--kill-child"]
_PROBE = "mount -t tmpfs none /dev/shm && ip link add n1 type veth peer name n2"

_CONFIGURATION = """
totem {
    version: 2
    cluster_name: pyrdma
    transport: knet
    crypto_cipher: none
    crypto_hash: none
    merge: 30
    window_size: 300
    max_messages: 100
    knet_mtu: %d
    interface {
        linknumber: 0
        knet_ping_interval: 20
        knet_ping_timeout: 5000
        knet_pong_count: 1
    }
}
quorum {
}
system {
    sched_rr: no
    move_to_root_cgroup: no
    allow_knet_handle_fallback: yes
    state_dir: /run
}
logging {
    to_stderr: no
    to_syslog: no
    to_logfile: yes
    logfile: /run/log
    logfile_priority: warning
}
"""
_NODE = """
    node {
        name: n%d
        nodeid: %d
        ring0_addr: 10.0.0.%d
    }
"""

# The second node's process makes the wire, since it alone knows when its namespace is there. The
# process that starts both is the first of its namespace, and on the wire's other end.
_START_NODES = """
node=$1 folder=$2
shift 2
unshare --mount --net sh -ec "$node" sh 2 "$folder" "$@" &
second=$!
unshare --mount sh -ec "$node" sh 1 "$folder" "$@" &
first=$!
wait "$first" || exit
wait "$second"
"""
_START_NODE = """
number=$1 folder=$2 mtu=$3 daemon=$4
shift 4
ip link set lo up
[ "$number" = 1 ] || ip link add n2 type veth peer name n1 netns 1
tries=0
until ip link set "n$number" mtu "$mtu" up 2>/dev/null; do
  tries=$((tries + 1))
  [ "$tries" -lt 500 ] || { echo "no wire to node $number" >&2; exit 1; }
  sleep 0.01
done
ip addr add "10.0.0.$number/24" dev "n$number"
mount --bind "$folder/$number" /run
mount -t tmpfs none /dev/shm
"$daemon" -f -c /run/corosync.conf >&2 &
exec "$@"
"""


def _daemon() -> str | None:
    # A user's PATH may lack the folder of the daemons.
    return shutil.which("corosync", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def available() -> Availability:
    """Return whether the daemon is here, a member can be compiled, and namespaces can be made."""
    tools = missing_tools(["g++", "gcc", "ip", "mount", "timeout", "unshare"], INSTALL_COMMAND)
    if not tools.ok:
        return tools
    if _daemon() is None:
        return Availability(False, "not on PATH: corosync", INSTALL_COMMAND)
    if not has_header("corosync/cpg.h"):
        return Availability(False, "the header corosync/cpg.h is missing", INSTALL_COMMAND)
    probe = subprocess.run(
        [*_OUTSIDE, "sh", "-c", _PROBE], capture_output=True, text=True, check=False, timeout=20
    )
    if probe.returncode != 0:
        said = " ".join(probe.stderr.split()) or f"exit status {probe.returncode}"
        reason = f"this user may not make network namespaces with a wire between them: {said}"
        return Availability(False, reason, "sysctl user.max_user_namespaces=10000")
    return Availability(True, "", INSTALL_COMMAND)


def agreed_rate(text: str) -> float:
    """Return the lowest rate of the members, each of which has printed a line.

    Raises
    ------
    PeerError
        A line is missing, or the members do not agree on the messages and their order.
    """
    rows = [line.split()[1:] for line in text.splitlines() if line.startswith("member ")]
    if {row[0] for row in rows} != {str(node) for node in range(1, NODES + 1)}:
        raise PeerError(f"{NODES} members of Corosync should print a line each:\n{text}")
    if len({tuple(row[2:]) for row in rows}) != 1:
        raise PeerError(f"the members of Corosync were given messages in different orders:\n{text}")
    return min(float(row[1]) for row in rows)


def _last_words(folder: Path) -> str:
    logs = sorted(folder.glob("*/log"))
    return "\n".join(line for log in logs for line in log.read_text().splitlines()[-4:])


def _rate(program: Path, size: int, seconds: float) -> float:
    daemon = _daemon()
    if daemon is None:
        raise PeerError(f"corosync is not on PATH; to get it: {INSTALL_COMMAND}")
    nodes = [str(node) for node in range(1, NODES + 1)]
    listed = "".join(_NODE.replace("%d", node) for node in nodes)
    with shared_memory_folder() as folder:
        for node in nodes:
            (folder / node).mkdir()
            text = f"{_CONFIGURATION % _MTU}nodelist {{{listed}}}\n"
            (folder / node / "corosync.conf").write_text(text, encoding="ascii")
        command = [*_OUTSIDE, "sh", "-c", _START_NODES, "sh", _START_NODE, str(folder), str(_MTU)]
        command += [daemon, str(program), str(size), f"{seconds:g}", str(NODES)]
        try:
            return agreed_rate(output_of(command))
        except PeerError as error:
            raise PeerError(
                f"{error}\nthe daemons' logs end with:\n{_last_words(folder)}"
            ) from error


def run(measurements: Sequence[str] | None = None, seconds: float = 0.5) -> dict[str, float]:
    """Compile the member if necessary, start the daemons, and measure."""
    names = chosen(measurements, MEASUREMENTS)
    source = Path(__file__).with_name("corosync.c")
    program = compiled(source, ["gcc", "-std=c11", "-O2"], ["-lcpg", "-lcorosync_common"])
    return {name: _rate(program, int(name.rpartition("_")[2]), seconds) for name in names}
