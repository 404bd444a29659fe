"""Opening an older log to write: the current generation appears beside it, whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from interlock.backends.errors import LogError, SessionError
from interlock.backends.event import to_json
from interlock.backends.generations import publish, verify_copy
from interlock.backends.generations.verify_copy import Expected, verify_elsewhere
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log
from interlock.backends.repair import closers
from interlock.backends.verify import verify

RAW, ZSTD = "s03-basic-raw-packed", "s01-basic-zstd-packed"
OPEN = "s06-kill9-mid-tool-zstd"


class Sample:
    """A session in a root of its own, and what its file held at first."""

    def __init__(self, root: Path) -> None:
        self.root = root
        [self.path] = root.glob("*/*/session*")
        self.id = self.path.parent.name
        self.bytes = self.path.read_bytes()
        self.events = [to_json(event) for event in read_log(self.path).events]

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in self.path.parent.iterdir())

    @property
    def target(self) -> Path:
        return self.path.with_name(self.path.name.replace("session.", "session.v3."))

    def open(self, disk=None):
        return JsonlBackend(self.root, disk=disk).open(self.id)

    def unpublished(self) -> bool:
        return set(self.names) <= {self.path.name, "session.lock"} and self.untouched()

    def untouched(self) -> bool:
        return self.path.read_bytes() == self.bytes


@pytest.fixture(params=[RAW, ZSTD])
def sample(request, sample_root) -> Sample:
    return Sample(sample_root(request.param))


@pytest.fixture
def open_sample(sample_root) -> Sample:
    return Sample(sample_root(OPEN))


def test_L12_opening_to_write_publishes_v3_and_keeps_the_source_and_its_compression(sample):
    before = sample.path.stat()
    log = sample.open()
    assert log.path == sample.target
    assert sample.names == sorted([sample.path.name, "session.lock", sample.target.name])
    assert sample.untouched()
    assert sample.path.stat().st_mtime_ns == before.st_mtime_ns
    assert sample.target.stat().st_mode & 0o777 == 0o600
    assert (log.fold.next_seq, log.durable_seq) == (len(sample.events), len(sample.events) - 1)
    log.close()
    assert [to_json(event) for event in read_log(sample.target).events] == sample.events


def test_L12_a_turn_goes_to_v3_and_opening_again_uses_it(sample, say, flush):
    for turn in (2, 3):
        log = sample.open()
        log.append([say.turn(turn), say.turn_end(turn)], 1)
        flush(log)
        log.close()
    assert sample.untouched()
    events = [to_json(event) for event in read_log(sample.target).events]
    assert events[: len(sample.events)] == sample.events
    assert [event["data"]["turn"] for event in events[len(sample.events) :]] == [2, 2, 3, 3]


def test_L12_reading_listing_and_verifying_publish_nothing(sample):
    read_log(sample.path)
    [listing] = JsonlBackend(sample.root).list()
    assert (listing.version, listing.header.id, listing.code) == (0, sample.id, None)
    [entry] = verify(sample.root).sessions
    assert sample.names == [sample.path.name]
    assert (entry["status"], entry["code"], entry["version"]) == ("ok", None, 0)
    assert (entry["stored_events"], entry["last_seq"]) == (49, 48)
    assert entry["migrated"] == {"version": 3, "events": 16}
    assert "v0" in entry["message"]
    json.dumps(entry)


def test_L12_verify_says_what_opening_to_write_would_append(open_sample, flush):
    [entry] = verify(open_sample.root).sessions
    assert (entry["status"], entry["stored_events"]) == ("repairable", 28)
    log = open_sample.open()
    drafts = closers(log.fold)
    assert [draft["type"] for draft in entry["repair"]] == [draft.type for draft in drafts]
    assert [draft["code"] for draft in entry["repair"]] == ["TOOL_OUTCOME_UNKNOWN", None, None]
    log.append(drafts, log.fold.last_time)
    flush(log)
    log.close()
    assert verify(open_sample.target).sessions[0]["status"] == "ok"


def test_L9_what_the_sources_end_lost_is_said_by_the_log_that_goes_on(sample_root):
    sample = Sample(sample_root("s13c-raw-seq-gap-in-open-turn"))
    log = sample.open()
    assert log.recovered == read_log(sample.path).dropped
    assert log.recovered.may_be_acknowledged
    log.close()


def test_L12_a_published_file_is_one_header_frame_and_one_frame_of_rows(sample_root):
    sample, empty = Sample(sample_root(ZSTD)), Sample(sample_root("s16f-header-only-raw"))
    sample.open().close()
    assert sample.target.read_bytes().count(b"\x28\xb5\x2f\xfd") == 2
    empty.open().close()
    assert empty.target.read_bytes().count(b"\n") == 1


@pytest.mark.parametrize("name", [RAW, ZSTD])
def test_L12_a_kill_at_every_operation_leaves_the_old_or_the_new_log_whole(
    sample_root, tmp_path, disk, killed, name
):
    probe = Sample(sample_root(name))
    probe.open(disk).close()
    steps = len(disk.calls)
    operations = [operation for operation, _ in disk.calls]
    assert {"write", "fsync", "link", "unlink", "sync_directory"} <= set(operations)
    published = []
    for step in range(1, steps):
        root = tmp_path / str(step) / name
        target = root / probe.path.relative_to(probe.root)
        target.parent.mkdir(parents=True)
        target.write_bytes(probe.bytes)
        sample, dying = Sample(root), type(disk)()
        dying.die_at(step)
        with pytest.raises(killed):
            sample.open(dying).close()
        dying.bury()
        assert sample.untouched()
        published.append(sample.target.exists())
        [entry] = verify(root).sessions
        assert entry["status"] == "ok", entry
        current = sample.target if published[-1] else sample.path
        assert [to_json(event) for event in read_log(current).events] == sample.events
        log = sample.open()
        assert log.fold.next_seq == len(sample.events)
        log.close()
        assert sample.untouched()
    # The link is the commit point: nothing before it, everything from it on.
    link = operations.index("link")
    assert published == [step > link for step in range(1, steps)]


@pytest.mark.parametrize(
    ("operation", "code"),
    [("open", errno.ENOSPC), ("write", errno.ENOSPC), ("fsync", errno.EIO), ("link", errno.EIO)],
)
def test_F7_a_failed_operation_publishes_nothing_and_can_be_tried_again(
    sample, disk, operation, code
):
    name = "session.v3" if operation == "link" else "session.migration"
    disk.fail_next(operation, code, name)
    with pytest.raises(LogError) as caught:
        sample.open(disk)
    assert (caught.value.code, caught.value.details["errno"]) == ("LOG_WRITE_FAILED", code)
    assert sample.unpublished()
    sample.open(disk).close()
    assert sample.target.exists()


def test_L18_short_writes_are_continued(sample, disk):
    disk.longest_write = 7
    sample.open(disk).close()
    assert [to_json(event) for event in read_log(sample.target).events] == sample.events


def test_L12_without_hard_links_a_rename_that_refuses_to_replace_publishes(sample, disk):
    disk.fail_next("link", errno.EPERM)
    sample.open(disk).close()
    assert ("rename_noreplace", sample.target.name) in disk.calls
    assert sample.names == sorted([sample.path.name, "session.lock", sample.target.name])


@pytest.mark.parametrize("change", ["append", "rewrite", "replace", "remove"])
def test_L12_a_source_that_another_process_changes_meanwhile_publishes_nothing(
    sample, monkeypatch, change
):
    program = {
        "append": "open(p, 'ab').write(b'x')",
        "rewrite": "d = open(p, 'rb').read(); open(p, 'r+b').write(d)",
        "replace": "d = open(p, 'rb').read(); os.unlink(p); open(p, 'wb').write(d)",
        "remove": "os.unlink(p)",
    }[change]

    def verify_and_meddle(path, expected):
        verdict = verify_elsewhere(path, expected)
        script = f"import os, sys; p = sys.argv[1]; {program}"
        subprocess.run([sys.executable, "-c", script, str(sample.path)], check=True)
        return verdict

    monkeypatch.setattr(publish, "verify_elsewhere", verify_and_meddle)
    with pytest.raises(SessionError) as caught:
        sample.open()
    assert caught.value.code == "SESSION_SOURCE_CHANGED"
    assert set(sample.names) <= {sample.path.name, "session.lock"}


@pytest.fixture
def meanwhile(monkeypatch):
    """Do something between the verification of the copy and its publication."""

    def meanwhile(action) -> None:
        def verify_and_act(path, expected):
            verdict = verify_elsewhere(path, expected)
            action(path)
            return verdict

        monkeypatch.setattr(publish, "verify_elsewhere", verify_and_act)

    return meanwhile


def test_L12_a_target_that_appears_meanwhile_is_never_overwritten(sample, meanwhile):
    meanwhile(lambda _: sample.target.write_bytes(b"someone else's"))
    with pytest.raises(SessionError, match="appeared") as caught:
        sample.open()
    assert caught.value.code == "SESSION_SOURCE_CHANGED"
    assert sample.target.read_bytes() == b"someone else's"
    assert not [name for name in sample.names if name.endswith(".tmp")]


def test_L12_a_target_that_begins_with_the_same_bytes_is_accepted(sample, meanwhile, say):
    def publish_and_go_on(path: Path) -> None:
        sample.target.write_bytes(path.read_bytes())

    meanwhile(publish_and_go_on)
    log = sample.open()
    assert log.fold.next_seq == len(sample.events)
    log.close()


def test_L12_a_link_in_the_targets_place_is_not_followed(sample, meanwhile, tmp_path):
    elsewhere = tmp_path / "elsewhere"

    def link(path: Path) -> None:
        elsewhere.write_bytes(path.read_bytes())
        sample.target.symlink_to(elsewhere)

    meanwhile(link)
    with pytest.raises(SessionError) as caught:
        sample.open()
    assert caught.value.code == "SESSION_SOURCE_CHANGED"


def test_L12_a_copy_that_does_not_verify_is_not_published(sample, monkeypatch):
    def spoil(path: Path, expected: Expected):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        return verify_elsewhere(path, expected)

    monkeypatch.setattr(publish, "verify_elsewhere", spoil)
    with pytest.raises(LogError, match="did not verify") as caught:
        sample.open()
    assert caught.value.code == "LOG_WRITE_FAILED"
    assert sample.unpublished()


def test_L12_the_copy_is_verified_by_another_process(sample, monkeypatch):
    started = []
    run = subprocess.run

    def watch(command, **options):
        started.append(command)
        return run(command, **options)

    monkeypatch.setattr(verify_copy.subprocess, "run", watch)
    sample.open().close()
    [[program, *arguments, path]] = started
    assert program == sys.executable
    assert arguments[-1] == "interlock.backends.generations.verify_copy"
    assert Path(path).name.startswith("session.migration.")


def test_L12_a_verifier_that_says_nothing_is_an_error_and_publishes_nothing(sample, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(LogError, match="verification ended"):
        sample.open()
    assert sample.unpublished()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"id": "other"}, "belongs to session"),
        ({"events": 15}, "16 events instead of 15"),
        ({"digest": "0" * 64}, "other events"),
    ],
)
def test_L12_the_verifier_finds_what_is_not_as_expected(sample, change, word):
    sample.open().close()
    lines = b"".join(line + b"\n" for line in _unpacked(sample.target).split(b"\n") if line)
    good = {"id": sample.id, "events": 16, "digest": hashlib.sha256(lines).hexdigest()}
    assert verify_elsewhere(sample.target, Expected(**good)).fault is None
    verdict = verify_elsewhere(sample.target, Expected(**good | change))
    assert word in verdict.fault
    assert not verdict.refused


def _unpacked(path: Path) -> bytes:
    import zstandard

    data = path.read_bytes()
    if not path.name.endswith(".zstd"):
        return data
    return zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True).read()


def test_L12_the_verifier_refuses_a_torn_copy(sample):
    sample.open().close()
    size = sample.target.stat().st_size
    os.truncate(sample.target, size - 3)
    verdict = verify_elsewhere(sample.target, Expected(sample.id, 16, ""))
    assert "torn" in verdict.fault


def test_L12_a_message_that_its_stream_does_not_give_refuses_the_migration(write, old, root):
    rows = [
        old.turn(),
        old.step(),
        old.chunk("text-delta", index=0, text="one thing"),
        old.answer({"type": "text", "text": "another"}, sourceEventSeqs=[2]),
        old.step_end(),
        old.turn_end(),
    ]
    path = write(0, rows)
    assert read_log(path).last_seq >= 0
    with pytest.raises(SessionError, match="content is not what its stream gives") as caught:
        JsonlBackend(root).open("s")
    assert caught.value.code == "SESSION_FORMAT_UNSUPPORTED"
    assert sorted(p.name for p in path.parent.iterdir()) == ["session.jsonl", "session.lock"]


def test_L12_a_leftover_temporary_file_is_no_log_and_in_nobodys_way(sample):
    leftover = sample.path.with_name("session.migration.0123456789abcdef.jsonl.tmp")
    leftover.write_bytes(b"half")
    sample.open().close()
    assert leftover.read_bytes() == b"half"
    assert verify(sample.root).sound


def test_L12_older_generations_do_not_stand_in_for_a_damaged_newer_one(sample):
    sample.open().close()
    sample.target.write_bytes(sample.target.read_bytes()[:10])
    for read in (lambda: sample.open(), lambda: read_log(sample.target)):
        with pytest.raises(SessionError) as caught:
            read()
        assert caught.value.code == "SESSION_CORRUPT"
    assert verify(sample.root).sessions[0]["status"] == "corrupt"


def test_L11_a_log_that_someone_else_holds_is_not_migrated(sample):
    fd = os.open(sample.path.with_name("session.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        with pytest.raises(SessionError) as caught:
            sample.open()
        assert caught.value.code == "SESSION_LOCKED"
    finally:
        os.close(fd)
    assert sample.unpublished()


def test_L12_a_session_in_another_ones_place_is_not_migrated(sample):
    moved = sample.path.parent.with_name("elsewhere")
    sample.path.parent.rename(moved)
    with pytest.raises(SessionError) as caught:
        JsonlBackend(sample.root).open("elsewhere")
    assert caught.value.code == "SESSION_CORRUPT"
    assert sorted(path.name for path in moved.iterdir()) == [sample.path.name, "session.lock"]


def test_L12_two_processes_that_open_one_old_log_publish_it_once(sample):
    script = (
        "import sys; from pathlib import Path\n"
        "from interlock.backends.jsonl import JsonlBackend\n"
        "log = JsonlBackend(Path(sys.argv[1])).open(sys.argv[2], wait=30)\n"
        "print(log.fold.next_seq, log.path.stat().st_ino); log.close()\n"
    )
    command = [sys.executable, "-c", script, str(sample.root), sample.id]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = {process.communicate()[0] for process in both}
    assert said == {f"{len(sample.events)} {sample.target.stat().st_ino}\n"}
    assert sample.untouched()
