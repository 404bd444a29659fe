"""Logs that earlier generations of the harness wrote: read as they are, and carried over to v3.

A log is one of v0, v1, v2 or v3, and the highest-numbered file of a session is the log. Readers see
one current event stream: ``stored`` reads rows by the rules that all generations share, and each
edge (``v0_to_v1``, ``v1_to_v2``, ``v2_to_v3``) changes what its docstring says and nothing else.
``current`` chains them in memory and checks the result by ``relationships``. Opening to write
publishes that result beside the old file (``publish``), once another process has found it good
(``verify_copy``, ``replay``); the old file is never touched (L12, L13).
"""
