"""What may reach the host, decided from the policy and the gaps that a backend must declare.

Never from what a backend happens to do: each entry names the gap, or why the mode allows it.
"""

from dataclasses import dataclass

from interlock.sandbox import Mode

#: Modes govern writes; reading is open except for hidden paths.
ALLOWED = {"read-secrets": "reading is allowed"}
#: The workspace is writable: a file in it that is also elsewhere, and files that tools run later.
#: The audit reports them.
ALLOWED_WRITES = dict.fromkeys(("hardlink-pre", "git-nested", "editor-config", "envrc"), "audit")
#: With the network on, the host's is the command's. Raw packets and VM sockets are not.
ALLOWED_NETWORK = dict.fromkeys(
    (
        *("tcp-connect", "tcp-fastopen", "tcp-bind", "udp-send", "tcp6", "mptcp"),
        *("listen-unbound", "netlink"),
    ),
    "network",
)
GAPS = {
    "unix-outside": "unix-sockets",
    "see-host-procs": "process-visibility",
    "unix-run": "unix-sockets",
    "unix-tmp": "unix-sockets",
    **dict.fromkeys(("chmod-out", "chown-out", "utime-out", "xattr-out"), "metadata"),
    **dict.fromkeys(
        ("git-hook", "git-config-rename", "git-dir-swap", "agent-config"), "protected-paths"
    ),
    "fork-bomb": "process-limit",
}
#: What a backend cannot do for a command, by mode. Read-only commands cannot write their workspace.
READ_ONLY_FAILS = {"git-commit-works", "fn-write-ws", "fn-chmod-ws", "fn-rename-ws"}
LANDLOCK_FAILS = {"fn-threads": "no /dev/shm", "fn-loopback": "no sockets without the network"}
#: Proves nothing, also unconfined: the attack itself is refused by every kernel.
NO_ATTACK = {"ftruncate-rofd"}
#: Refused by some kernels and file systems also without a sandbox.
NOT_EVERYWHERE = {"xattr-out", "mptcp", "tcp6", "netlink"}
#: The most that may get through, network off: what the first prototype of these profiles let by.
MOST = {
    ("bwrap", Mode.READ_ONLY): 2,
    ("bwrap", Mode.WORKSPACE_WRITE): 6,
    ("landlock", Mode.READ_ONLY): 5,
    ("landlock", Mode.WORKSPACE_WRITE): 19,
}


@dataclass(frozen=True)
class Case:
    """One row of the table. limited: whether the number of root's processes can be limited here."""

    backend: str
    mode: Mode
    network: bool
    root: bool
    limited: bool

    @property
    def declared(self) -> set[str]:
        """The gaps that the backend must name for this, no more and no fewer."""
        gaps = {"unix-sockets"}
        if self.backend == "landlock":
            gaps |= {"process-visibility"}
            writes = self.mode is Mode.WORKSPACE_WRITE
            gaps |= {"metadata", "protected-paths"} if writes else set()
        if self.root:
            gaps |= {"running-as-root"} | (set() if self.limited else {"process-limit"})
        return gaps

    @property
    def escapes(self) -> set[str]:
        """Probes that may reach the host."""
        allowed = set(ALLOWED)
        allowed |= set(ALLOWED_WRITES) if self.mode is Mode.WORKSPACE_WRITE else set()
        allowed |= set(ALLOWED_NETWORK) if self.network else set()
        escapes = allowed | {name for name, gap in GAPS.items() if gap in self.declared}
        if self.backend == "bwrap":
            escapes -= {"unix-tmp", "unix-run"}  # it has a /run and a /tmp of its own
        return escapes

    @property
    def failures(self) -> set[str]:
        """Function probes that cannot work."""
        failures = set(READ_ONLY_FAILS) if self.mode is Mode.READ_ONLY else set()
        if self.backend == "landlock":
            failures |= set(LANDLOCK_FAILS) - ({"fn-loopback"} if self.network else set())
        return failures

    def problems(self, results: dict[str, str]) -> list[str]:
        """What is not as it should be, in words; empty where all is well."""
        through = {name for name, result in results.items() if result.startswith("ESCAPE")}
        failed = {name for name, result in results.items() if result == "FAIL"}
        if self.mode is Mode.WORKSPACE_WRITE and results.get("xattr-out") == "INFO":
            through.add("xattr-out")
        found = [f"{name} reached the host undeclared" for name in sorted(through - self.escapes)]
        missing = self.escapes & results.keys() - through - NOT_EVERYWHERE
        found += [f"{name} did not get through: that gap is not real" for name in sorted(missing)]
        found += [f"{name} fails" for name in sorted(failed - self.failures)]
        found += [f"{name} works, which cannot be" for name in sorted(self.failures - failed)]
        for name, result in sorted(results.items()):
            known = result in ("OK", "FAIL", "INFO", "BLOCKED") or result.startswith("ESCAPE")
            if not known and name not in NO_ATTACK:
                found.append(f"{name} came to no result: {result[:200]}")
        most = MOST.get((self.backend, self.mode))
        if not self.network and most is not None and len(through) > most:
            found.append(f"{len(through)} probes got through, {most} at most are to")
        return found
