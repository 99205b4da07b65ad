"""Hosts of a testbed: the inventory, a daemon on each host, and clusters of nodes on them.

1. `inventory` reads Ansible's file.
2. `fleet` starts a daemon on each host (`host`, `channel`) and notices hosts that fall silent.
3. `daemon` runs there: it starts node processes (`pyrdma._node`), forwards their messages, and
   answers calls (`calls`): sessions, clocks, facts and counters.
4. `cluster` places the nodes of a cluster on the hosts; `clocks` puts them on one scale of time.
"""
