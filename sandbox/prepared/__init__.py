"""The code of the launcher's own processes: it starts, watches and ends confined commands.

It runs as ``python -I -S -E`` and imports nothing but the standard library's smallest modules. It
travels as sealed bytes (`interlock.sandbox.launcher`), so that no workspace can replace it.
"""
