"""Hosting many agents at once: what a file describes, the tools it may name, live progress."""
