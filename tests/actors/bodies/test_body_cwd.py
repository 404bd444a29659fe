"""A body is told the session's working directory; its process runs elsewhere."""

import threading

from interlock.actors.bodies.runner import BodyDone, BodyJob, BodyRunner
from interlock.actors.tools import ToolContext, tool


@tool(effect="read")
def where(ctx: ToolContext) -> str:
    """Say where the session works."""
    return ctx.cwd


def test_I1_a_body_learns_the_working_directory_of_its_session() -> None:
    runner, ended, said = BodyRunner(), threading.Event(), []

    def done(result: BodyDone) -> None:
        said.append(result.outcome.value_object())
        ended.set()

    runner.start(BodyJob(number=1, tool=where, cwd="/srv/project"), done)
    assert ended.wait(10)
    assert said == ["/srv/project"]
    runner.close(1.0)
