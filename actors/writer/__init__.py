"""The session writer: owns every open log, its ``seq``, pending events, windows, files and locks.

``core.py`` decides, ``session.py`` holds what one open session needs, ``streams.py`` serves
subscribers, ``actor.py`` is the shell.
"""
