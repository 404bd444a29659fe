"""What a durable flush and a whole call cost here, against the bare disk (``interlock bench``).

A benchmark is a closed loop: each client (a session, an agent) has one operation outstanding. The
floor, ``write`` and ``fdatasync`` appended to a growing file of the same file system, is measured
between the slices of ours in the same run, since only the ratio says something on another machine.
"""
