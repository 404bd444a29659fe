"""Which tree the demo works on, and that it never touches it."""

import os
from pathlib import Path

import pytest
from interlock.actors.demo.script import parts
from interlock.actors.demo.tree import MAX_FILE_BYTES, NoTreeError, find_tree


def test_a_directory_without_text_files_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NoTreeError, match=str(tmp_path)):
        find_tree(tmp_path)
    with pytest.raises(NoTreeError, match="missing"):
        find_tree(tmp_path / "missing")


def test_the_current_directory_is_taken_where_it_has_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    assert find_tree(None).path == tmp_path.resolve()


def test_elsewhere_the_installed_package_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = find_tree(None)
    assert tree.label == "the installed package"
    assert "release.py" in tree.files


def test_a_copy_holds_no_links_nothing_large_and_nothing_generated(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "__pycache__").mkdir(parents=True)
    (source / "a.py").write_text("x = 1\n")
    (source / "b.py").write_text("#" * (MAX_FILE_BYTES + 1))
    (source / "__pycache__" / "c.py").write_text("x = 1\n")
    os.symlink("/etc/passwd", source / "d.py")
    find_tree(source).copy(target)
    assert [path.name for path in target.rglob("*")] == ["a.py"]


@pytest.mark.parametrize("agents", [2, 3, 8, 19])
def test_every_chapter_is_told_by_few_agents_and_by_many(tmp_path: Path, agents: int) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    cast = parts(find_tree(tmp_path), agents, [tmp_path / f"out{n}" for n in range(agents)])
    assert len({part.name for part in cast}) == agents
    called = {name for part in cast for say in part.script for name, _ in say.calls}
    assert {"convert", "publish", "purge", "run_command", "search", "write_note"} <= called


def test_the_same_tree_gives_the_same_scripts(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    tree = find_tree(tmp_path)
    outside = [tmp_path / "o"] * 8
    assert parts(tree, 8, outside) == parts(tree, 8, outside)
