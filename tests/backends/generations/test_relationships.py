"""The rules between events that a migrated log must keep: one broken rule refuses it."""

from __future__ import annotations

import copy

import pytest


@pytest.fixture
def answer(old):
    def answer(*blocks, **more):
        made = old.answer(*blocks, **more)
        made["data"]["stream"] = []
        return made

    return answer


def _cases(old, answer):
    start, step, end = old.turn(), old.step(), old.step_end()
    tool = answer(old.tool("c"))
    retry = old.event(
        "llm/retry",
        retryId="r",
        turn=1,
        step=1,
        provider="p",
        mode="always",
        policyKey="k",
        retry=1,
        delayMs=0,
        failure={"message": "m", "code": "C"},
    )
    started = old.event("llm/retry-started", retryId="r", turn=1, step=1, retry=1)
    second, other = copy.deepcopy(retry), copy.deepcopy(retry)
    second["data"] |= {"retry": 2}
    other["data"] |= {"policyKey": "k2"}
    ids = {"rootCallId": "r", "parentCallId": "r", "subCallId": "s", "name": "n", "arguments": {}}
    dispatch = old.event("tool/code-dispatch-start", **ids)
    done = old.event("tool/code-dispatch", **ids, isError=False, content=[])
    run = old.event("command/run", commandId="c", name="n", source={"kind": "user"})
    ended = old.event("command/done", commandId="c", kind="success")
    compaction = old.event("compaction/start", compactionId="c", turn=1)
    over = old.event("compaction/end", compactionId="c", turn=1, error="e")
    well = old.event("compaction/end", compactionId="c", turn=1)
    title = old.event("session/title", title="t", messageSeqs=[2], source={"kind": "fallback"})
    plugin = old.user("p")
    plugin["data"]["source"] = {"kind": "plugin", "plugin": "x"}
    request = old.request()
    return {
        "turn/start 2 does not open": [old.turn(2)],
        "ends no open turn": [start, old.turn_end(2)],
        "stands inside a step": [start, step, old.turn_end()],
        "not the open turn's next step": [start, old.step(2)],
        "turn/end leaves call 'c'": [start, step, tool, old.turn_end()],
        "step/end leaves call 'c'": [start, step, tool, old.call("c"), end],
        "step/end is not in the open": [start, old.step_end()],
        "assistant/message is not in the open": [start, step, answer(turn=2)],
        "is advertised again": [start, step, tool, tool],
        "is no advertised call": [start, step, old.call("c")],
        "answers no advertised call": [start, step, old.result("c")],
        "no exact TOOL_NOT_STARTED": [start, step, tool, old.result("c")],
        "request/header stands outside": [request],
        "request/context stands outside": [old.event("request/context", provider="p", model="m")],
        "not of the current turn": [start, step, end, old.turn_end(), retry],
        "another provider": [start, step, retry],
        "should be number 1": [start, step, request, second],
        "should be number 2": [start, step, request, retry, retry],
        "one retryId": [start, step, request, retry, other],
        "answers no scheduled retry": [start, step, request, retry, started, started],
        "dispatch-start stands outside": [dispatch],
        "starts twice": [start, dispatch, dispatch],
        "that did not start": [start, done],
        "or other than it did": [start, dispatch, done, done],
        "runs twice": [run, run],
        "did not run": [ended],
        "another compaction is open": [start, compaction, compaction],
        "another turn than the open one": [compaction],
        "belongs to no open compaction": [start, over],
        "without a summary": [start, compaction, well],
        "turn/end crosses an open compaction": [start, compaction, old.turn_end()],
        "no message of a person": [start, step, plugin, title],
    }


def test_a_broken_rule_refuses_the_migration(refusal, old, answer):
    cases = _cases(old, answer)
    reasons = {word: refusal(2, rows) for word, rows in cases.items()}
    assert [word for word, reason in reasons.items() if word not in reason] == []


def test_a_compaction_that_a_seeds_end_leaves_behind_is_forgiven(current, old):
    compaction = old.event("compaction/start", compactionId="c", turn=1)
    rows = [old.turn(), compaction, old.turn_end(), old.turn(2), old.event("session/end-seed")]
    assert len(current(2, rows)) == 5


def test_an_approval_outside_a_turn_is_nobodys_fault(current, old):
    # Interlock appends no such thing, and the harness's restorer does not mind it.
    rows = [old.event("approval/asked", id="a", toolName="t")]
    assert len(current(2, rows)) == 1


def test_a_retry_after_the_step_belongs_to_it(current, old, answer):
    rows = _cases(old, answer)["should be number 2"][:4]
    rows.insert(3, old.step_end())
    assert current(2, rows)[-1]["type"] == "llm/retry"
