"""Two threads that settle one log: a retirement in the background, and a close or a long batch."""

from __future__ import annotations

import threading

import pytest

#: Seconds in which something that must not happen is given the chance to.
CHANCE = 0.2


class Gate:
    """Stops the first call of a disk's operation once its work is done, until told to go on."""

    def __init__(self, disk, operation: str) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        self._real = getattr(disk, operation)
        setattr(disk, operation, self._call)

    def _call(self, *args) -> None:
        self._real(*args)
        if not self.reached.is_set():
            self.reached.set()
            assert self.go.wait(30)


@pytest.fixture
def run():
    threads: list[threading.Thread] = []

    def start(work) -> threading.Event:
        done = threading.Event()
        threads.append(threading.Thread(target=lambda: (work(), done.set())))
        threads[-1].start()
        return done

    yield start
    for thread in threads:
        thread.join()


def test_F8_a_log_is_not_called_settled_while_its_names_are_still_being_synced(host, disk, run):
    host.create("s")
    host.commit("s")
    gate = Gate(disk, "fdatasync")
    run(host.logs["s"].store.settle)
    assert gate.reached.wait(30)
    settled = run(host.logs["s"].store.settle)
    early = settled.wait(CHANCE)
    gate.go.set()
    assert not early, "its record could be made void now, and its name could still be lost"


def test_F8_a_frame_placed_while_another_thread_settles_is_still_synced(host, disk, run):
    host.create("s")
    host.commit("s")
    store = host.logs["s"].store
    gate = Gate(disk, "fdatasync")
    first = run(store.settle)
    assert gate.reached.wait(30)
    second = run(store.settle)
    second.wait(CHANCE)
    host.commit("s", text="later")
    disk.calls.clear()
    gate.go.set()
    assert first.wait(30)
    assert second.wait(30)
    store.settle()
    assert ("fdatasync", host.file("s").name) in disk.calls, "the frame was forgotten"
