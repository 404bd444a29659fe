"""What people embed: the runtime, its sessions, turns and steps, sync and async.

``config.py`` (what a runtime is made of), ``start.py`` (how owners are started), ``host.py`` (the
host's actor: connections, supervision), ``bodies.py`` (the host's own bodies and judges),
``flow.py`` (one logic under both surfaces), ``session.py``, ``turn.py``, ``sync.py``, ``aio.py``.
"""

import logging

# A library does not print: who embeds it decides what becomes of its log lines.
logging.getLogger("interlock").addHandler(logging.NullHandler())
