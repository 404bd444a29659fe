"""How the command behaves as a program: help, usage, pipes, imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

COMMANDS = [
    (),
    ("exec",),
    ("doctor",),
    ("sessions",),
    *[("sessions", name) for name in ("list", "show", "tail", "verify", "repair", "export")],
    ("approvals",),
    *[("approvals", name) for name in ("list", "watch", "allow", "reject")],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_that_fits_a_terminal(cli, command):
    ran = cli(*command, "--help")
    assert ran.status == 0
    assert "Usage: interlock" in ran.out
    assert max(len(line) for line in ran.out.splitlines()) <= 100


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("sessions", "nonsense"),
        ("sessions", "show"),
        ("sessions", "list", "--limit", "0"),
        ("sessions", "show", "x", "--raw", "--json"),
        ("sessions", "export", "x", "--format", "pdf"),
        ("exec",),
        ("exec", "--mode", "wide", "--", "true"),
        ("exec", "--timeout", "0", "--", "true"),
        ("approvals", "allow"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line_and_status_2(cli, words):
    cli(*words).refused(2)


def test_a_reader_that_has_enough_ends_the_command_quietly(cli, make, drafts):
    make("a", *drafts.whole(), *[drafts.user("x" * 60) for _ in range(3000)])
    with subprocess.Popen(
        cli.argv("sessions", "show", "a", "--raw"),
        env=cli.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


def test_exec_starts_without_what_other_commands_need(cli):
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *cli.argv("exec", "--json", "--", "true")[1:]],
        env=cli.env,
        cwd=cli.env["HOME"],
        capture_output=True,
        text=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "typer" in loaded
    assert not loaded & {"zmq", "pykka", "rich", "zstandard", "interlock.actors.messages"}


def test_the_version_is_said(cli):
    ran = cli("--version")
    assert ran.status == 0
    assert ran.out.strip()
