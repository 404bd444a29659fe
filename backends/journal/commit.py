"""Group commit: batches of many logs, one record, one sync; then each into its own file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..errors import InterlockError
from ..log import Item
from .record import Entry
from .store import JournaledStore
from .writer import Journal


class _Ready:
    __slots__ = ("entry", "index", "store")

    def __init__(self, index: int, store: JournaledStore, entry: Entry) -> None:
        self.index = index
        self.store = store
        self.entry = entry


def commit(journal: Journal, items: Sequence[Item]) -> list[int | InterlockError]:
    """Make batches durable and return, for each, its last durable seq or why it is not.

    One log's refusal does not touch the others (L17). What is too long for a record goes
    into several of its own. One call at a time; the commit thread.
    """
    outcomes: list[int | InterlockError] = []
    ready: list[_Ready] = []
    for log, batch in items:
        last = batch.last_seq if batch is not None else log.durable_seq
        outcomes.append(last)
        store = cast(JournaledStore, log.store)
        try:
            data, spills = log.encoded(batch)
            if len(data) > journal.entry_limit:
                store.write(data, spills)
            elif data or not store.published:
                ready.append(_Ready(len(outcomes) - 1, store, store.prepare(data, spills)))
        except InterlockError as error:
            outcomes[-1] = error
    start = 0
    for count in journal.chunks([r.entry for r in ready]):
        _commit_record(journal, ready[start : start + count], outcomes)
        start += count
    return outcomes


def _commit_record(
    journal: Journal, ready: list[_Ready], outcomes: list[int | InterlockError]
) -> None:
    with journal.committing:
        try:
            # The commit point of every batch in here.
            journal.append([r.entry for r in ready], [r.store for r in ready])
        except OSError as error:
            for r in ready:
                outcomes[r.index] = r.store.withdraw(error)
            return
        for r in ready:
            try:
                r.store.place(r.entry)
            except InterlockError as error:
                outcomes[r.index] = error
