"""A test bed: hosts made of namespaces, with sshd; see bed.py."""
