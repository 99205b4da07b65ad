"""What the hosts of a cluster get: wheels, and one archive with all that a node runs.

A node needs no pip, no compiler and no network. Everything is resolved and unpacked here.
"""
