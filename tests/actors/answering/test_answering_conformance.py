"""The conformance tests for answerers, run against every kind of answerer that is shipped."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from interlock.actors import Answering, ApprovalRequest, Route, Runtime
from interlock.actors.answering.conformance import AnswererConformance

pytestmark = [pytest.mark.slow]

PROGRAM = """
import sys
from interlock.actors import Answering
with Answering.connect(sys.argv[1], name="program") as desk:
    for request in desk.requests():
        match request.session_id.partition("-")[0]:
            case "allow":
                desk.allow(request)
            case "reject":
                desk.reject(request, note="no")
            case "broken":
                desk.failed(request)
"""


class Person:
    """Decides by the session's name; one that says nothing thinks until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def __call__(self, request: ApprovalRequest) -> bool:
        word = request.session_id.partition("-")[0]
        if word == "silent":
            self.let_go.wait(60)
        if word not in ("allow", "reject"):
            raise RuntimeError(f"I cannot decide {word}")
        return word == "allow"


class Callback(AnswererConformance):
    person: Person

    @pytest.fixture(autouse=True)
    def _one(self) -> Iterator[None]:
        self.person = Person()
        yield
        self.person.let_go.set()


class TestAFunction(Callback):
    def answerer(self) -> object:
        return [self.person, "external"]


class TestTwoFunctionsByRoute(Callback):
    def answerer(self) -> object:
        async def think(request: ApprovalRequest) -> str:
            return "allow" if self.person(request) else "reject"

        allows = Route(think, sessions=["allow*"], name="yes")
        return [allows, Route(self.person, sessions=["[!a]*"], name="no"), "external"]


class TestAProgram(AnswererConformance):
    @contextlib.contextmanager
    def joined(self, runtime: Runtime) -> Iterator[None]:
        program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(runtime.directory)])
        try:
            yield
        finally:
            program.kill()
            program.wait()


class Hasty(AnswererConformance):
    """An answerer that is wrong in a way: the tests must see it."""

    def __init__(self, wrong: str) -> None:
        self.wrong = wrong

    def answerer(self) -> object:
        return [self._decide, "external"] if self.wrong != "answers twice" else "external"

    def _decide(self, request: ApprovalRequest) -> bool:
        word = request.session_id.partition("-")[0]
        match self.wrong:
            case "allows everything":
                return True
            case "takes silence for a no":
                return word == "allow"
            case _:
                return True

    @contextlib.contextmanager
    def joined(self, runtime: Runtime) -> Iterator[None]:
        if self.wrong != "answers twice":
            yield
            return
        over = threading.Event()

        def run() -> None:
            with Answering.connect(runtime.directory) as desk:
                while not over.is_set():
                    request = desk.next(0.1)
                    if request is not None:
                        asked = desk._open[request.request]
                        word = "allow" if request.session_id.startswith("allow") else "reject"
                        for _ in range(2):
                            desk._broker.answer(asked, word, "")

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize(
    ("wrong", "test"),
    [
        ("allows everything", "test_A2_what_it_rejects_does_not_run"),
        ("takes silence for a no", "test_A3_while_it_says_nothing_nothing_is_allowed"),
        ("answers twice", "test_A2_of_many_at_once_each_gets_its_own_answer"),
    ],
)
def test_a_wrong_answerer_is_found(wrong: str, test: str, tmp_path) -> None:
    with pytest.raises(AssertionError):
        getattr(Hasty(wrong), test)(tmp_path)
