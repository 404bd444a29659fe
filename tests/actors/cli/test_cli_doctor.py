"""``interlock doctor``: what this machine offers, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from interlock.actors.cli.disk_report import DiskReport, warnings
from interlock.backends.mounts import Mount, find_mount
from interlock.sandbox import best


def test_the_json_that_other_programs_rely_on(cli):
    ran = cli("doctor", "--json")
    document = ran.json
    assert {row["backend"] for row in document["sandbox"]}
    assert set(document["sandbox"][0]) == {"backend", "usable", "enforcement", "gaps", "reason"}
    assert document["disk"]["root"] == str(cli.root)
    assert document["disk"]["file_system"]
    assert document["disk"]["sync_us"] > 0
    assert document["limits"]["open_files_soft"] > 0
    assert document["runtimes"] == []
    assert document["runtime_directory"]["mode"] == "0700"
    assert ran.status == (0 if best() is not None else 1)


def test_measuring_leaves_nothing_and_makes_no_root(cli):
    cli("doctor")
    assert not cli.root.exists()
    cli.root.mkdir()
    cli("doctor")
    assert list(cli.root.iterdir()) == []


def test_S10_it_says_which_bodies_are_confined(cli):
    bodies = cli("doctor", "--json").json["bodies"]
    assert bodies["worker"]["confined"] is False
    assert bodies["host"]["confined"] is False
    assert bodies["sandbox"]["confined"] is (best() is not None)
    out = cli("doctor").out
    assert 'place="sandbox"' in out
    assert "not confined" in out
    assert "What to do" in out


def test_a_root_that_cannot_be_written_is_status_1_with_advice(cli):
    ran = cli("doctor", "--root", "/proc/nowhere", "--json")
    assert ran.status == 1
    assert ran.json["disk"]["writable"] is False
    assert any("/proc" in line for line in ran.json["advice"])


def test_running_runtimes_are_named(cli, live):
    [runtime] = cli("doctor", "--json").json["runtimes"]
    assert runtime["pid"] == live.process.pid
    assert runtime["root"] == str(cli.root)


TABLE = """\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,data=writeback
22 21 0:20 / /srv/my\\040logs rw - nfs4 host:/logs rw,vers=4.2
23 21 0:21 / /srv rw - tmpfs tmpfs rw
24 23 0:22 / /srv rw - xfs /dev/sdb ro
malformed line
"""


@pytest.mark.parametrize(
    ("path", "point", "type_"),
    [
        ("/var/x", "/", "ext4"),
        ("/srv/my logs/a", "/srv/my logs", "nfs4"),
        ("/srv/my logs2", "/srv", "xfs"),  # a later mount covers the earlier one
        ("/srvx", "/", "ext4"),
    ],
)
def test_the_mount_of_a_path_is_found(path, point, type_):
    mount = find_mount(TABLE, path)
    assert (mount.point, mount.type) == (point, type_)


@pytest.mark.parametrize(
    ("mount", "word"),
    [
        (Mount("nfs4", "host:/x", "/x", "rw"), "network"),
        (Mount("fuse.sshfs", "host:", "/x", "rw"), "FUSE"),
        (Mount("tmpfs", "tmpfs", "/x", "rw"), "memory"),
        (Mount("ext4", "/dev/sda", "/x", "rw,data=writeback"), "data=ordered"),
        (Mount("ext4", "/dev/sda", "/x", "ro"), "read-only"),
        (Mount("overlay", "overlay", "/x", "rw"), "volume"),
    ],
)
def test_disks_that_break_the_assumptions_are_warned_of(mount, word):
    [told] = warnings(_report(mount))
    assert word in told


def test_a_plain_disk_needs_no_warning():
    assert warnings(_report(Mount("ext4", "/dev/sda", "/", "rw,relatime"))) == []


def _report(mount):
    return DiskReport(Path("/x"), Path("/x"), mount, 900.0, 2000.0, 1 << 40, None)
