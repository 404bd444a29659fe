"""Drives the benchmarks and keeps what they measured: ``python -m benchmarks``."""
