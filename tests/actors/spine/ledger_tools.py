"""A ledger outside of the runtime that takes each idempotency key once, and tools that use it."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from interlock.actors import CallRecord, Done, NotDone, ToolContext, Unknown, tool


def _hang(mark: str) -> None:
    Path(mark).touch()
    while True:
        time.sleep(0.01)


def charges(ledger: str | Path) -> dict[str, int]:
    """What was charged, by key, however often it was asked for."""
    with sqlite3.connect(ledger, timeout=30) as db:
        db.execute("create table if not exists charges (key text, cents int)")
        return dict(db.execute("select key, sum(cents) from charges group by key"))


def _charge(ledger: str, key: str, cents: int) -> None:
    with sqlite3.connect(ledger, timeout=30) as db:
        db.execute("create table if not exists charges (key text, cents int)")
        db.execute("insert into charges values (?, ?)", (key, cents))


@tool(effect="write")
def charge(ctx: ToolContext, ledger: str, cents: int, hang: str, mark: str) -> str:
    """Charge an account; hang before or after it."""
    if hang == "before":
        _hang(mark)
    _charge(ledger, ctx.idempotency_key, cents)
    if hang == "after":
        _hang(mark)
    return f"charged {cents}"


@charge.reconcile
def look_up(call: CallRecord) -> Done | NotDone | Unknown:
    """Ask the ledger."""
    if call.arguments["cents"] == 13:
        return Unknown("the ledger does not talk about 13")
    cents = charges(call.arguments["ledger"]).get(call.idempotency_key)
    if cents is None:
        return NotDone("the ledger has no such charge")
    return Done({"charged": cents, "attempts": call.attempts})


@tool(effect="write")
def blind(ledger: str, mark: str) -> str:
    """Change something that nobody can look up."""
    _charge(ledger, "blind", 1)
    _hang(mark)
    return "done"


@tool(effect="read")
def fetch(ctx: ToolContext, mark: str) -> dict[str, int]:
    """Read; hang the first time."""
    if ctx.attempt == 1:
        _hang(mark)
    return {"attempt": ctx.attempt}


@tool(effect="idempotent")
def put(ctx: ToolContext, ledger: str, mark: str) -> str:
    """Put something there; hang the first time, when it is there."""
    if ctx.idempotency_key not in charges(ledger):
        _charge(ledger, ctx.idempotency_key, 1)
    if ctx.attempt == 1:
        _hang(mark)
    return ctx.idempotency_key


@tool(effect="read", approval="ask")
def asked(ctx: ToolContext, mark: str) -> int:
    """Read what somebody must allow; hang the first time."""
    if ctx.attempt == 1:
        _hang(mark)
    return ctx.attempt


LEDGER_TOOLS = [charge, blind, fetch, put, asked]
