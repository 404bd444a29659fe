"""``sessions list`` and what a session may be called."""

from __future__ import annotations

import json
import os

from interlock.backends.reading import read_log


def test_L17_a_bad_session_is_named_and_hides_no_other(cli, make, drafts):
    make("good", *drafts.whole())
    bad = make("bad", *drafts.whole())
    bad.write_bytes(b"\x89PNG" + bad.read_bytes()[4:])
    ran = cli("sessions", "list", "--json")
    assert ran.status == 0
    entries = {entry["id"]: entry for entry in ran.json["sessions"]}
    assert entries["good"]["code"] is None
    assert entries[None]["code"] == "SESSION_CORRUPT"
    assert "bad" in entries[None]["path"]
    text = cli("sessions", "list").out
    assert "good" in text
    assert "corrupt" in text
    assert str(bad) in text


def test_newest_first_with_their_size_and_directory(cli, make, drafts):
    make("older", *drafts.whole(), created=1_000)
    path = make("newer", *drafts.whole(), created=2_000, cwd="/elsewhere")
    document = cli("sessions", "list", "--json").json
    assert [entry["id"] for entry in document["sessions"]] == ["newer", "older"]
    newest = document["sessions"][0]
    assert newest["cwd"] == "/elsewhere"
    assert newest["bytes"] == path.stat().st_size
    assert newest["version"] == 3
    assert newest["created_at"] == 2_000
    limited = cli("sessions", "list", "-n", "1", "--json").json
    assert [entry["id"] for entry in limited["sessions"]] == ["newer"]
    assert limited["total"] == 2


def test_a_root_that_is_not_there_has_no_sessions(cli):
    ran = cli("sessions", "list")
    assert ran.status == 0
    assert "No sessions" in ran.out
    assert not cli.root.exists()


def test_a_session_that_is_open_somewhere_says_so(cli, live):
    live.process.stdin.write("x\n")
    live.process.stdin.flush()
    while not cli("approvals", "list", "--json").json["approvals"]:
        pass
    [entry] = cli("sessions", "list", "--json").json["sessions"]
    assert entry["open"] is True


def test_ids_are_printed_without_being_obeyed_and_are_accepted_back(cli, make, drafts):
    make("red \x1b[31m\n", *drafts.whole())
    out = cli("sessions", "list").out
    assert "\x1b" not in out
    shown = out.splitlines()[1].split()[0]
    ran = cli("sessions", "show", shown, "--json")
    assert ran.json["session"]["id"] == "red \x1b[31m\n"


def test_U04_a_unique_beginning_is_enough_and_an_ambiguous_one_lists_candidates(cli, make, drafts):
    make("alpha-1", *drafts.whole())
    make("alpha-2", *drafts.whole())
    make("beta", *drafts.whole())
    assert cli("sessions", "show", "b", "--json").json["session"]["id"] == "beta"
    line = cli("sessions", "show", "alpha").refused(2)
    assert "alpha-1" in line
    assert "alpha-2" in line


def test_an_exact_id_wins_over_longer_ones_and_over_a_path(cli, make, drafts, tmp_path):
    make("a", *drafts.whole())
    make("ab", *drafts.whole())
    (tmp_path / "a").mkdir()
    ran = cli("sessions", "show", "a", "--json", cwd=tmp_path)
    assert ran.json["session"]["id"] == "a"


def test_a_directory_or_a_file_names_its_session(cli, make, drafts):
    path = make("a", *drafts.whole())
    for name in (path, path.parent):
        ran = cli("sessions", "show", name, "--json", INTERLOCK_ROOT="/nowhere")
        assert ran.json["session"]["id"] == "a"


def test_a_session_that_is_not_there_is_refused_by_name(cli, make, drafts):
    make("a", *drafts.whole())
    assert "SESSION_NOT_FOUND" in cli("sessions", "show", "zzz").refused(1)
    assert "SESSION_NOT_FOUND" in cli("sessions", "tail", "").refused(1)


def test_the_root_option_wins_over_the_environment(cli, make, drafts):
    make("a", *drafts.whole())
    ran = cli("sessions", "list", "--root", cli.root, "--json", INTERLOCK_ROOT="/nowhere")
    assert json.loads(ran.out)["total"] == 1


def ids(ran) -> set[str]:
    return {entry["id"] for entry in ran.json["sessions"]}


def test_sessions_are_chosen_by_tool_code_open_turn_and_time(cli, make, drafts):
    whole, interrupted = make("whole", *drafts.whole()), make("cut", *drafts.cut_in_call())
    os.utime(whole, (1_000, 1_000))
    assert ids(cli("sessions", "list", "--open", "--json")) == {"cut"}
    assert ids(cli("sessions", "list", "--until", "1970-01-02", "--json")) == {"whole"}
    assert ids(cli("sessions", "list", "--since", "1h", "--json")) == {"cut"}
    tools = {
        event.data["name"]
        for path in (whole, interrupted)
        for event in read_log(path).events
        if event.type == "tool/call"
    }
    [tool] = tools
    assert ids(cli("sessions", "list", "--tool", tool, "--json")) == {"whole", "cut"}
    assert ids(cli("sessions", "list", "--tool", "nothing", "--json")) == set()
    assert ids(cli("sessions", "list", "--tool", tool, "--code", "ok", "--json")) == {"whole"}
    assert "No session like that" in cli("sessions", "list", "--tool", "nothing").out


def test_a_time_that_is_none_is_refused_in_one_line(cli):
    assert "is no time" in cli("sessions", "list", "--since", "soon").refused(2)
