"""Crash states: every disk that a power cut could leave, and what Interlock makes of each.

A workload runs on a machine in memory (:mod:`.machine`) that knows which bytes and which names
would survive. At each file operation :mod:`.cut` works out the disks that a power cut could leave
there, :mod:`.recovery` opens each of them, and :mod:`.notes` says whether everything that the
client was told is there. ``python -m tests.crash --help``; ``docs/crash-states.md`` states the
assumptions.
"""
