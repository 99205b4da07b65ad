"""Deliberate bugs: lists of wrong pieces of code, and the runner that tries each of them."""
