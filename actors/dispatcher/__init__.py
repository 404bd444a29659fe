"""The tool dispatcher: owns the life of every call, the pipeline and the tool workers.

In the order in which a call meets them: ``step.py`` (the calls of one message, their groups),
``pipeline.py`` (the life of one call), ``approvals.py``, ``log.py`` (appends and checkpoints),
``bodies.py`` (releases, deadlines, results), ``workers.py`` (which process runs a body),
``core.py`` (messages in), ``actor.py`` (the shell).
"""
