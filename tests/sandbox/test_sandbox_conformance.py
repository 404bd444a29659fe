"""S: the conformance class that ships, against every backend that this machine has."""

import pytest
from interlock.sandbox import probe, run
from interlock.sandbox.conformance import SandboxConformance


class _OfOurs(SandboxConformance):
    backend = ""

    @pytest.fixture(autouse=True)
    def usable(self, request):
        report = next((r for r in probe() if r.backend == self.backend), None)
        if report is None or not report.usable:
            pytest.skip(f"{self.backend}: {report.reason if report else 'not on this platform'}")
        type(self).gaps = report.gaps

    def run(self, argv, policy, timeout, cancel=None):
        return run(argv, policy, timeout=timeout, cancel=cancel, backends=(self.backend,))


class TestBubblewrap(_OfOurs):
    backend = "bwrap"


class TestLandlock(_OfOurs):
    backend = "landlock"


class Open(SandboxConformance):
    """No sandbox at all: it must not pass."""

    def run(self, argv, policy, timeout, cancel=None):
        from dataclasses import replace

        from interlock.sandbox import Mode

        wide = replace(policy, mode=Mode.DANGER_FULL_ACCESS, hidden=(), protected=())
        return run(argv, wide, timeout=timeout, cancel=cancel)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in dir(Open)
        if name.startswith(("test_S2_read", "test_S2_a_link", "test_S6_hidden", "test_S9"))
    ],
)
def test_what_holds_nothing_fails(name):
    with pytest.raises(AssertionError):
        getattr(Open(), name)()
