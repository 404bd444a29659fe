"""The file tools: what they do, and that they stay in the working directory."""

import os
from pathlib import Path

import pytest
from interlock.actors.hosting.tools import list_files, read_file, run_command, search, write_file
from interlock.actors.tools import ToolContext, ToolFailure


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "a.py").write_text("import os\n\ndef f(): pass\n")
    (work / "sub" / "b.txt").write_text("x" * 20_005)
    (tmp_path / "secret").write_text("no")
    os.symlink(tmp_path / "secret", work / "link")
    return ToolContext(cwd=str(work))


def test_reading_and_going_on(ctx: ToolContext) -> None:
    assert read_file(ctx, "a.py").startswith("import os")
    assert "[5 more characters; go on at offset 20000]" in read_file(ctx, "sub/b.txt")
    assert read_file(ctx, "sub/b.txt", offset=20_000) == "xxxxx"


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "link", "sub/../../secret", "a\0b"])
def test_S10_a_model_names_nothing_outside_the_working_directory(
    ctx: ToolContext, path: str
) -> None:
    with pytest.raises(ToolFailure):
        read_file(ctx, path)
    with pytest.raises(ToolFailure):
        write_file(ctx, path, "x")


def test_a_session_without_a_directory_is_told_so() -> None:
    with pytest.raises(ToolFailure, match="no working directory"):
        list_files(ToolContext())


def test_listing_leaves_links_out(ctx: ToolContext) -> None:
    assert list_files(ctx) == ["a.py", "sub/b.txt"]
    assert list_files(ctx, "*.py") == ["a.py"]


def test_searching_names_file_and_line(ctx: ToolContext) -> None:
    assert search(ctx, r"^def ") == ["a.py:3: def f(): pass"]
    with pytest.raises(ToolFailure, match="no regular expression"):
        search(ctx, "(")


def test_writing_replaces_the_whole_file_and_leaves_nothing_else(ctx: ToolContext) -> None:
    assert write_file(ctx, "new/c.txt", "héllo") == {"path": "new/c.txt", "bytes": 6}
    write_file(ctx, "new/c.txt", "x")
    assert os.listdir(Path(ctx.cwd) / "new") == ["c.txt"]
    assert read_file(ctx, "new/c.txt") == "x"


def test_a_command_is_only_said(ctx: ToolContext) -> None:
    assert run_command(["ls"], timeout=3).argv == ["ls"]
