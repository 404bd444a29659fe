"""Gates, guards and post hooks that are data: they run in the dispatcher, with no user code.

``pieces.py`` is what they are, ``matching.py`` which calls they mean, ``meters.py`` what they
count, ``earlier.py`` how that is found again in a log, ``judge.py`` how they decide together.
"""
