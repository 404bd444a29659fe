"""Each protection, how to take it away, and the probe that then gets through.

A protection without such a probe would be decoration; a probe that gets through with the protection
in place is an escape.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from interlock.sandbox import bwrap, landlock, launcher, runner, seccomp, standby
from interlock.sandbox.policy import Limits, Policy
from interlock.sandbox.protected import Protection

Off = Callable[[], AbstractContextManager[object]]
BOTH = ("bwrap", "landlock")


@dataclass(frozen=True)
class Switch:
    """name: of the protection. probe: what gets through without it. root: None for any user."""

    name: str
    backends: Sequence[str]
    probe: str
    off: Off
    mode: str = "workspace-write"
    root: bool | None = None


def flags(change: Callable[[list[str]], list[str]]) -> Off:
    """Change bubblewrap's argv."""

    def off() -> AbstractContextManager[object]:
        namespaces, view = bwrap.namespaces, bwrap.view
        return mock.patch.multiple(
            bwrap,
            namespaces=lambda *a: change(namespaces(*a)),
            view=lambda *a: change(view(*a)),
        )

    return off


def without(*words: str) -> Off:
    """Leave a run of words out of bubblewrap's argv."""
    return flags(lambda argv: instead(argv, words, ()))


def instead(argv: list[str], words: Sequence[str], new: Sequence[str]) -> list[str]:
    for at in range(len(argv) - len(words) + 1):
        if tuple(argv[at : at + len(words)]) == tuple(words):
            return [*argv[:at], *new, *argv[at + len(words) :]]
    return argv


def swapped(words: Sequence[str], new: Sequence[str]) -> Off:
    return flags(lambda argv: instead(argv, words, new))


def shut(name: str) -> tuple[str, ...]:
    return ("--ro-bind", "/dev/null", f"/proc/1/{name}")


def attribute(target: object, name: str, value: Any) -> Off:
    return lambda: mock.patch.object(target, name, value)


def code(module: str, old: str, new: str) -> Off:
    """Change the launcher's own code: prepared processes are made anew, before and after."""

    @contextlib.contextmanager
    def off() -> Iterator[None]:
        source = launcher._SOURCES[module]
        assert old.encode() in source, f"{old!r} is not in {module}"
        changed = source.replace(old.encode(), new.encode())
        with mock.patch.dict(launcher._SOURCES, {module: changed}):
            launcher._code.cache_clear()
            standby.close()
            try:
                yield
            finally:
                standby.close()
                launcher._code.cache_clear()

    return off


def of_policy(**changes: Any) -> Off:
    """Ignore a part of the policy."""

    @contextlib.contextmanager
    def off() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for module in (bwrap, landlock):
                build = module.build

                def changed(wanted: Policy, *a: Any, _build: Any = build) -> Any:
                    return _build(replace(wanted, **changes), *a)

                stack.enter_context(mock.patch.object(module, "build", changed))
            yield

    return off


def no_network_namespace() -> AbstractContextManager[object]:
    import __main__ as suite

    stack = contextlib.ExitStack()
    stack.enter_context(mock.patch.object(suite, "OPEN_NETWORK", True))
    stack.enter_context(without("--unshare-net")())
    return stack


def leaky_descriptors() -> AbstractContextManager[object]:
    stack = contextlib.ExitStack()
    described = launcher.Errand.described

    def keep(self: launcher.Errand, **more: object) -> bytes:
        return described(replace(self, keep=(*self.keep, 17)), **more)

    stack.enter_context(mock.patch.object(launcher.Errand, "described", keep))
    send = runner.send

    def with_it(to: Any, message: bytes, fds: Sequence[int] = ()) -> None:
        send(to, message, [*fds, 17] if message == b"become" else fds)

    stack.enter_context(mock.patch.object(runner, "send", with_it))
    return stack


def no_filter() -> AbstractContextManager[object]:
    return mock.patch.object(seccomp, "supported", return_value=False)


@contextlib.contextmanager
def nothing_always() -> Iterator[None]:
    """Let the filter pass what it refuses to everybody."""
    with mock.patch.object(seccomp, "_ALWAYS", ()):
        seccomp.assemble.cache_clear()
        yield
    seccomp.assemble.cache_clear()


@contextlib.contextmanager
def no_rules() -> Iterator[None]:
    """Leave files to everybody; the witness too, which would refuse in Landlock's place."""
    with (
        mock.patch.object(landlock, "files_handled", return_value=0),
        mock.patch.object(landlock, "_witness", return_value=None),
    ):
        yield


def filters(**changes: Any) -> Off:
    """Change what the filter is assembled from."""

    def off() -> AbstractContextManager[object]:
        made = seccomp.Filter

        def changed(**wanted: Any) -> seccomp.Filter:
            return made(**(wanted | changes))

        return mock.patch.object(seccomp, "Filter", changed)

    return off


SWITCHES = (
    Switch(
        "closed memory of its first process",
        ("bwrap",),
        "runner-memory",
        flags(lambda a: instead(instead(a, shut("mem"), ()), shut("task/1/mem"), ())),
    ),
    Switch(
        "read-only root",
        ("bwrap",),
        "abs-write",
        swapped(("--ro-bind", "/", "/"), ("--bind", "/", "/")),
    ),
    Switch(
        "pid namespace",
        ("bwrap",),
        "see-host-procs",
        flags(
            lambda a: instead(
                instead(a, ("--unshare-pid",), ()),
                ("--proc", "/proc"),
                ("--ro-bind", "/proc", "/proc"),
            )
        ),
    ),
    Switch("network namespace", ("bwrap",), "tcp-connect", no_network_namespace),
    Switch("IPC namespace", ("bwrap",), "sysv-shm", without("--unshare-ipc")),
    Switch("dropped capabilities", ("bwrap",), "caps", without("--cap-drop", "ALL"), root=True),
    Switch(
        "read-only kernel settings",
        ("bwrap",),
        "proc-sys",
        without("--ro-bind", "/proc/sys", "/proc/sys"),
        root=True,
    ),
    Switch(
        "private /tmp",
        ("bwrap",),
        "host-tmp",
        swapped(("--size", str(bwrap.TMP_BYTES), "--tmpfs", "/tmp"), ("--bind", "/tmp", "/tmp")),
    ),
    Switch(
        "private /run",
        ("bwrap",),
        "unix-run",
        flags(
            lambda a: instead(
                instead(a, ("--tmpfs", "/run"), ("--bind", "/run", "/run")),
                ("--remount-ro", "/run"),
                (),
            )
        ),
    ),
    Switch(
        "limited /dev/shm",
        ("bwrap",),
        "memory-shared",
        flags(
            lambda a: instead(
                a, ("--size", str(bwrap.SHM_BYTES), "--tmpfs", "/dev/shm"), ("--tmpfs", "/dev/shm")
            )
        ),
    ),
    Switch(
        "protected paths",
        ("bwrap",),
        "git-hook",
        attribute(bwrap, "protection", lambda *_: Protection()),
    ),
    Switch("system call filter", BOTH, "kernel-surface", no_filter),
    Switch("refused system calls", BOTH, "keyring", nothing_always),
    Switch("Landlock on files", ("landlock",), "abs-write", no_rules),
    Switch(
        "Landlock's scopes", ("landlock",), "kill-host", attribute(landlock, "scopes", lambda _: 0)
    ),
    Switch(
        "dropped capabilities",
        ("landlock",),
        "caps",
        code("confining", "        drop_capabilities()", "        pass"),
        root=True,
    ),
    Switch("no internet sockets", ("landlock",), "udp-send", filters(internet=True)),
    Switch("no System V IPC", ("landlock",), "sysv-shm", filters(ipc=True)),
    Switch("no metadata", ("landlock",), "chmod-out", filters(metadata=True), mode="read-only"),
    Switch("own process only", ("landlock",), "limits-host", filters(others=True)),
    Switch(
        "no devices",
        ("landlock",),
        "devices-read",
        attribute(landlock, "_closed", lambda *_: []),
        root=True,
    ),
    Switch(
        "ending of left-overs",
        ("landlock",),
        "leftover",
        code("supervisor", "if self.reap():  #", "if False:  #"),
    ),
    Switch("hidden paths", BOTH, "hidden-read", of_policy(hidden=())),
    Switch("limits: file size", BOTH, "disk-fill", of_policy(limits=Limits())),
    Switch("limits: processor time", BOTH, "cpu-spin", of_policy(limits=Limits())),
    Switch("limits: memory", BOTH, "memory-100g", of_policy(limits=Limits())),
    Switch("limits: processes", BOTH, "fork-bomb", of_policy(limits=Limits()), root=False),
    Switch("closed descriptors", BOTH, "inherited-fd", leaky_descriptors),
    Switch("clean environment", BOTH, "env-secret", of_policy(env=os.environ)),
)
