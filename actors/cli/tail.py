"""``sessions tail``: the last events of a log, and what comes after them while it is written."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable

from interlock.backends.event import Event, encode_line, to_json

from .follow import Follower
from .locate import Found
from .output import CommandFailed, clean, emit, moment, one_line
from .reader import Log
from .story import note_text, text_of

#: Seconds between two looks at a file that is followed.
INTERVAL = 0.1
#: Characters of an event that its line shows.
SHOWN = 200


def tail(found: Found, count: int, *, follow: bool, as_json: bool) -> None:
    """Print the last ``count`` events; with ``follow``, then every new one until Ctrl-C.

    With both ``follow`` and ``as_json`` each event is one line of JSON, as it comes.
    """
    log = Log(found)
    last = deque(log.events(max(0, log.good - count)), maxlen=count) if count else deque[Event]()
    if as_json and not follow:
        emit({"id": log.header.id, "events": [to_json(event) for event in last]})
    else:
        _print(last, as_json)
    if log.refused is not None:
        raise CommandFailed(str(log.refused))
    if follow:
        _follow(Follower(found.path, log.good), as_json)


def summary(event: Event) -> str:
    """Return one event in one line: seq, time, type and what it says."""
    return f"{event.seq:>6}  {moment(event.time)}  {event.type:<18} {one_line(_says(event), SHOWN)}"


def _follow(follower: Follower, as_json: bool) -> None:
    try:
        while True:
            _print(follower.poll(), as_json)
            time.sleep(INTERVAL)
    except KeyboardInterrupt:
        # Ctrl-C is how following ends: nothing failed.
        return
    finally:
        follower.close()


def _print(events: Iterable[Event], as_json: bool) -> None:
    for event in events:
        if as_json:
            sys.stdout.write(encode_line(event).decode("utf-8", "surrogatepass"))
        else:
            sys.stdout.write(f"{clean(summary(event))}\n")
    sys.stdout.flush()


def _says(event: Event) -> str:
    data = event.data
    if event.type in ("turn/start", "step/start", "step/end"):
        return " ".join(f"{key} {data[key]}" for key in ("turn", "step") if key in data)
    if event.type == "turn/end":
        return f"turn {data['turn']} {data['reason'].get('kind')}"
    if event.type == "user/message":
        return text_of(data["content"])
    if event.type in ("assistant/message", "system/message"):
        content = data["message"]["content"]
        calls = [f"[{b['name']} {b['id']}]" for b in content if b.get("type") == "tool-call"]
        return " ".join([text_of(content), *calls])
    if event.type == "tool/call":
        return f"{data['callId']} {data['name']} {data['arguments']}"
    if event.type == "tool/result":
        block, error = data["message"]["content"][0], data.get("error")
        word = error["code"] if error else "ERROR" if block.get("isError") else "OK"
        return f"{data['message']['source']['callId']} {word} {text_of(block['content'])}"
    return note_text(event)
