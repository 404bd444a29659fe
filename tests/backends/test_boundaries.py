"""What the package may lean on."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import importlib, pkgutil, sys
import interlock.backends as package
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"interlock.backends.{module.name}")
print(*sorted(name for name in sys.modules if name.split(".")[0] in BANNED or name in PARTS))
"""
BANNED = {"pydantic", "zmq", "pykka", "cloudpickle", "typer", "rich"}
PARTS = {"interlock.actors", "interlock.sandbox"}


def test_the_log_needs_no_actor_no_sandbox_and_nothing_heavy():
    script = f"BANNED, PARTS = {BANNED!r}, {PARTS!r}\n{SCRIPT}"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert out.stdout.split() == []
