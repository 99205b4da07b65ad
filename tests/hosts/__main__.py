"""Makes hosts for use by hand, or runs one command with them.

    python -m tests.hosts [--count N] [--disk SIZE] [--systemd] [COMMAND...]

Without a command the hosts live until Ctrl-C. $PYRDMA_INVENTORY names their inventory.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys

from tests.hosts.bed import Hosts, why_not_here


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hosts", description=__doc__)
    parser.add_argument("--count", type=int, default=2, help="number of hosts; 2 by default")
    parser.add_argument("--disk", default="512m", help="what a host may write; 512m by default")
    parser.add_argument("--systemd", action="store_true", help="run systemd in each host")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if reason := why_not_here(options.systemd):
        print(f"hosts: skipped: {reason}", file=sys.stderr)
        return 77
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Hosts(options.count, disk=options.disk, systemd=options.systemd) as hosts:
            if options.command:
                environment = {**os.environ, "PYRDMA_INVENTORY": str(hosts.inventory)}
                return subprocess.run(options.command, env=environment, check=False).returncode
            print(f"inventory: {hosts.inventory}")
            print(shlex.join(hosts.ssh(hosts[0])), flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
