"""What counts in a dead writer's journal: made by hand, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from interlock.backends.disk import OsDisk
from interlock.backends.journal.contents import Contents, read_contents
from interlock.backends.journal.record import BLOCK, Entry, encode
from interlock.backends.journal.slot import Slot, encode_slot, segment_offset

WRITER = bytes(range(8))
SEGMENT = 4 * BLOCK


@pytest.fixture
def journal(tmp_path: Path):
    """Write an epoch: the lsns of its records, and the oldest that its header says is needed."""
    directory = tmp_path / WRITER.hex()
    directory.mkdir()

    def write(epoch: int, lsns: list[int], *, oldest: int = 1, from_lsn: int = 0) -> Contents:
        slot = Slot(WRITER, epoch, 0, epoch - 1, from_lsn, oldest, SEGMENT, (1, 2))
        data = bytearray(segment_offset(2, SEGMENT))
        data[:BLOCK] = encode_slot(slot)
        for i, lsn in enumerate(lsns):
            entry = Entry("p/s/log", b"h", lsn * 10, b"b", b"epoch %d" % epoch)
            record = encode(
                [entry],
                writer=WRITER,
                epoch=epoch,
                generation=1,
                lsn=lsn,
                durable=lsn - 1,
                oldest=oldest,
            )
            start = segment_offset(0, SEGMENT) + i * BLOCK
            data[start : start + len(record)] = record
        (directory / f"{epoch:08}.journal").write_bytes(data)
        return read_contents(directory, OsDisk())

    return write


def offsets(contents: Contents) -> list[int]:
    return [entry.offset // 10 for entry in contents.entries["p/s/log"]]


def test_records_count_in_order(journal):
    assert offsets(journal(1, [1, 2, 3])) == [1, 2, 3]


def test_what_is_not_needed_any_more_changes_nothing(journal):
    journal(1, [1, 2, 3])
    found = journal(2, [4, 5], oldest=4, from_lsn=4)
    assert (offsets(found), found.fault) == ([4, 5], None)


def test_a_superseded_record_does_not_count(journal):
    journal(1, [1, 2, 3])
    found = journal(2, [3], from_lsn=3)
    assert [entry.data for entry in found.entries["p/s/log"]] == [
        b"epoch 1",
        b"epoch 1",
        b"epoch 2",
    ]


def test_a_durable_record_that_is_missing_is_a_fault(journal):
    found = journal(1, [1, 3, 4])
    assert found.fault is not None
    assert "record 2" in found.fault
