"""Clauses S as tests for a sandbox of somebody else.

Subclass :class:`SandboxConformance` in a test module, say how your sandbox runs a command, and let
pytest collect it. Each test runs a short shell command (``/bin/sh`` and the usual small programs
must be there) and looks at the host afterwards: what counts is what happened, not what was said.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .policy import Mode, Policy
from .run import Outcome, run
from .watch import CancelToken

#: Seconds within which something that must happen has to.
PATIENCE = 30.0


@dataclass(frozen=True)
class Ground:
    """A workspace, and a directory beside it that no policy here opens."""

    workspace: Path
    outside: Path


class SandboxConformance:
    """See the module's docstring. Override :meth:`run` at least.

    >>> class TestMine(SandboxConformance):
    ...     def run(self, argv, policy, timeout, cancel=None):
    ...         return my_sandbox.run(argv, policy, timeout, cancel)
    """

    #: Gaps that your sandbox names (S1): what they say is not asked of it.
    gaps: frozenset[str] = frozenset()

    def run(
        self, argv: Sequence[str], policy: Policy, timeout: float, cancel: CancelToken | None = None
    ) -> Outcome:
        """Run ``argv`` to its end; by default with the best sandbox of this machine."""
        return run(argv, policy, timeout=timeout, cancel=cancel)

    # Help for the tests.

    @contextlib.contextmanager
    def ground(self) -> Iterator[Ground]:
        """Two directories outside of /tmp, which a sandbox may replace."""
        base = Path(tempfile.mkdtemp(prefix="interlock-conformance-", dir="/var/tmp"))
        ground = Ground(base / "workspace", base / "outside")
        ground.workspace.mkdir()
        ground.outside.mkdir()
        (ground.outside / "kept").write_text("kept")
        try:
            yield ground
        finally:
            shutil.rmtree(base, ignore_errors=True)

    def sh(self, script: str, policy: Policy, timeout: float = PATIENCE) -> Outcome:
        """Run a line of shell."""
        return self.run(["/bin/sh", "-c", script], policy, timeout)

    # S2: modes.

    def test_S2_read_only_changes_nothing(self) -> None:
        with self.ground() as ground:
            policy = Policy(Mode.READ_ONLY, ground.workspace)
            self.sh(
                f"echo x > mine; echo x > {ground.outside}/new; rm {ground.outside}/kept", policy
            )
            assert list(ground.workspace.iterdir()) == []
            assert (ground.outside / "kept").read_text() == "kept"
            assert not (ground.outside / "new").exists()

    def test_S2_workspace_write_changes_the_workspace_and_nothing_else(self) -> None:
        with self.ground() as ground:
            policy = Policy(Mode.WORKSPACE_WRITE, ground.workspace)
            outcome = self.sh(f"echo x > mine; echo x > {ground.outside}/new", policy)
            assert (ground.workspace / "mine").read_text() == "x\n", outcome.message
            assert not (ground.outside / "new").exists()

    def test_S2_a_link_out_of_the_workspace_leads_nowhere(self) -> None:
        with self.ground() as ground:
            (ground.workspace / "way").symlink_to(ground.outside)
            policy = Policy(Mode.WORKSPACE_WRITE, ground.workspace)
            self.sh("echo x > way/new; ln -s ../outside other; echo x > other/new", policy)
            assert not (ground.outside / "new").exists()

    def test_S2_more_writable_paths_are_writable(self) -> None:
        with self.ground() as ground:
            policy = Policy(Mode.WORKSPACE_WRITE, ground.workspace, writable=(ground.outside,))
            self.sh(f"echo x > {ground.outside}/new", policy)
            assert (ground.outside / "new").exists()

    def test_S2_protected_names_stay_as_they_are(self) -> None:
        if "protected-paths" in self.gaps:
            return
        with self.ground() as ground:
            (ground.workspace / ".bashrc").write_text("mine")
            policy = Policy(Mode.WORKSPACE_WRITE, ground.workspace)
            self.sh("echo x > .bashrc; mv .bashrc other; echo x > .bashrc", policy)
            assert (ground.workspace / ".bashrc").read_text() == "mine"

    # S5: who said what.

    def test_S5_the_commands_own_status_is_its_status(self) -> None:
        with self.ground() as ground:
            policy = Policy(Mode.READ_ONLY, ground.workspace)
            for status in (0, 1, 7, 125, 126, 127):
                outcome = self.sh(f"exit {status}", policy)
                assert (outcome.status, outcome.exit_code) == ("exited", status), outcome

    def test_S5_words_are_no_refusal(self) -> None:
        with self.ground() as ground:
            policy = Policy(Mode.READ_ONLY, ground.workspace)
            outcome = self.sh("echo 'sandbox: Operation not permitted' >&2; exit 1", policy)
            assert outcome.status == "exited"

    def test_S5_a_missing_program_is_told_apart(self) -> None:
        with self.ground() as ground:
            policy = Policy(Mode.READ_ONLY, ground.workspace)
            assert self.run(["interlock-no-such"], policy, PATIENCE).status == "not-found"

    def test_S5_output_arrives_as_it_was_written(self) -> None:
        with self.ground() as ground:
            policy = Policy(Mode.READ_ONLY, ground.workspace)
            outcome = self.sh(r"printf 'a\000\377b'; printf err >&2", policy)
            assert outcome.stdout.head == b"a\0\xffb"
            assert outcome.stderr.head == b"err"

    # S6: hidden things, X5: the environment.

    def test_S6_hidden_paths_cannot_be_read(self) -> None:
        with self.ground() as ground:
            secret = uuid.uuid4().hex
            (ground.outside / "kept").write_text(secret)
            policy = Policy(Mode.READ_ONLY, ground.workspace, hidden=(ground.outside,))
            outcome = self.sh(f"cat {ground.outside}/kept", policy)
            assert secret not in outcome.stdout.text()

    def test_X5_the_environment_is_what_the_policy_says(self) -> None:
        with self.ground() as ground:
            policy = Policy(Mode.READ_ONLY, ground.workspace, env={"GIVEN": "yes"})
            os.environ["INTERLOCK_CONFORMANCE"] = secret = uuid.uuid4().hex
            try:
                outcome = self.sh("env; cat /proc/$PPID/environ 2>/dev/null", policy)
            finally:
                del os.environ["INTERLOCK_CONFORMANCE"]
            assert secret not in outcome.stdout.text()
            assert "GIVEN=yes" in outcome.stdout.text()

    def test_S6_no_descriptor_is_left_open(self) -> None:
        with self.ground() as ground:
            secret = uuid.uuid4().hex
            (ground.outside / "kept").write_text(secret)
            policy = Policy(Mode.READ_ONLY, ground.workspace, hidden=(ground.outside,))
            with (ground.outside / "kept").open() as file:
                os.set_inheritable(file.fileno(), True)
                outcome = self.sh(f"cat <&{file.fileno()} || cat /proc/self/fd/*", policy)
            assert secret not in outcome.stdout.text()

    # S7: nothing stays. S8: time.

    def test_S7_a_process_that_detaches_ends_with_the_command(self) -> None:
        if "leftover-processes" in self.gaps:
            return
        with self.ground() as ground:
            policy = Policy(Mode.WORKSPACE_WRITE, ground.workspace)
            os.mkfifo(ground.workspace / "held")
            held = os.open(ground.workspace / "held", os.O_RDONLY | os.O_NONBLOCK)
            try:
                stay = "exec 9>held; echo here >&9; echo > up; sleep 100"
                self.sh(
                    f"(setsid sh -c '{stay}' &); while ! [ -e up ]; do sleep 0.05; done", policy
                )
                assert os.read(held, 100) == b"here\n", "the test did not reach what it is for"
                # With a writer left this would say that there is nothing to read at the moment.
                assert os.read(held, 100) == b"", "it still runs"
            finally:
                os.close(held)

    def test_S8_a_command_that_takes_too_long_is_ended(self) -> None:
        with self.ground() as ground:
            policy = Policy(Mode.READ_ONLY, ground.workspace)
            outcome = self.sh("trap '' TERM; sleep 100 & wait; sleep 100", policy, timeout=0.5)
            assert outcome.status == "timeout"
            assert outcome.duration < PATIENCE

    def test_P4_a_cancelled_command_is_ended(self) -> None:
        with self.ground() as ground:
            policy, cancel = Policy(Mode.READ_ONLY, ground.workspace), CancelToken()
            threading.Timer(0.3, cancel.cancel).start()
            outcome = self.run(["/bin/sh", "-c", "sleep 100"], policy, 100.0, cancel)
            assert outcome.status == "cancelled"

    # S9: the network.

    def test_S9_without_network_nothing_on_this_machine_hears(self) -> None:
        if "network" in self.gaps:
            return
        with self.ground() as ground, socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.listen()
            server.settimeout(0.5)
            port = server.getsockname()[1]
            policy = Policy(Mode.READ_ONLY, ground.workspace)
            script = f"(echo x > /dev/tcp/127.0.0.1/{port}) 2>/dev/null"
            self.run(["/bin/bash", "-c", script], policy, PATIENCE)
            with contextlib.suppress(TimeoutError):
                server.accept()
                raise AssertionError("a command without network has connected")
