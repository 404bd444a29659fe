"""The DeepSeek Harness's own packages from npm, in one Node process that is told what to run."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .slices import Load, Slice

#: Seconds that the installation may take, and that Node may be silent beyond a slice.
PATIENCE = 300.0

_PACKAGE = {
    "private": True,
    "type": "module",
    "dependencies": {
        "@deepseek-ai/cordis": "4.0.2",
        "@deepseek-ai/dsh-session": "0.1.0-rc.8",
        "@deepseek-ai/dsh-session-persistence-jsonl": "0.1.0-rc.8",
        "node": "24",
    },
}

_PROGRAM = """
import { createInterface } from 'node:readline'
import { Context } from '@deepseek-ai/cordis'
import SessionStore, { SessionId } from '@deepseek-ai/dsh-session'
import Jsonl from '@deepseek-ai/dsh-session-persistence-jsonl'

const context = new Context()
await context.plugin(SessionStore)
await context.plugin(Jsonl, { root: process.argv[2], compression: 'zstd' })
const open = []
async function session(number) {
  while (open.length <= number) {
    const made = context.sessions.create(SessionId('s' + open.length))
    made.append('turn/start', { turn: 1 })
    made.append('step/start', { turn: 1, step: 1 })
    await context.sessions.flush(made)
    open.push(made)
  }
  return open[number]
}
let calls = 0
async function client(one, until, took) {
  do {
    const command = JSON.stringify({ command: 'ls -la ' + calls })
    const call = { turn: 1, step: 1, callId: 'c' + calls++, name: 'bash', arguments: command }
    const begin = process.hrtime.bigint()
    one.append('tool/call', call)
    await context.sessions.flush(one)
    took.push(Number(process.hrtime.bigint() - begin))
  } while (performance.now() < until)
}
console.log('ready')
for await (const line of createInterface({ input: process.stdin })) {
  const { sessions, seconds } = JSON.parse(line)
  const clients = []
  for (let number = 0; number < sessions; number++) clients.push(await session(number))
  const took = []
  const begin = process.hrtime.bigint()
  const until = performance.now() + seconds * 1000
  await Promise.all(clients.map((one) => client(one, until, took)))
  console.log(JSON.stringify({ took, elapsed: Number(process.hrtime.bigint() - begin) }))
}
await context.fiber.dispose()
"""


class NotThereError(Exception):
    """The peer cannot be measured here; says why."""


@contextmanager
def harness_loads(root: Path, counts: list[int]) -> Iterator[dict[int, Load]]:
    """A load for each number of sessions, each event flushed by the harness in its own process.

    An acknowledged flush has been synced. Raises :class:`NotThereError` where npm is not there or
    cannot install the packages.
    """
    home = _install()
    logs = root / "peer-harness"
    logs.mkdir()
    node = subprocess.Popen(
        [home / "node_modules" / ".bin" / "node", home / "flush.mjs", logs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        _hear(node)
        yield {count: _load(node, count) for count in counts}
    finally:
        node.kill()
        node.communicate()


def _load(node: subprocess.Popen[str], sessions: int) -> Load:
    def load(seconds: float) -> Slice:
        if node.stdin is None:
            raise NotThereError("Node has no input")
        node.stdin.write(json.dumps({"sessions": sessions, "seconds": seconds}) + "\n")
        node.stdin.flush()
        told: dict[str, Any] = json.loads(_hear(node))
        done = Slice()
        for took in told["took"]:
            done.latency.record(took)
            done.cycle.record(took)
        done.elapsed_ns = told["elapsed"]
        return done

    return load


def _hear(node: subprocess.Popen[str]) -> str:
    line = node.stdout.readline() if node.stdout is not None else ""
    if not line:
        raise NotThereError(f"the harness's process has ended with {node.wait()}")
    return line


def _install() -> Path:
    """Return where the packages are, installed once for this user."""
    if shutil.which("npm") is None:
        raise NotThereError("npm is not there")
    package = json.dumps(_PACKAGE)
    digest = hashlib.sha256((package + _PROGRAM).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "interlock" / f"harness-{digest}"
    if (home / "ready").exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    (home / "package.json").write_text(package)
    (home / "flush.mjs").write_text(_PROGRAM)
    try:
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"],
            cwd=home,
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )
    except subprocess.SubprocessError as error:
        raise NotThereError(f"npm cannot install the harness's packages: {error}") from error
    (home / "ready").touch()
    return home
