"""The bytes on disk: published once, appended, put back after failures (L5–L9, L13, L15, L18)."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from interlock.backends.errors import InterlockError, LogError, SessionError
from interlock.backends.event import encode_line
from interlock.backends.files import FileCache
from interlock.backends.frames import Bytes, scan
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log

#: Only a torn frame gives up whole records; a raw log's torn line is one record.
ZSTD = pytest.mark.parametrize("compression", ["zstd"], indirect=True)


def _types(path: Path) -> list[str]:
    return [event.type for event in read_log(path).events]


def _frames(path: Path) -> int:
    data = path.read_bytes()
    return len(list(scan(Bytes(lambda length, offset: data[offset : offset + length], len(data)))))


@pytest.fixture
def log(backend, say):
    log = backend.create(say.header())
    yield log
    log.close()


@pytest.fixture
def published(log, say, flush):
    log.append([say.turn()], 1)
    flush(log)
    return log


def test_L7_creating_a_session_and_appending_writes_nothing(root, log, say):
    log.append([say.turn(), say.step()], 1)
    log.seal()
    assert not root.exists()


def test_L7_the_first_write_publishes_header_and_events(root, log, say, flush, compression):
    log.append([say.turn(), say.step()], 1)
    assert flush(log) == 1
    assert log.published
    name = "session.v3.jsonl" + (".zstd" if compression == "zstd" else "")
    assert log.path == root / "--work--" / "s" / name
    assert _types(log.path) == ["turn/start", "step/start"]
    assert sorted(p.name for p in log.directory.iterdir()) == ["session.lock", name]


def test_L7_files_are_private(root, published):
    for path in (root, root / "--work--", published.directory):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in published.directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_L7_an_explicit_flush_publishes_an_empty_log(log, say, flush):
    log.publish_empty()
    reading = read_log(log.path)
    assert (reading.last_seq, reading.header) == (-1, say.header())
    log.publish_empty()
    log.append([say.turn()], 1)
    assert flush(log) == 0
    assert _types(log.path) == ["turn/start"]


def test_L7_publication_syncs_the_file_before_its_name_and_every_new_directory(disk, published):
    steps = [(op, name) for op, name in disk.calls if op in ("fsync", "link", "sync_directory")]
    operations = [op for op, _ in steps]
    assert operations.index("fsync") < operations.index("link")
    synced = {name for op, name in steps if op == "sync_directory"}
    # The session's directory holds the new name; each new directory stands in its parent.
    assert {"s", "--work--", "sessions", published.directory.parents[2].name} <= synced
    last_link = operations.index("link")
    assert ("sync_directory", "s") in steps[last_link:]


def test_L7_directories_that_another_process_made_are_synced_once_as_well(root, say, flush, disk):
    # It may have been killed, or lose its power, between making them and syncing their entries.
    (root / "--work--" / "s").mkdir(parents=True)
    backend = JsonlBackend(root, disk=disk)
    log = backend.create(say.header())
    log.append([say.turn()], 1)
    flush(log)
    synced = [name for op, name in disk.calls if op == "sync_directory"]
    assert synced == [root.parent.name, "sessions", "--work--", "s"]
    disk.calls.clear()
    second = backend.create(say.header("second"))
    second.append([say.turn()], 1)
    flush(second)
    synced = [name for op, name in disk.calls if op == "sync_directory"]
    assert synced == ["--work--", "second"]
    log.close()
    second.close()


def test_P7_a_spill_folder_that_another_process_made_is_synced_as_well(published, say, disk, flush):
    published.append([say.step(), say.message("c"), say.call("c")], 1)
    flush(published)
    (published.directory / "spill").mkdir()
    made = say.result("c", 3, meta={"spill": {}})
    published.append([type(made)(made.type, made.data, False, "append", (3,), b"x")], 1)
    disk.calls.clear()
    flush(published)
    assert disk.calls.index(("sync_directory", "s")) < disk.calls.index(
        ("write", published.path.name)
    )


def test_a_header_that_nobody_could_read_is_refused(root, say):
    for bad in (say.header(cwd="relative"), say.header(delegation_depth=-1)):
        with pytest.raises(ValueError, match="session 's'"):
            JsonlBackend(root).create(bad)


def test_L7_the_second_of_two_creators_gets_SESSION_EXISTS(root, say, published, disk):
    with pytest.raises(SessionError) as caught:
        JsonlBackend(root).create(say.header())
    assert caught.value.code == "SESSION_EXISTS"


def test_L7_a_creator_that_comes_late_to_its_first_write_loses(root, say, flush):
    logs = [JsonlBackend(root).create(say.header()) for _ in range(2)]
    for log in logs:
        log.append([say.turn()], 1)
    flush(logs[0])
    before = logs[0].path.read_bytes()

    with pytest.raises(SessionError) as caught:
        flush(logs[1])

    assert caught.value.code == "SESSION_EXISTS"
    assert logs[1].failed is caught.value
    assert logs[0].path.read_bytes() == before
    with pytest.raises(SessionError):
        logs[1].append([say.step()], 1)
    logs[0].append([say.step()], 1)
    assert flush(logs[0]) == 1
    logs[0].close()
    # The loser's lock is gone with its failure, not only with its close.
    JsonlBackend(root).open("s").close()


def test_L7_without_hard_links_a_rename_that_refuses_to_replace_publishes(log, say, flush, disk):
    disk.fail_next("link", errno.EPERM)
    log.append([say.turn()], 1)
    flush(log)
    assert _types(log.path) == ["turn/start"]
    assert disk.count()["rename_noreplace"] == 1
    assert not list(log.directory.glob("*.tmp"))


def test_L7_without_either_the_publication_is_refused_with_the_reason(log, say, disk):
    disk.fail_next("link", errno.EPERM)
    disk.fail_next("rename_noreplace", errno.EINVAL)
    log.append([say.turn()], 1)
    batch = log.seal()
    with pytest.raises(LogError, match="hard links") as caught:
        log.write(batch)
    assert caught.value.code == "LOG_WRITE_FAILED"
    assert not list(log.directory.glob("session.*.jsonl*"))
    log.unseal(batch)
    assert log.write(log.seal()) == 0


def test_L8_each_batch_is_one_frame(published, say, flush, compression):
    published.append([say.step(), say.user("a")], 1)
    flush(published)
    published.append([say.user("b")], 1)
    flush(published)
    if compression == "zstd":
        assert _frames(published.path) == 4
    else:
        assert published.path.read_bytes().count(b"\n") == 5
    assert _types(published.path) == ["turn/start", "step/start", "user/message", "user/message"]


@pytest.mark.parametrize(
    "operation", ["open", "write", "fsync", "link", "sync_directory", "mkdir", "truncate"]
)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_L6_a_failed_publication_leaves_nothing_and_can_be_tried_again(
    log, say, disk, operation, code, flush
):
    log.append([say.turn(), say.step()], 1)
    batch = log.seal()
    if operation == "truncate":
        # The only truncation here is of the lock's line, which nothing depends on.
        disk.fail_next(operation, code)
        assert log.write(batch) == 1
        return
    disk.fail_next(operation, code, "session.create" if operation == "write" else "")
    with pytest.raises(LogError) as caught:
        log.write(batch)
    assert caught.value.code == "LOG_WRITE_FAILED"
    assert caught.value.details["closed"] is False
    assert not list(log.directory.glob("*.tmp"))
    log.unseal(batch)
    log.append([say.user("later")], 1)

    assert flush(log) == 2
    assert _types(log.path) == ["turn/start", "step/start", "user/message"]


def test_L7_a_publication_is_only_acknowledged_once_its_name_is_durable(log, say, disk, flush):
    log.append([say.turn()], 1)
    batch = log.seal()
    disk.fail_next("sync_directory", errno.EIO)
    disk.fail_next("sync_directory", errno.EIO)
    with pytest.raises(LogError):
        log.write(batch)
    # The name is there, its sync is still owed: the next write must not forget it.
    log.unseal(batch)
    with pytest.raises(LogError):
        log.write(log.seal())
    log.unseal(batch)
    disk.calls.clear()
    flush(log)
    assert ("sync_directory", "s") in disk.calls
    assert _types(log.path) == ["turn/start"]


@pytest.mark.parametrize("operation", ["write", "fdatasync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_L6_a_failed_write_or_sync_puts_the_file_back(published, say, disk, operation, code):
    before = published.path.read_bytes()
    published.append([say.step(), say.user("a" * 5000)], 1)
    batch = published.seal()
    disk.fail_next(operation, code)

    with pytest.raises(LogError) as caught:
        published.write(batch)

    assert caught.value.code == "LOG_WRITE_FAILED"
    assert caught.value.details["closed"] is False
    assert caught.value.details["trusted_length"] == len(before)
    assert published.path.read_bytes() == before
    assert published.failed is None


def test_L6_after_a_failed_sync_the_bytes_are_written_again_and_not_only_synced(
    published, say, disk, flush
):
    published.append([say.step()], 1)
    batch = published.seal()
    disk.fail_next("fdatasync", errno.EIO)
    with pytest.raises(LogError):
        published.write(batch)
    published.unseal(batch)
    disk.calls.clear()

    assert flush(published) == 1

    data = [op for op, name in disk.calls if name.startswith("session.v3")]
    assert data[-2:] == ["write", "fdatasync"]
    assert _types(published.path) == ["turn/start", "step/start"]


def test_L5_a_failed_batch_keeps_its_order_and_its_bytes(published, say, disk, compression):
    before = len(published.path.read_bytes())
    published.append([say.step()], 1)
    batch = published.seal()
    disk.fail_next("fdatasync", errno.EIO)
    with pytest.raises(LogError):
        published.write(batch)
    first = batch.parts[0].encoded(compressed=compression == "zstd")
    assert batch.parts[0].encoded(compressed=compression == "zstd") is first
    published.unseal(batch)
    published.append([say.user("later")], 1)

    again = published.seal()
    assert (again.first_seq, again.last_seq) == (1, 2)
    published.write(again)

    data = published.path.read_bytes()[before:]
    assert data.startswith(first)
    assert len(data) > len(first)
    assert _types(published.path) == ["turn/start", "step/start", "user/message"]


def test_F7_a_full_disk_stops_one_batch_and_the_session_goes_on_after_it(
    published, say, disk, flush
):
    for i in range(3):
        published.append([say.note(str(i))], 1)
        batch = published.seal()
        disk.fail_next("write", errno.ENOSPC)
        with pytest.raises(LogError, match="No space"):
            published.write(batch)
        published.unseal(batch)
    assert [event.seq for event in published.pending_events()] == [1, 2, 3]
    assert flush(published) == 3
    assert published.pending_events() == []


@pytest.mark.parametrize("operation", ["open", "fstat", "stat"])
def test_F7_a_log_that_cannot_be_opened_or_looked_at_is_left_alone(
    published, say, disk, flush, operation
):
    before = published.path.read_bytes()
    published.append([say.step()], 1)
    batch = published.seal()
    disk.fail_next(operation, errno.EMFILE, "session.v3")
    with pytest.raises(LogError) as caught:
        published.write(batch)
    assert caught.value.details["closed"] is False
    assert published.path.read_bytes() == before
    published.unseal(batch)
    assert flush(published) == 1


@pytest.mark.parametrize("operation", ["truncate", "fsync"])
def test_L6_a_file_that_cannot_be_put_back_closes_the_log_and_says_what_to_trust(
    published, say, disk, operation
):
    length = len(published.path.read_bytes())
    published.append([say.step()], 1)
    batch = published.seal()
    disk.fail_next("write", errno.EIO)
    disk.fail_next(operation, errno.EIO)

    with pytest.raises(LogError) as caught:
        published.write(batch)

    assert caught.value.details["closed"] is True
    assert caught.value.details["trusted_length"] == length
    assert str(length) in caught.value.message
    assert published.failed is caught.value
    disk.calls.clear()
    with pytest.raises(LogError):
        published.write(batch)
    with pytest.raises(LogError):
        published.append([say.user("x")], 1)
    assert not disk.calls


@pytest.mark.parametrize("longest", [1, 7, 100])
def test_L18_short_writes_are_continued(root, say, flush, disk, compression, longest):
    disk.longest_write = longest
    backend = JsonlBackend(root, compression=compression, disk=disk)
    log = backend.create(say.header())
    spilled = say.result("c", 3, meta={"spill": {}})
    spilled = type(spilled)(spilled.type, spilled.data, False, "append", (3,), b"x" * 500)
    log.append([say.turn(), say.step(), say.message("c"), say.call("c"), spilled], 1)
    flush(log)
    log.append([say.step_end(), say.turn_end()], 1)
    flush(log)
    assert read_log(log.path).last_seq == 6
    assert (log.directory / "spill" / "4").read_bytes() == b"x" * 500
    log.close()


def test_P7_a_spill_is_durable_before_the_event_that_names_it(published, say, disk, flush):
    published.append([say.step(), say.message("c"), say.call("c")], 1)
    flush(published)
    result = say.result("c", 3, meta={"spill": {"sha256": "…", "size": 9}})
    result = type(result)(result.type, result.data, False, "append", (3,), b"the bytes")
    [event] = published.append([result], 1)
    disk.calls.clear()

    flush(published)

    assert event.data["meta"]["spill"] == {"sha256": "…", "size": 9, "file": "spill/4"}
    assert (published.directory / "spill" / "4").read_bytes() == b"the bytes"
    synced = disk.calls.index(("fsync", "4"))
    folder = disk.calls.index(("sync_directory", "spill"))
    entry = disk.calls.index(("sync_directory", "s"))
    data = disk.calls.index(("write", published.path.name))
    assert max(synced, folder, entry) < data


@pytest.mark.parametrize("operation", ["open", "write", "fsync", "mkdir", "sync_directory"])
def test_P7_a_spill_that_cannot_be_written_keeps_its_event_out_of_the_log(
    published, say, disk, flush, operation
):
    published.append([say.step(), say.message("c"), say.call("c")], 1)
    flush(published)
    result = say.result("c", 3, meta={"spill": {}})
    published.append([type(result)(result.type, result.data, False, "append", (3,), b"spilled")], 1)
    before = published.path.read_bytes()
    batch = published.seal()
    disk.fail_next(operation, errno.ENOSPC)
    with pytest.raises(LogError):
        published.write(batch)
    assert published.path.read_bytes() == before
    published.unseal(batch)
    assert flush(published) == 4
    assert (published.directory / "spill" / "4").read_bytes() == b"spilled"


def test_a_spill_without_a_place_for_its_name_is_refused(published, say):
    draft = say.note()
    with pytest.raises(LogError) as caught:
        published.append([type(draft)(draft.type, draft.data, True, None, None, b"x")], 1)
    assert caught.value.code == "EVENT_INVALID"


@pytest.mark.parametrize("how", ["append", "replace", "truncate", "remove"])
@pytest.mark.parametrize("in_use", [False, True])
def test_L15_after_a_foreign_write_nothing_more_is_written(
    published, say, flush, how, in_use, tmp_path
):
    path = published.path
    if in_use:
        # Now the log's own descriptor is open, and leads to the old file whatever happens.
        published.append([say.note()], 1)
        flush(published)
    if how == "append":
        with path.open("ab") as file:
            file.write(b"intruder")
    elif how == "replace":
        copy = tmp_path / "copy"
        copy.write_bytes(path.read_bytes())
        copy.replace(path)
    elif how == "truncate":
        os.truncate(path, 10)
    else:
        path.unlink()
    before = path.read_bytes() if path.exists() else None
    published.append([say.step()], 1)

    with pytest.raises(SessionError) as caught:
        published.write(published.seal())

    assert caught.value.code == "SESSION_SOURCE_CHANGED"
    assert caught.value.details["closed"] is True
    assert (path.read_bytes() if path.exists() else None) == before
    with pytest.raises(SessionError):
        published.append([say.user("x")], 1)


def test_L15_a_torn_end_that_something_else_wrote_behind_is_not_cut(backend, published, say):
    os.truncate(published.path, published.path.stat().st_size - 1)
    published.close()
    if backend.compression == "none":
        # The only event is torn off; the header stays.
        assert b"turn/start" in published.path.read_bytes()
    log = backend.open("s")
    with published.path.open("ab") as file:
        file.write(b"intruder")
    before = published.path.read_bytes()
    with pytest.raises(SessionError) as caught:
        log.mend()
    assert caught.value.code == "SESSION_SOURCE_CHANGED"
    assert published.path.read_bytes() == before
    log.close()


def test_L15_a_write_that_slips_in_between_is_noticed_and_not_cut_off(published, say, disk):
    path = published.path
    real = disk.write

    def write(fd, data):
        with path.open("ab") as file:
            file.write(b"intruder")
        return real(fd, data)

    disk.write = write
    published.append([say.step()], 1)
    with pytest.raises(SessionError) as caught:
        published.write(published.seal())
    assert caught.value.code == "SESSION_SOURCE_CHANGED"
    assert b"intruder" in path.read_bytes()


def test_K7_only_file_mode_promises_to_survive_power_loss(root, say, disk, flush):
    assert JsonlBackend(root).power_loss_durable
    backend = JsonlBackend(root, durability="none", disk=disk)
    assert not backend.power_loss_durable
    log = backend.create(say.header())
    log.append([say.turn()], 1)
    flush(log)
    log.append([say.step()], 1)
    flush(log)
    assert not {"fsync", "fdatasync", "sync_directory"} & disk.count().keys()
    assert _types(log.path) == ["turn/start", "step/start"]
    log.close()
    backend.open("s").close()


def test_L2_pending_events_are_those_not_known_to_be_durable(published, say):
    assert published.durable_seq == 0
    events = published.append([say.step(), say.user("a")], 1)
    assert published.pending_events() == events
    assert published.pending_events(2) == events[1:]
    published.write(published.seal())
    # Written, but the writer has not said so yet: still pending (L2).
    assert published.pending_events() == events
    published.acknowledge(1)
    assert published.pending_events() == events[1:]
    published.acknowledge(2)
    assert (published.pending_events(), published.durable_seq) == ([], 2)


# Opening again.


def _reopen(backend, log):
    log.close()
    return backend.open("s")


def test_an_opened_log_goes_on_where_it_ended(backend, published, say, flush):
    log = _reopen(backend, published)
    assert (log.fold.next_seq, log.fold.turn, log.durable_seq, log.recovered) == (1, 1, 0, None)
    log.append([say.turn_end()], 2)
    assert flush(log) == 1
    assert _types(log.path) == ["turn/start", "turn/end"]
    log.close()


def test_L2_opening_syncs_what_it_found_before_calling_it_durable(backend, published, disk):
    published.close()
    disk.calls.clear()
    backend.open("s").close()
    assert ("fdatasync", published.path.name) in disk.calls
    disk.fail_next("fdatasync", errno.EIO)
    with pytest.raises(LogError):
        backend.open("s")
    # The failed opening has left no lock behind.
    backend.open("s").close()


@pytest.mark.parametrize("keep", ["nothing", "some", "all"])
def test_L9_a_writer_mends_the_torn_end_before_any_new_batch(
    backend, published, say, flush, disk, compression, keep
):
    start = published.path.stat().st_size
    published.append([say.step(), say.user("a"), say.user("b")], 1)
    flush(published)
    data = published.path.read_bytes()
    if compression == "none":
        cut = {"nothing": start + 3, "some": len(data) - 2, "all": len(data)}[keep]
        recovered = {"nothing": 0, "some": 2, "all": 3}[keep]
    else:
        cut = {"nothing": start + 8, "some": len(data) - 30, "all": len(data) - 1}[keep]
        recovered = {"nothing": 0, "some": 0, "all": 3}[keep]
    published.close()
    published.path.write_bytes(data[:cut])

    log = backend.open("s")

    assert published.path.read_bytes() == data[:cut], "opening must change nothing"
    assert log.fold.next_seq == 1 + recovered
    log.append([say.note("new")], 2)
    disk.calls.clear()
    flush(log)
    reading = read_log(log.path)
    assert (reading.dropped, reading.last_seq) == (None, 1 + recovered)
    if cut < len(data):
        assert log.recovered.offset + log.recovered.bytes == cut
        steps = [op for op, name in disk.calls if name == log.path.name]
        assert steps.index("truncate") < steps.index("fsync") < steps.index("write")
    log.close()


@ZSTD
def test_L2_recovered_events_are_pending_until_they_are_written_back(
    backend, published, say, flush
):
    published.append([say.step(), say.user("a")], 1)
    flush(published)
    published.close()
    os.truncate(published.path, published.path.stat().st_size - 1)

    log = backend.open("s")
    assert (log.durable_seq, [e.seq for e in log.pending_events()]) == (0, [1, 2])
    assert log.mend() == 2
    log.acknowledge(2)
    assert log.pending_events() == []
    assert read_log(log.path).dropped is None
    log.mend()
    assert _frames(log.path) == 3
    log.close()


@ZSTD
@pytest.mark.parametrize("operation", ["truncate", "fsync", "write", "fdatasync"])
def test_L9_mending_that_fails_is_done_again_by_the_next_write(
    backend, published, say, flush, disk, operation
):
    published.append([say.step(), say.user("a")], 1)
    flush(published)
    published.close()
    os.truncate(published.path, published.path.stat().st_size - 1)
    log = backend.open("s")
    log.append([say.user("b")], 1)
    batch = log.seal()
    disk.fail_next(operation, errno.EIO)
    with pytest.raises(LogError) as caught:
        log.write(batch)
    assert caught.value.details["closed"] is False
    log.unseal(batch)
    assert flush(log) == 3
    assert _types(log.path) == ["turn/start", "step/start", "user/message", "user/message"]
    log.close()


def test_L9_dropping_a_raw_tail_says_that_it_may_have_been_acknowledged(root, say, flush):
    backend = JsonlBackend(root, compression="none")
    log = backend.create(say.header())
    log.append([say.turn(), say.step(), say.user("a")], 1)
    flush(log)
    log.close()
    rows = log.path.read_bytes().splitlines(keepends=True)
    log.path.write_bytes(b"".join([*rows[:3], b"garbage\n", rows[3]]))
    log = backend.open("s")
    assert log.fold.next_seq == 2
    assert (log.recovered.records, log.recovered.may_be_acknowledged) == (2, True)
    log.mend()
    assert log.path.read_bytes() == b"".join(rows[:3])
    log.close()


def test_L13_no_failure_and_no_recovery_removes_a_session_file(
    backend, published, say, disk, flush
):
    removed = []
    real = disk.unlink
    disk.unlink = lambda path: (removed.append(path.name), real(path))
    result = say.result("c", 3, meta={"spill": {}})
    published.append([say.step(), say.message("c"), say.call("c")], 1)
    flush(published)
    published.append([type(result)(result.type, result.data, False, "append", (3,), b"x")], 1)
    batch = published.seal()
    disk.fail_next("fdatasync", errno.EIO)
    with pytest.raises(InterlockError):
        published.write(batch)
    published.unseal(batch)
    flush(published)
    published.close()
    os.truncate(published.path, published.path.stat().st_size - 2)
    log = backend.open("s")
    log.mend()
    log.close()
    assert all(name.endswith(".tmp") for name in removed)


def test_many_logs_share_a_bounded_number_of_data_files(root, say, flush, monkeypatch):
    backend = JsonlBackend(root)
    backend._files._limit = 4
    logs = [backend.create(say.header(f"s{i}")) for i in range(12)]
    for _ in range(2):
        for log in logs:
            log.append([say.note()], 1)
            flush(log)
            assert len(backend._files) <= 4
    for log in logs:
        assert read_log(log.path).last_seq == 1
        log.close()
    assert len(backend._files) == 0


def test_a_data_file_in_use_is_never_closed_for_another(root, disk):
    root.mkdir()
    files = FileCache(disk, limit=1)
    for name in "abc":
        (root / name).touch()
    with files.use(root / "a") as a, files.use(root / "b") as b:
        assert os.write(a, b"1") == os.write(b, b"1") == 1
    with files.use(root / "c"):
        assert len(files) == 1
    files.close()


@pytest.mark.parametrize("operation", ["open", "write", "fsync", "fdatasync"])
def test_F7_a_disk_that_refuses_opening_for_writing_is_named(backend, published, disk, operation):
    published.close()
    if operation in ("write", "fsync"):
        # Neither is needed to open: the lock's line is for people only.
        disk.fail_next(operation, errno.EROFS)
        backend.open("s").close()
        return
    disk.fail_next(
        operation, errno.EROFS, "session." if operation == "fdatasync" else "session.lock"
    )
    with pytest.raises(LogError, match="Read-only"):
        backend.open("s")
    backend.open("s").close()


def test_the_lines_on_disk_are_those_of_the_events(root, say, flush):
    backend = JsonlBackend(root, compression="none")
    log = backend.create(say.header())
    events = log.append([say.turn(), say.step(), say.user("séance \ud83d")], 1)
    flush(log)
    assert log.path.read_bytes().splitlines(keepends=True)[1:] == list(map(encode_line, events))
    log.close()


def test_a_data_file_that_is_let_go_in_use_is_closed_by_its_last_user(root, disk):
    root.mkdir()
    (root / "a").touch()
    files = FileCache(disk)
    for let_go in (lambda: files.drop(root / "a"), files.close):
        with files.use(root / "a") as fd, files.use(root / "a"):
            let_go()
            assert os.write(fd, b"1") == 1
        assert fd not in disk.names, "nobody closed it"
