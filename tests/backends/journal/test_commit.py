"""Group commit: what one sync makes durable, and what a failure leaves."""

from __future__ import annotations

import errno
import secrets

import pytest
from interlock.backends.codes import Code
from interlock.backends.errors import LogError
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log


def journals_of(host):
    return list((host.root / ".interlock" / "journal").iterdir())


def journals(root):
    return sorted((root / ".interlock" / "journal").glob("*/*.journal"))


def test_one_sync_makes_the_batches_of_many_sessions_durable(host, disk):
    host.create("a", "b", "c")
    host.commit("a", "b", "c")
    disk.calls.clear()
    assert host.commit("a", "b", "c") == [1, 1, 1]
    syncs = [name for operation, name in disk.calls if "sync" in operation]
    assert syncs == ["00000001.journal"]


def test_a_commit_is_in_the_session_files_at_once(host, see):
    host.create("a", "b")
    host.commit("a", "b", text="1")
    host.commit("b", text="2")
    assert see(host.root, "a") == ["1"]
    assert see(host.root, "b") == ["1", "2"]


def test_an_orderly_close_leaves_nothing_pending(host, disk):
    host.create("a", "b")
    host.commit("a", "b")
    disk.calls.clear()
    host.close()
    synced = [name for operation, name in disk.calls if operation in ("fsync", "fdatasync")]
    assert synced.count(host.file("a").name) == 2
    assert list((host.root / ".interlock" / "journal").iterdir()) == []


def test_a_failed_sync_of_the_journal_touches_no_session_file_and_a_successor_goes_on(
    host, disk, see
):
    host.create("a", "b")
    host.commit("a", "b", text="1")
    sizes = [host.file(s).stat().st_size for s in "ab"]
    disk.fail_next("fdatasync", errno.EIO, "00000001.journal")
    failed = host.commit("a", "b", text="2")
    assert [error.code for error in failed] == [Code.LOG_WRITE_FAILED] * 2
    assert [error.details["closed"] for error in failed] == [False] * 2
    assert [host.file(s).stat().st_size for s in "ab"] == sizes
    assert [path.name for path in journals(host.root)] == ["00000001.journal", "00000002.journal"]
    assert host.retry("a", "b") == [1, 1]
    assert see(host.root, "a") == ["1", "2"]
    while host.backend.tend():
        pass
    assert [path.name for path in journals(host.root)] == ["00000002.journal"]


def test_an_epoch_goes_only_when_its_successor_says_that_it_is_not_needed(
    host, disk, power_cut, new_host, see
):
    host.create("a")
    host.commit("a", text="1")
    disk.fail_next("fdatasync", errno.EIO, "00000001.journal")
    host.commit("a", text="2")
    host.retry("a")
    while host.backend.tend():
        pass
    [directory] = journals_of(host)
    assert [path.name for path in directory.glob("*.journal")] == ["00000002.journal"]
    other = new_host(power_cut({}))
    other.open("a")
    assert see(other.root, "a") == ["1", "2"]


def test_a_segment_is_not_used_again_while_an_older_epoch_is_needed(
    host, disk, power_cut, new_host, see
):
    host.create("a")
    host.commit("a", text="0")
    disk.fail_next("fdatasync", errno.EIO, "00000001.journal")
    host.commit("a", text="1")
    host.retry("a")
    for i in range(2, 40):
        host.commit("a", text=str(i))
    other = new_host(power_cut({}))
    other.open("a")
    assert see(other.root, "a") == [str(i) for i in range(40)]


def test_L6_the_pieces_of_a_long_batch_whose_rest_failed_are_cut_off_again(host, disk, monkeypatch):
    host.create("a")
    host.commit("a", text="short")
    before = host.file("a").read_bytes()
    reserve, asked = disk.reserve, []

    def full_at_the_second_piece(fd, offset, length):
        asked.append(length)
        if len(asked) == 2:
            raise OSError(errno.ENOSPC, "no room")
        reserve(fd, offset, length)

    monkeypatch.setattr(disk, "reserve", full_at_the_second_piece)
    [outcome] = host.commit("a", text=secrets.token_hex(40_000))
    assert outcome.code == Code.LOG_WRITE_FAILED
    assert host.file("a").read_bytes() == before
    assert host.retry("a") == [1]
    assert [event.seq for event in read_log(host.file("a")).events] == [0, 1]


def test_while_no_successor_can_be_made_every_batch_is_refused_and_none_is_lost(host, disk, see):
    host.create("a")
    host.commit("a", text="1")
    disk.fail_next("fdatasync", errno.EIO, "00000001.journal")
    for _ in range(2):
        disk.fail_next("open", errno.ENOSPC, "00000002.journal")
    assert isinstance(host.commit("a", text="2")[0], LogError)
    assert isinstance(host.retry("a")[0], LogError)
    assert host.retry("a") == [1]
    assert see(host.root, "a") == ["1", "2"]


def test_a_full_disk_refuses_a_batch_before_anything_is_durable(host, disk, see):
    host.create("a", "b")
    host.commit("a", "b", text="1")
    disk.fail_next("reserve", errno.ENOSPC, "session")
    refused, other = host.commit("a", "b", text="2")
    assert refused.code == Code.LOG_WRITE_FAILED
    assert refused.details["errno"] == errno.ENOSPC
    assert other == 1
    assert see(host.root, "a") == ["1"]
    assert host.retry("a") == [1]


def test_L17_a_session_that_something_else_changed_does_not_keep_the_others(host, see):
    host.create("a", "b")
    host.commit("a", "b", text="1")
    with host.file("a").open("ab") as file:
        file.write(b"?")
    changed, other = host.commit("a", "b", text="2")
    assert changed.code == Code.SESSION_SOURCE_CHANGED
    assert other == 1
    assert see(host.root, "b") == ["1", "2"]


def test_segments_alternate_and_nothing_is_lost_on_the_way(host, see):
    host.create("a", "b", "c")
    for i in range(100):
        assert host.commit("a", "b", "c", text=str(i), size=i * 20) == [i] * 3
        if i % 3 == 0:
            host.backend.tend()
    for session in "abc":
        assert see(host.root, session) == [str(i) for i in range(100)]
    assert journals(host.root)[0].stat().st_size == 2 * 4096 + 2 * 64 * 1024


def test_a_file_that_cannot_be_synced_is_written_again_from_memory(host, disk):
    host.create("a")
    host.commit("a", text="1")
    size = host.file("a").stat().st_size
    host.commit("a", text="2")
    disk.fail_next("fdatasync", errno.EIO, "session")
    disk.calls.clear()
    host.logs["a"].store.settle()
    assert disk.calls[:2] == [
        ("fdatasync", host.file("a").name),
        ("open", host.file("a").name),
    ]
    assert [op for op, _ in disk.calls].count("pwrite") == 2
    assert host.file("a").stat().st_size > size


def test_L6_a_file_that_could_not_be_synced_twice_is_written_again_before_the_next_sync(host, disk):
    host.create("a")
    host.commit("a")
    for _ in range(2):
        disk.fail_next("fdatasync", errno.EIO, "session")
    with pytest.raises(OSError, match="Input/output"):
        host.logs["a"].store.settle()
    disk.calls.clear()
    host.logs["a"].store.settle()
    operations = [op for op, _ in disk.calls]
    assert operations.index("pwrite") < operations.index("fdatasync")


def test_while_a_file_cannot_be_synced_its_segment_is_kept_and_then_batches_are_refused(
    host, disk, see
):
    host.create("a", "b")
    host.commit("a", text="0")
    host.logs["a"].store.settle()
    host.commit("a", text="1")
    refused = None
    for i in range(200):
        for _ in range(4):
            disk.fail_next("fdatasync", errno.EIO, "session")
        outcome = host.commit("b", text=str(i), size=3000)[0]
        if isinstance(outcome, LogError):
            refused = outcome
            break
    assert refused is not None
    assert refused.code == Code.LOG_WRITE_FAILED
    disk.faults.clear()
    assert host.retry("b") == [i]
    assert see(host.root, "a") == ["0", "1"]
    assert see(host.root, "b") == [str(n) for n in range(i + 1)]


def test_a_file_that_takes_no_frames_after_the_sync_gets_them_with_the_next_batch(host, disk, see):
    host.create("a")
    host.commit("a", text="1")
    disk.fail_next("write", errno.EIO, "session")
    assert host.commit("a", text="2") == [1]
    # Durable in the journal, and not in the file yet: whoever reads gets it from the writer.
    assert [event.seq for event in host.logs["a"].pending_events()] == [1]
    assert host.commit("a", text="3") == [2]
    assert host.logs["a"].pending_events() == []
    assert see(host.root, "a") == ["1", "2", "3"]


def test_a_new_log_whose_name_cannot_be_given_is_named_with_the_next_batch(host, disk, see):
    host.create("a")
    disk.fail_next("link", errno.EIO, "session")
    assert host.commit("a", text="1") == [0]
    assert not host.file("a").exists()
    assert host.commit("a", text="2") == [1]
    assert see(host.root, "a") == ["1", "2"]


def test_a_batch_too_long_for_a_record_goes_into_several(host, power_cut, new_host, see):
    host.create("a", "b")
    host.commit("a", "b", text="1")
    before = host.file("a").stat().st_size
    noise = secrets.token_hex(20_000)
    assert host.commit("a", text=noise) == [1]
    assert host.commit("a", "b", text="3") == [2, 1]
    assert see(host.root, "a") == ["1", noise, "3"]
    other = new_host(power_cut({"a": before}))
    other.open("a")
    assert see(other.root, "a") == ["1", noise, "3"]


def test_K7_without_a_journal_nothing_is_written_unless_file_was_allowed(root, disk):
    disk.fail_next("mkdir", errno.EACCES, "journal")
    backend = JsonlBackend(root, durability="journal", disk=disk)
    with pytest.raises(LogError, match="no journal can be created"):
        backend.start()
    disk.fail_next("mkdir", errno.EACCES, "journal")
    allowed = JsonlBackend(root, durability="journal", allow_file=True, disk=disk)
    allowed.start()
    assert allowed.durability == "file"
    assert "no journal can be created" in (allowed.fell_back or "")


def test_L7_one_session_made_twice_is_made_once(host, new_host):
    host.create("a")
    other = new_host(host.root)
    other.create("a")
    assert host.commit("a", text="1") == [0]
    assert other.commit("a", text="2")[0].code == Code.SESSION_EXISTS
