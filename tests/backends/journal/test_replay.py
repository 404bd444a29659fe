"""After a power cut: what a journal gives back, to whom, and what it never touches."""

from __future__ import annotations

import errno
import secrets
import shutil
from pathlib import Path

import pytest
from interlock.backends.codes import Code
from interlock.backends.disk import OsDisk
from interlock.backends.errors import LogError, SessionError
from interlock.backends.event import encode_line
from interlock.backends.frames import encode
from interlock.backends.journal.contents import read_contents
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log
from interlock.backends.verify import verify


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "session.lock"
    }


@pytest.fixture
def two(host):
    """Two sessions with three events each, and the lengths after each."""
    host.create("a", "b")
    lengths = []
    for text in "123":
        host.commit("a", "b", text=text)
        lengths.append({s: host.file(s).stat().st_size for s in "ab"})
    return lengths


@pytest.mark.parametrize("kept", [0, 1, 7, None])
def test_L18_opening_one_session_gives_it_everything_and_leaves_the_others(
    two, power_cut, new_host, see, kept
):
    cut = two[0]["a"] + kept if kept is not None else None
    after = power_cut({"a": cut, "b": two[0]["b"]})
    other = (after / "--work--" / "b").stat(), tree(after / "--work--" / "b")
    host = new_host(after)
    assert host.open("a").fold.next_seq == 3
    assert see(after, "a") == ["1", "2", "3"]
    assert tree(after / "--work--" / "b") == other[1]
    assert see(after, "b") == ["1"]


def test_a_session_whose_file_was_never_on_disk_is_made_again(two, power_cut, new_host, see):
    after = power_cut({"a": None, "b": None})
    host = new_host(after)
    assert host.open("b").fold.next_seq == 3
    assert see(after, "b") == ["1", "2", "3"]
    assert not (after / "--work--" / "a").exists()
    with pytest.raises(SessionError) as caught:
        host.create("a")
    assert caught.value.code == Code.SESSION_EXISTS


def test_bytes_that_never_reached_the_disk_are_written_also_where_the_length_did(
    two, power_cut, new_host, host, see
):
    after = power_cut({})
    path = after / host.file("a").relative_to(host.root)
    data = path.read_bytes()
    path.write_bytes(data[: two[0]["a"]] + bytes(len(data) - two[0]["a"]))
    new_host(after).open("a")
    assert path.read_bytes() == data


def test_a_frame_that_reached_the_disk_before_the_one_in_front_of_it_is_no_strangers(
    two, power_cut, new_host, host
):
    after = power_cut({})
    path = after / host.file("a").relative_to(host.root)
    data = path.read_bytes()
    lost = slice(two[0]["a"], two[1]["a"])
    path.write_bytes(data[: lost.start] + bytes(lost.stop - lost.start) + data[lost.stop :])
    new_host(after).open("a")
    assert path.read_bytes() == data


def test_a_header_that_reached_the_disk_without_its_first_batch_is_no_strangers(
    host, power_cut, new_host
):
    host.create("a")
    host.commit("a", size=700)
    after = power_cut({})
    path = after / host.file("a").relative_to(host.root)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 40] + bytes(40))
    new_host(after).open("a")
    assert path.read_bytes() == data


def test_L6_replay_writes_again_what_seems_to_be_there(two, power_cut, new_host, disk, host):
    after = power_cut({})
    disk.calls.clear()
    new_host(after).open("a")
    [written] = [i for i, call in enumerate(disk.calls) if call == ("pwrite", host.file("a").name)]
    assert disk.calls.index(("fsync", host.file("a").name)) > written


def test_verify_shows_what_is_pending_and_changes_nothing(two, power_cut, host):
    after = power_cut({"a": two[0]["a"], "b": two[2]["b"]})
    before = tree(after)
    found = {entry["id"]: entry for entry in verify(after).sessions}
    assert found["a"]["journal_pending"] is True
    assert found["a"]["stored_events"] == 3
    assert found["b"]["journal_pending"] is False
    assert tree(after) == before
    one = verify(after / "--work--" / "a").sessions[0]
    assert (one["journal_pending"], one["stored_events"]) == (True, 3)


def test_readers_see_sessions_that_only_a_journal_holds(two, power_cut, host):
    after = power_cut({"a": None, "b": None})
    found = {entry["id"]: entry for entry in verify(after).sessions}
    assert set(found) == {"a", "b"}
    assert all(e["journal_pending"] and e["stored_events"] == 3 for e in found.values())


def test_a_session_that_another_writer_continued_is_refused_and_not_overwritten(
    two, power_cut, new_host, host, compression
):
    after = power_cut({"a": two[0]["a"]})
    path = after / host.file("a").relative_to(host.root)
    # Somebody who knows no journals went on behind what was left.
    event = next(iter(read_log(host.file("a")).events))
    line = encode_line(event).replace(b'"seq":0', b'"seq":1').replace(b'"1"', b'"other"')
    with path.open("ab") as file:
        file.write(encode(line) if compression == "zstd" else line)
    changed = path.read_bytes()
    other = new_host(after)
    with pytest.raises(SessionError) as caught:
        other.open("a")
    assert caught.value.code == Code.SESSION_SOURCE_CHANGED
    assert "journal" in caught.value.message
    assert path.read_bytes() == changed
    assert list((after / ".interlock" / "journal").glob("*/00000001.journal"))
    [entry] = [e for e in verify(after).sessions if "/a/" in e["path"]]
    assert entry["code"] == Code.SESSION_SOURCE_CHANGED
    assert other.open("b").fold.next_seq == 3


def test_a_journal_goes_when_all_its_sessions_are_mended(two, power_cut, new_host):
    after = power_cut({"a": two[0]["a"], "b": two[1]["b"]})
    host = new_host(after, durability="file")
    host.open("a")
    assert list((after / ".interlock" / "journal").iterdir()) != []
    host.open("b")
    assert list((after / ".interlock" / "journal").iterdir()) == []


def test_a_journal_that_was_half_removed_refuses_nothing_and_goes(
    host, disk, power_cut, new_host, see
):
    host.create("a", "b")
    host.commit("a", "b", text="1")
    disk.fail_next("fdatasync", errno.EIO, "00000001.journal")
    host.commit("a", text="2")
    host.retry("a")
    after = power_cut({})
    other = new_host(after, durability="file")
    disk.fail_next("unlink", errno.EIO, "00000002.journal")
    other.open("a")
    other.open("b")
    [directory] = (after / ".interlock" / "journal").iterdir()
    assert [path.name for path in directory.glob("*.journal")] == ["00000002.journal"]
    again = new_host(after, durability="file")
    again.create("c")
    other.logs.pop("a").close()
    assert again.open("a").fold.next_seq == 2
    assert not directory.exists()


def test_a_journal_whose_lock_never_reached_the_disk_is_tidied_away(two, power_cut, new_host):
    after = power_cut({})
    directory = after / ".interlock" / "journal" / "00000000000000aa"
    directory.mkdir()
    (directory / "00000001.journal").write_bytes(bytes(8192))
    verify(after)
    assert directory.exists()
    new_host(after).open("a")
    assert not directory.exists()


def test_a_batch_that_its_writers_death_cut_short_is_cut_off_only_when_that_is_noted(
    host, disk, killed, new_host, monkeypatch, see
):
    host.create("a")
    host.commit("a", text="1")
    reserve, asked = disk.reserve, []

    def die_at_the_second_piece(fd, offset, length):
        asked.append(length)
        if len(asked) == 2:
            raise killed
        reserve(fd, offset, length)

    monkeypatch.setattr(disk, "reserve", die_at_the_second_piece)
    with pytest.raises(killed):
        host.commit("a", text=secrets.token_hex(40_000))
    disk.bury()
    host.logs.clear()
    host.backend = JsonlBackend(host.root)
    other = new_host(host.root, durability="file")
    disk.fail_next("fsync", errno.ENOSPC, "done")
    with pytest.raises(LogError, match="No space left"):
        other.open("a")
    other.open("a")
    other.commit("a", text="2")
    assert see(host.root, "a") == ["1", "2"]


def test_replaying_twice_is_the_same_as_once(two, power_cut, new_host, host):
    after = power_cut({"a": two[0]["a"]})
    first = new_host(after, durability="file")
    first.open("a").close()
    once = tree(after / "--work--" / "a")
    second = new_host(after, durability="file")
    second.open("a").close()
    assert tree(after / "--work--" / "a") == once


def test_a_session_is_continued_after_replay_and_the_old_journal_changes_nothing(
    two, power_cut, new_host, see
):
    after = power_cut({"a": two[0]["a"]})
    second = new_host(after)
    second.open("a")
    second.commit("a", text="4")
    second.logs.pop("a").close()
    third = new_host(after)
    third.open("a")
    third.commit("a", text="5")
    assert see(after, "a") == ["1", "2", "3", "4", "5"]


def test_a_living_writers_journal_is_left_alone(two, host, new_host, see):
    other = new_host(host.root)
    with pytest.raises(SessionError) as caught:
        other.open("a")
    assert caught.value.code == Code.SESSION_LOCKED
    host.logs.pop("a").close()
    assert other.open("a").fold.next_seq == 3
    assert other.commit("a", text="4") == [3]
    assert host.commit("b", text="4") == [3]


def test_a_durable_record_that_is_lost_refuses_its_sessions_and_names_the_journal(
    two, power_cut, new_host
):
    after = power_cut({"a": two[0]["a"]})
    [journal] = (after / ".interlock" / "journal").glob("*/00000001.journal")
    data = bytearray(journal.read_bytes())
    # The second of three records: the third says that it was durable.
    data[2 * 4096 + 4096 + 200] ^= 1
    journal.write_bytes(data)
    before = tree(after)
    with pytest.raises(SessionError) as caught:
        new_host(after).open("a")
    assert caught.value.code == Code.SESSION_CORRUPT
    assert str(journal.parent) in caught.value.message
    assert {k: v for k, v in tree(after).items() if ".interlock" not in k} == {
        k: v for k, v in before.items() if ".interlock" not in k
    }


def test_a_last_record_that_nobody_was_told_of_may_be_lost(two, power_cut, new_host):
    after = power_cut({"a": two[1]["a"], "b": two[1]["b"]})
    [journal] = (after / ".interlock" / "journal").glob("*/00000001.journal")
    data = bytearray(journal.read_bytes())
    data[2 * 4096 + 2 * 4096 + 200] ^= 1
    journal.write_bytes(data)
    assert new_host(after).open("a").fold.next_seq == 2


def test_a_superseded_record_is_not_replayed(host, disk, power_cut, new_host, see):
    import errno

    host.create("a")
    host.commit("a", text="1")
    disk.fail_next("fdatasync", errno.EIO, "00000001.journal")
    host.commit("a", text="never told")
    assert host.retry("a") == [1]
    host.commit("a", text="3")
    size = host.file("a").stat().st_size
    host.logs["a"].store.settle()
    after = power_cut({"a": size})
    assert new_host(after).open("a").fold.next_seq == 3
    assert see(after, "a") == ["1", "never told", "3"]


def test_the_overlay_refuses_every_write(two, power_cut):
    from interlock.backends.journal.overlay import OverlayDisk

    after = power_cut({"a": two[0]["a"]})
    disk = OverlayDisk(after, OsDisk())
    with pytest.raises(OSError, match="for reading only"):
        disk.unlink(after)
    with pytest.raises(OSError, match="for reading only"):
        disk.open(after / "x", 0x41)


@pytest.mark.parametrize("lost", ["the last record", "the copy's name"])
def test_what_was_replayed_is_not_lost_with_a_record_that_never_reached_the_disk(
    two, power_cut, new_host, see, lost
):
    """The writer died before the last record's sync; who replays dies, and then the power goes."""
    after = power_cut({"a": two[1]["a"], "b": two[1]["b"]})
    [journal] = (after / ".interlock" / "journal").iterdir()
    [epoch] = journal.glob("*.journal")
    before = epoch.read_bytes()
    reader = new_host(after)
    reader.open("a").close()
    assert (journal / "tail").read_bytes() in before, "a copy of the last record, as it stands"
    if lost == "the last record":
        start = before.index((journal / "tail").read_bytes())
        with epoch.open("r+b") as file:
            file.seek(start)
            file.write(bytes(4096))
    else:
        (journal / "tail").unlink()
    (journal / "done").unlink()
    again = new_host(after)
    assert again.open("a").fold.next_seq == again.open("b").fold.next_seq == 3
    assert see(after, "a") == see(after, "b") == ["1", "2", "3"]
    assert not journal.exists(), "the copy goes with the journal"


def test_a_batch_whose_first_records_are_no_longer_needed_is_mended_with_its_rest(
    host, power_cut, new_host, see
):
    """A long batch in several records lies in both segments, and one of them was used again."""
    host.create("a", "b")
    said = ["0"]
    host.commit("a", "b", text="0")
    name = "--work--/a/" + host.file("a").name
    [journal] = (host.root / ".interlock" / "journal").iterdir()
    for size in range(15_000, 30_000, 600):
        said.append(secrets.token_hex(size))
        host.commit("a", text=said[-1])
        host.commit("b", text=secrets.token_hex(2_000))
        first = read_contents(journal, OsDisk()).entries[name][0]
        if first.inside:
            break
    else:
        pytest.fail("the journal never began inside a batch")
    lengths = {s: host.file(s).stat().st_size for s in "ab"}
    for left in (first.offset, first.offset + 1, first.end - 1, first.end + 1, lengths["a"] - 1):
        after = power_cut({"a": left, "b": lengths["b"]})
        verify(after)
        reader = new_host(after)
        reader.open("a").close()
        assert see(after, "a") == said
        reader.close()
        shutil.rmtree(after)
