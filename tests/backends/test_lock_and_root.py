"""L11, L14, L17 and the root: who may write, what is found, what is listed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from interlock.backends.disk import OsDisk
from interlock.backends.errors import SessionError
from interlock.backends.header import encode_header
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.lock import SessionLock, held, holder
from interlock.backends.reading import read_log

HOLDER = """
import sys
from pathlib import Path
from interlock.backends.jsonl import JsonlBackend
log = JsonlBackend(Path(sys.argv[1])).open("s")
print("open", flush=True)
sys.stdin.readline()
log.close()
"""

CREATOR = """
import sys
from pathlib import Path
from interlock.backends.errors import InterlockError
from interlock.backends.event import draft
from interlock.backends.header import Header
from interlock.backends.jsonl import JsonlBackend
log = JsonlBackend(Path(sys.argv[1])).create(Header(id="s", created_at=1, cwd="/work"))
log.append([draft("interlock/notice", {"by": sys.argv[2]}, ignorable=True)], 1)
print("ready", flush=True)
sys.stdin.readline()
try:
    log.write(log.seal())
    print("wrote", flush=True)
    sys.stdin.readline()
except InterlockError as error:
    print(error.code, flush=True)
"""


def _start(script: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def session(root, say, flush) -> Path:
    """A finished session ``s`` in the root; returns its log file."""
    log = JsonlBackend(root).create(say.header())
    log.append([say.turn(), say.turn_end()], 1)
    flush(log)
    log.close()
    return log.path


@pytest.fixture
def other(root, session):
    """A living process that has the session open."""
    process = _start(HOLDER, str(root))
    assert process.stdout.readline() == "open\n"
    yield process
    if process.poll() is None:
        os.kill(process.pid, signal.SIGCONT)
        process.kill()
    process.communicate()


def test_L11_a_second_process_is_refused_at_once_and_told_who_holds_it(root, other):
    with pytest.raises(SessionError) as caught:
        JsonlBackend(root).open("s")
    assert caught.value.code == "SESSION_LOCKED"
    assert f"process {other.pid} on" in caught.value.message
    assert caught.value.details["holder"]["pid"] == other.pid


def test_L11_a_second_handle_in_one_process_is_refused(root, session):
    log = JsonlBackend(root).open("s")
    for backend in (JsonlBackend(root), JsonlBackend(root)):
        with pytest.raises(SessionError) as caught:
            backend.open("s")
        assert caught.value.code == "SESSION_LOCKED"
        assert str(os.getpid()) in caught.value.message
    log.close()
    JsonlBackend(root).open("s").close()


def test_L11_a_killed_holder_frees_the_session_at_once(root, other):
    other.kill()
    other.wait()
    JsonlBackend(root).open("s").close()


def test_L11_a_stopped_holder_keeps_the_session(root, other):
    os.kill(other.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
    with pytest.raises(SessionError) as caught:
        JsonlBackend(root).open("s")
    assert caught.value.code == "SESSION_LOCKED"


def test_L11_readers_do_not_wait_for_the_lock(root, session, other):
    assert read_log(session).last_seq == 1
    [listing] = JsonlBackend(root).list()
    assert listing.code is None


def test_L11_neither_the_file_nor_a_process_id_in_it_proves_anything(root, session):
    lock = session.parent / "session.lock"
    lock.write_text(json.dumps({"pid": os.getpid(), "host": "here", "command": "x", "since": "y"}))
    assert not held(session.parent, OsDisk())
    log = JsonlBackend(root).open("s")
    assert holder(session.parent, OsDisk())["pid"] == os.getpid()
    log.close()
    assert lock.exists()
    assert holder(session.parent, OsDisk()) is None


def test_L11_a_holder_without_a_line_is_named_as_such(root, session):
    # The harness leaves the file empty.
    disk = OsDisk()
    fd = disk.open(session.parent / "session.lock", os.O_RDWR)
    assert disk.lock(fd)
    with pytest.raises(SessionError, match="no line about itself"):
        JsonlBackend(root).open("s")
    disk.close(fd)


def test_L11_waiting_gets_the_lock_once_its_holder_lets_go(root, other):
    other.stdin.write("\n")
    other.stdin.flush()
    JsonlBackend(root).open("s", wait=60).close()
    assert other.wait(60) == 0


def test_L11_waiting_ends_when_its_time_is_up(root, other):
    start = time.monotonic()
    with pytest.raises(SessionError):
        JsonlBackend(root).open("s", wait=0.2)
    assert time.monotonic() - start >= 0.2


def test_L11_a_lock_on_a_replaced_file_does_not_count(root, session):
    class Swapping(OsDisk):
        """Replaces the lock file between opening and locking, the first ``times`` times."""

        times = 0

        def lock(self, fd, *, exclusive=True):
            taken = super().lock(fd, exclusive=exclusive)
            if self.times:
                self.times -= 1
                fresh = session.parent / "fresh"
                fresh.touch()
                fresh.replace(session.parent / "session.lock")
            return taken

    disk = Swapping()
    disk.times = 2
    lock = SessionLock.acquire(session.parent, "s", disk)
    with pytest.raises(SessionError):
        SessionLock.acquire(session.parent, "s", OsDisk())
    lock.release()
    disk.times = 3
    with pytest.raises(SessionError) as caught:
        SessionLock.acquire(session.parent, "s", disk)
    assert caught.value.code == "SESSION_LOCKED"


def test_L7_of_two_processes_that_create_one_id_one_wins(root):
    processes = [_start(CREATOR, str(root), str(i)) for i in range(2)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.stdout.readline().strip() for process in processes]
    for process in processes:
        process.communicate("\n")

    assert sorted(answers) == ["SESSION_EXISTS", "wrote"]
    [event] = read_log(root / "--work--" / "s" / "session.v3.jsonl.zstd").events
    assert event.data["by"] == str(answers.index("wrote"))


# Finding and opening.


def test_an_unknown_session_is_not_found(root, session):
    for session_id in ("other", "", "x" * 300, ".."):
        with pytest.raises(SessionError) as caught:
            JsonlBackend(root).open(session_id)
        assert caught.value.code == "SESSION_NOT_FOUND"
    assert JsonlBackend(root / "no such root").find("s") is None


def test_a_directory_that_never_got_its_log_is_no_session(root, say, flush):
    # What is left of a process that died between taking the lock and publishing.
    directory = root / "--work--" / "s"
    directory.mkdir(parents=True)
    (directory / "session.lock").touch()
    (directory / "session.create.0123456789abcdef.jsonl.zstd.tmp").write_bytes(b"half")
    backend = JsonlBackend(root)
    assert backend.find("s") is None
    assert list(backend.list()) == []
    log = backend.create(say.header())
    log.append([say.turn()], 1)
    assert flush(log) == 0
    log.close()


def test_a_session_keeps_its_compression_whatever_the_backend_uses_for_new_ones(
    root, session, say, flush
):
    log = JsonlBackend(root, compression="none").open("s")
    log.append([say.turn(2)], 1)
    flush(log)
    log.close()
    assert read_log(session).last_seq == 2
    assert [path.name for path in session.parent.glob("session.v3*")] == [session.name]


@pytest.mark.parametrize("name", ["session.jsonl", "session.v2.jsonl.zstd"])
def test_L12_a_file_name_and_a_header_of_different_generations_are_damage(root, session, name):
    data = session.read_bytes()
    session.rename(session.with_name(name))
    with pytest.raises(SessionError) as caught:
        JsonlBackend(root).open("s")
    assert caught.value.code == "SESSION_CORRUPT"
    assert session.with_name(name).read_bytes() == data


def test_the_highest_generation_is_the_log_and_no_older_one_stands_in_for_it(root, session):
    session.with_name("session.v4.jsonl").write_text('{"type":"session","version":4}\n')
    with pytest.raises(SessionError, match="newer version") as caught:
        JsonlBackend(root).open("s")
    assert caught.value.code == "SESSION_FORMAT_UNSUPPORTED"
    session.with_name("session.v4.jsonl").unlink()
    session.with_name("session.v2.jsonl").write_text("anything")
    JsonlBackend(root).open("s").close()


def test_two_encodings_of_one_generation_are_refused(root, session):
    session.with_name("session.v3.jsonl").write_text("anything")
    with pytest.raises(SessionError, match="two files") as caught:
        JsonlBackend(root).open("s")
    assert caught.value.code == "SESSION_CORRUPT"


def test_a_log_in_another_sessions_place_is_refused(root, session, say):
    directory = root / "--work--" / "other"
    directory.mkdir()
    (directory / session.name).write_bytes(session.read_bytes())
    backend = JsonlBackend(root)
    with pytest.raises(SessionError) as caught:
        backend.open("other")
    assert caught.value.code == "SESSION_CORRUPT"
    backend.open("s").close()
    # The right id in the wrong project's directory is as wrong.
    (root / "--elsewhere--").mkdir()
    directory.rename(root / "--elsewhere--" / "s")
    session.unlink()
    with pytest.raises(SessionError, match="belongs in"):
        backend.open("s")


def test_L17_one_id_in_two_projects_is_named_and_cannot_be_opened(root, session, say):
    directory = root / "--b--" / "s"
    directory.mkdir(parents=True)
    (directory / "session.v3.jsonl").write_bytes(encode_header(say.header(cwd="/b")))
    backend = JsonlBackend(root)
    with pytest.raises(SessionError, match="more than once"):
        backend.open("s")
    with pytest.raises(SessionError) as caught:
        backend.create(say.header(cwd="/third"))
    assert caught.value.code == "SESSION_EXISTS"
    messages = [listing.message for listing in backend.list()]
    assert messages[0] is None
    assert "same session id" in messages[1]


def test_L17_a_bad_session_is_named_and_hides_no_other(root, say, flush):
    backend = JsonlBackend(root)
    for name in ("a", "b", "c", "d", "e", "f"):
        log = backend.create(say.header(name))
        log.append([say.turn()], 1)
        flush(log)
        log.close()
    files = {name: root / "--work--" / name / "session.v3.jsonl.zstd" for name in "abcdef"}
    files["b"].write_bytes(b"")
    files["c"].write_bytes(b"\x89PNG\r\n\x1a\n")
    files["d"].unlink()
    (files["d"].parent / "session.v9.jsonl").write_text('{"type":"session","version":9}\n')
    files["e"].write_bytes(os.urandom(100_000))
    (root / "stray file").write_text("x")
    (root / "--work--" / "stray").mkdir()
    (root / ".interlock" / "journal").mkdir(parents=True)

    listings = {listing.directory.name: listing for listing in backend.list()}

    assert {name: listing.code for name, listing in listings.items()} == {
        "a": None,
        "b": "SESSION_CORRUPT",
        "c": "SESSION_CORRUPT",
        "d": "SESSION_FORMAT_UNSUPPORTED",
        "e": "SESSION_CORRUPT",
        "f": None,
    }
    assert all(listing.message for listing in listings.values() if listing.code)
    backend.open("a").close()
    with pytest.raises(SessionError) as caught:
        backend.open("b")
    assert caught.value.code == "SESSION_CORRUPT"


def test_L14_ids_that_would_leave_the_root_stay_in_it(root, say, flush):
    backend = JsonlBackend(root)
    names = ["..", "../../etc", "a/b", "a\\b", "nul\0", "🙂", "\ud800", "~002E", " "]
    for session_id in names:
        log = backend.create(say.header(session_id))
        log.append([say.turn()], 1)
        flush(log)
        assert log.directory.parent == root / "--work--"
        log.close()
    assert {listing.header.id for listing in backend.list()} == set(names)
    for session_id in names:
        backend.open(session_id).close()
    assert {path.name for path in root.iterdir()} == {"--work--"}


def test_L14_ids_that_differ_in_case_are_told_apart(root, say, flush):
    backend = JsonlBackend(root)
    for session_id in ("Case", "case"):
        log = backend.create(say.header(session_id))
        log.append([say.note(session_id)], 1)
        flush(log)
        log.close()
    for session_id in ("Case", "case"):
        log = backend.open(session_id)
        [event] = read_log(log.path).events
        assert event.data["text"] == session_id
        log.close()


def test_L14_on_a_disk_that_ignores_case_the_second_is_refused(root, session, say):
    class Folding(OsDisk):
        def listdir(self, path):
            return super().listdir(_fold(path))

        def open(self, path, flags, mode=0o600):
            return super().open(_fold(path), flags, mode)

    def _fold(path: Path) -> Path:
        return (
            path.parent / path.name.lower()
            if path.name == "S"
            else (path.parent.parent / "s" / path.name if path.parent.name == "S" else path)
        )

    backend = JsonlBackend(root, disk=Folding())
    with pytest.raises(SessionError, match="upper and lower case") as caught:
        backend.create(say.header("S"))
    assert caught.value.code == "SESSION_ID_INVALID"
    assert backend.find("S") is None
    assert backend.find("s") is not None


def test_L14_an_id_over_the_limit_is_refused_at_create(root, say):
    with pytest.raises(SessionError) as caught:
        JsonlBackend(root).create(say.header("x" * 256))
    assert caught.value.code == "SESSION_ID_INVALID"
    assert "255" in caught.value.message
    assert not root.exists()


def test_the_package_imports_where_there_is_no_flock():
    script = (
        "import sys; sys.platform = 'win32'; sys.modules['fcntl'] = None\n"
        "from pathlib import Path\n"
        "import interlock.backends.jsonl, interlock.backends.verify\n"
        "from interlock.backends.disk import OsDisk\n"
        "from interlock.backends.lock import SessionLock\n"
        "from interlock.backends.errors import SessionError\n"
        "try:\n"
        "    SessionLock.acquire(Path('x'), 's', OsDisk())\n"
        "except SessionError as error:\n"
        "    print(error.message)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert "Windows" in out.stdout
