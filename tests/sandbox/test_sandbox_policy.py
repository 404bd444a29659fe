"""S2, S4, X5: what a policy may say."""

import pytest
from interlock.sandbox import Limits, Mode, Policy, PolicyError, wider
from interlock.sandbox.policy import base_environment


def test_S4_wider_is_a_strict_order():
    order = [Mode.READ_ONLY, Mode.WORKSPACE_WRITE, Mode.DANGER_FULL_ACCESS]
    for i, a in enumerate(order):
        for j, b in enumerate(order):
            assert wider(a, b) is (i > j)


@pytest.mark.parametrize(
    "path", ["/", "/tmp", "/run", "/proc", "/sys", "/dev", "/proc/self", "/usr"]
)
def test_S2_a_workspace_too_wide_is_refused(path):
    with pytest.raises(PolicyError, match="cannot be a workspace"):
        Policy(Mode.WORKSPACE_WRITE, path)


def test_S2_home_is_no_workspace_but_can_be_read(place, monkeypatch):
    monkeypatch.setenv("HOME", str(place.workspace))
    with pytest.raises(PolicyError, match="keys and settings"):
        Policy(Mode.WORKSPACE_WRITE, place.workspace)
    with pytest.raises(PolicyError, match="keys and settings"):
        Policy(Mode.WORKSPACE_WRITE, place.workspace.parent)
    assert Policy(Mode.READ_ONLY, place.workspace).roots == ()


def test_S2_a_workspace_is_what_the_kernel_walks_to(place):
    (place.outside / "sub").mkdir()
    link = place.workspace / "link"
    link.symlink_to(place.outside / "sub")
    # Lexically this is the workspace; the kernel goes through the link first.
    assert Policy(Mode.READ_ONLY, link / "..").workspace == place.outside


@pytest.mark.parametrize("name", ["missing", "file"])
def test_S3_a_workspace_that_is_no_directory_is_refused(place, name):
    (place.workspace / "file").write_text("")
    with pytest.raises(PolicyError, match="cannot be used"):
        Policy(Mode.READ_ONLY, place.workspace / name)


def test_S6_a_workspace_inside_a_hidden_path_is_refused(place):
    with pytest.raises(PolicyError, match="hides"):
        Policy(Mode.READ_ONLY, place.workspace, hidden=(place.workspace.parent,))


def test_S1_unknown_requirements_and_modes_are_refused(place):
    with pytest.raises(PolicyError, match="unknown requirement"):
        Policy(Mode.READ_ONLY, place.workspace, require=frozenset({"magic"}))
    with pytest.raises(PolicyError, match="unknown sandbox mode"):
        Policy("mostly-harmless", place.workspace)


def test_S2_limits_must_be_positive():
    with pytest.raises(PolicyError, match="cpu_seconds"):
        Limits(cpu_seconds=0)


def test_X5_only_harmless_variables_are_inherited(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("LD_PRELOAD", "x")
    monkeypatch.setenv("LC_TIME", "C")
    env = base_environment("/somewhere")
    assert env["LC_TIME"] == "C"
    assert env["TMPDIR"] == "/somewhere"
    assert not {"AWS_SECRET_ACCESS_KEY", "LD_PRELOAD"} & env.keys()


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"": "x"}, {"A": "x\0y"}, {"A": 1}])
def test_X5_malformed_variables_are_refused(place, env):
    with pytest.raises(PolicyError, match="environment variable"):
        Policy(Mode.READ_ONLY, place.workspace, env=env)
