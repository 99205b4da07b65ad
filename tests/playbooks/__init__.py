"""The playbooks, on hosts of the test bed."""
