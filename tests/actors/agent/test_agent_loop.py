"""The agent loop, sync and async, on a session in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from agent_memory_session import AsyncMemorySession, MemorySession
from interlock.actors.agent import (
    Agent,
    AgentOutcome,
    AsyncAgent,
    Chunk,
    ModelConfig,
    ModelRequest,
    Say,
    ScriptedModel,
    ScriptError,
    TextDelta,
)
from interlock.actors.agent.conversation import MAX_STEPS
from interlock.actors.tools import tool
from interlock.backends.codes import Code
from interlock.backends.errors import LogError

WAIT = 30
Run = Callable[..., AgentOutcome]


def run_sync(session: MemorySession, model: Any, prompt: str, **options: Any) -> AgentOutcome:
    return Agent(session, model, **options).run(prompt)


def run_async(session: MemorySession, model: Any, prompt: str, **options: Any) -> AgentOutcome:
    agent = AsyncAgent(AsyncMemorySession(session), model, **options)
    return asyncio.run(agent.run(prompt))


both = pytest.mark.parametrize("run", [run_sync, run_async])

SCRIPT = [
    Say(text="Looking.", calls=[("ls", {"path": "."}), ("cat", '{"path":"a"}')], reasoning="Hm."),
    Say(text="There are two."),
]


class Failing:
    """A model that says something and then raises."""

    config = ModelConfig(provider="p", model="m")

    def __init__(self, error: BaseException | None) -> None:
        self.error = error

    def stream(self, request: ModelRequest) -> Iterator[Chunk]:
        yield TextDelta(0, "Let me")
        if self.error is not None:
            raise self.error

    async def astream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        for chunk in self.stream(request):
            yield chunk


@tool(effect="read")
def ls(path: str) -> str:
    """List a directory."""
    return path


@both
def test_a_turn_runs_until_the_model_calls_nothing(run: Run) -> None:
    session = MemorySession(tools=[ls.spec])
    outcome = run(session, ScriptedModel(SCRIPT), "What is there?", system="Be brief.")
    assert outcome.completed
    assert (outcome.turn, outcome.steps, outcome.text) == (1, 2, "There are two.")
    assert [(r.call_id, r.name, r.value) for r in outcome.results] == [
        ("call_1_1", "ls", "ls ok"),
        ("call_1_2", "cat", "cat ok"),
    ]
    assert session.types() == [
        "turn/start",
        "step/start",
        "system/message",
        "user/message",
        "request/header",
        "request/context",
        "assistant/message",
        "tool/result",
        "tool/result",
        "step/end",
        "step/start",
        "assistant/message",
        "step/end",
        "turn/end",
    ]
    header = session.rows[4].data
    assert header["reason"] == "initial"
    assert header["header"]["config"] == {"provider": "scripted", "model": "scripted-1"}
    assert header["header"]["tools"][0]["name"] == "ls"
    assert header["header"]["tools"][0]["parameters"]["required"] == ["path"]
    assert session.rows[-1].data["reason"] == {"kind": "completed"}


@both
def test_K1_the_request_leaves_only_after_everything_before_it_is_durable(run: Run) -> None:
    session = MemorySession()
    seen: list[tuple[int, int]] = []

    def script(request: ModelRequest) -> Say:
        seen.append((session.durable, len(session.rows)))
        return SCRIPT[1]

    run(session, ScriptedModel(script), "x", system="s")
    assert seen == [(6, 6)]


@both
def test_K3_without_durability_no_request_leaves(run: Run) -> None:
    session = MemorySession()
    asked: list[ModelRequest] = []

    def script(request: ModelRequest) -> Say:
        asked.append(request)
        return SCRIPT[1]

    class Session(MemorySession):
        flushes = 0

        def flush(self) -> None:
            self.flushes += 1
            if self.flushes == 2:  # the first is the step's own barrier
                raise LogError(Code.LOG_WRITE_FAILED, "disk full")
            super().flush()

    session = Session()
    with pytest.raises(LogError, match="disk full"):
        run(session, ScriptedModel(script), "x")
    assert asked == []
    assert session.types()[-2:] == ["step/end", "turn/end"]


@both
def test_the_model_sees_the_results_in_model_order(run: Run) -> None:
    requests: list[ModelRequest] = []

    def script(request: ModelRequest) -> Say:
        requests.append(request)
        return SCRIPT[len(requests) - 1]

    # The session of these tests records results in reverse.
    run(MemorySession(), ScriptedModel(script), "What is there?", system="Be brief.")
    assert requests[0].system == "Be brief."
    assert [m.role for m in requests[1].messages] == ["user", "assistant", "user"]
    ids = [block["toolCallId"] for block in requests[1].messages[2].content]
    assert ids == ["call_1_1", "call_1_2"]


@both
@pytest.mark.parametrize(
    ("error", "code"),
    [(ValueError("no"), "ValueError"), (LogError(Code.EVENT_INVALID, "x"), "EVENT_INVALID")],
)
def test_a_failing_model_ends_the_turn_and_its_words_are_an_attempt(
    run: Run, error: Exception, code: str
) -> None:
    session = MemorySession()
    outcome = run(session, Failing(error), "x")
    assert outcome.reason["kind"] == "error"
    assert outcome.reason["error"]["code"] == code
    assert not outcome.completed
    assert session.types()[-3:] == ["assistant/attempt", "step/end", "turn/end"]
    assert session.rows[-3].data["stream"][0]["texts"] == ["Let me"]


@both
def test_a_stream_that_just_ends_is_a_failure(run: Run) -> None:
    outcome = run(MemorySession(), Failing(None), "x")
    assert outcome.reason["error"]["code"] == "STREAM_CUT"


@both
def test_a_scripted_failure_is_one(run: Run) -> None:
    outcome = run(MemorySession(), ScriptedModel([Say(text="Hello", error="overloaded")]), "x")
    assert outcome.reason["error"]["code"] == "SCRIPTED_FAILURE"
    assert "overloaded" in outcome.reason["error"]["message"]


@both
def test_an_agent_that_never_stops_calling_is_stopped(run: Run) -> None:
    session = MemorySession()
    outcome = run(session, ScriptedModel(lambda request: Say(calls=[("ls", {})])), "x")
    assert outcome.steps == MAX_STEPS
    assert outcome.reason["error"]["code"] == "STEP_LIMIT"
    assert len(outcome.results) == MAX_STEPS


@both
def test_a_second_turn_knows_the_first_and_repeats_no_header(run: Run) -> None:
    session = MemorySession()
    model = ScriptedModel([SCRIPT[1], Say(text="Again.")])
    run(session, model, "one", system="s")
    first = session.types()
    outcome = run(session, model, "two", system="s")
    assert (outcome.turn, outcome.text) == (2, "Again.")
    second = session.types()[len(first) :]
    assert "system/message" not in second
    # Another agent object: the log says that its requests resume the session.
    headers = [row.data["reason"] for row in session.rows if row.type == "request/header"]
    assert headers == ["initial", "resume"]


def test_one_agent_writes_its_header_again_only_when_it_changes() -> None:
    session = MemorySession()
    agent = Agent(session, ScriptedModel([]))
    agent.run("one")
    agent.run("two")
    session.tools = [ls.spec]
    agent.run("three")
    headers = [row.data["reason"] for row in session.rows if row.type == "request/header"]
    assert headers == ["initial", "change"]


@both
def test_a_changed_system_prompt_replaces_the_head(run: Run) -> None:
    session = MemorySession()
    run(session, ScriptedModel([]), "one", system="first")
    run(session, ScriptedModel([]), "two", system="second")
    heads = [row for row in session.rows if row.type == "system/message"]
    assert heads[0].surface_op == "append"
    assert heads[1].surface_op.start_seq == heads[1].surface_op.end_seq == heads[0].seq
    assert heads[1].sources == (heads[0].seq,)


@both
def test_a_session_that_began_without_a_system_prompt_never_gets_one_in_its_log(run: Run) -> None:
    session = MemorySession()
    run(session, ScriptedModel([]), "one")
    seen: list[str] = []

    def script(request: ModelRequest) -> Say:
        seen.append(request.system)
        return Say(text="ok")

    run(session, ScriptedModel(script), "two", system="late")
    assert "system/message" not in session.types()
    assert seen == ["late"]


def test_P4_stop_cuts_the_model_off_and_records_what_it_said() -> None:
    session = MemorySession()
    agent: Agent

    def on_chunk(chunk: Chunk) -> None:
        if isinstance(chunk, TextDelta):
            agent.stop()

    agent = Agent(session, ScriptedModel(SCRIPT), on_chunk=on_chunk)
    outcome = agent.run("x")
    assert outcome.reason == {"kind": "aborted", "reason": {"kind": "user"}}
    message = next(row for row in session.rows if row.type == "assistant/message")
    assert message.data["interrupted"] is True
    assert [b["type"] for b in message.data["message"]["content"]] == ["reasoning", "text"]
    assert "tool/result" not in session.types()


def test_P4_stop_cancels_the_calls_of_the_step() -> None:
    ran: list[str] = []
    agent: Agent

    def body(name: str, arguments: Any) -> str:
        ran.append(name)
        agent.stop()
        return name

    session = MemorySession(body=body)
    agent = Agent(session, ScriptedModel(SCRIPT))
    outcome = agent.run("x")
    assert ran == ["cat"]  # the session of these tests runs them in reverse
    assert [r.code for r in outcome.results] == ["ABORTED_BEFORE_DISPATCH", None]
    assert outcome.reason["kind"] == "aborted"


def test_P4_ctrl_c_records_what_was_heard_and_goes_on_its_way() -> None:
    session = MemorySession()
    with pytest.raises(KeyboardInterrupt):
        run_sync(session, Failing(KeyboardInterrupt()), "x")
    assert session.types()[-3:] == ["assistant/message", "step/end", "turn/end"]
    assert session.rows[-3].data["interrupted"] is True


def test_P4_a_cancelled_task_records_what_was_heard() -> None:
    class Slow(Failing):
        async def astream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
            yield TextDelta(0, "Let me")
            started.set()
            await asyncio.Event().wait()

    session = MemorySession()
    started = asyncio.Event()

    async def main() -> None:
        agent = AsyncAgent(AsyncMemorySession(session), Slow(None))
        task = asyncio.create_task(agent.run("x"))
        await asyncio.wait_for(started.wait(), WAIT)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert session.types()[-3:] == ["assistant/message", "step/end", "turn/end"]
    assert session.rows[-1].data["reason"]["kind"] == "aborted"


def test_a_failing_watcher_is_not_taken_for_the_model() -> None:
    def on_chunk(chunk: Chunk) -> None:
        raise ValueError("watcher")

    with pytest.raises(ValueError, match="watcher"):
        run_sync(MemorySession(), ScriptedModel(SCRIPT), "x", on_chunk=on_chunk)


def test_one_scripted_model_serves_many_agents_and_a_resumed_one() -> None:
    model = ScriptedModel([Say(text="1"), Say(text="2")], closing="over")
    sessions = [MemorySession() for _ in range(8)]

    def run(session: MemorySession) -> None:
        for _ in range(3):
            run_sync(session, model, "go")  # a new agent each time, as after a resume

    threads = [threading.Thread(target=run, args=[session]) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    for session in sessions:
        said = [
            r.data["message"]["content"][0]["text"] for r in session.rows if "assistant" in r.type
        ]
        assert said == ["1", "2", "over"]


def test_a_script_is_read_from_tables() -> None:
    model = ScriptedModel.from_table(
        [{"text": "a", "calls": [{"tool": "ls", "arguments": {"path": "é"}}, {"tool": "now"}]}, {}],
        closing="end",
    )
    session = MemorySession()
    outcome = run_sync(session, model, "x")
    assert [r.call_id for r in outcome.results] == ["call_1_1", "call_1_2"]
    message = next(row for row in session.rows if row.type == "assistant/message")
    assert message.data["message"]["content"][1]["arguments"] == '{"path":"é"}'


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([{}, {"txt": "x"}], "step 2 of the script has 'txt'"),
        ([{"text": 3}], "step 1 of the script: text is int"),
        ([{"pause": True}], "pause is bool"),
        (["x"], "step 1 of the script is str"),
        ([{"calls": [{"arguments": {}}]}], "call 1 in step 1 of the script names no tool"),
        ([{"calls": [{"tool": "x", "args": {}}]}], "has 'args'"),
    ],
)
def test_a_bad_script_names_the_place(steps: list[Any], words: str) -> None:
    with pytest.raises(ScriptError, match=words):
        ScriptedModel.from_table(steps)
