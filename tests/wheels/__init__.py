"""Wheels and bundles: what hosts of a cluster get."""
