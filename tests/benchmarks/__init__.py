"""Benchmarks: measured, never passed or failed."""
