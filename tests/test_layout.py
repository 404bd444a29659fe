"""The design's layout, enforced: what imports what, and what is installed."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("actors", "backends", "sandbox")
MAY_IMPORT = {"actors": {"backends", "sandbox"}, "backends": set(), "sandbox": set()}


def modules(part: str) -> list[Path]:
    return sorted((ROOT / part).rglob("*.py"))


def imported_parts(path: Path, part: str) -> set[str]:
    """Which parts of the package the module imports, relative imports resolved."""
    package = ["interlock", part, *path.relative_to(ROOT / part).parent.parts]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *filter(None, [node.module])])
            names = [name, *(f"{name}.{alias.name}" for alias in node.names)]
        for name in names:
            pieces = name.split(".")
            assert pieces[0] not in PARTS, f"{path}: import interlock.{name}, never bare {name}"
            if pieces[0] == "interlock" and len(pieces) > 1:
                found.add(pieces[1])
    return found


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_only_what_it_may(part):
    assert modules(part)
    for path in modules(part):
        foreign = imported_parts(path, part) - MAY_IMPORT[part] - {part}
        assert not foreign, f"{path.relative_to(ROOT)} imports interlock.{foreign.pop()}"


def test_interlock_itself_is_a_namespace_without_code():
    assert not (ROOT / "interlock").exists()
    assert not (ROOT / "__init__.py").exists()
    script = "import interlock; print(interlock.__file__, sorted(vars(interlock)))"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert out.stdout.startswith("None ")


def test_the_packages_that_are_installed_are_those_on_disk():
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    on_disk = {
        ".".join(["interlock", *path.parent.relative_to(ROOT).parts])
        for part in PARTS
        for path in modules(part)
    }
    assert set(setuptools["packages"]) == on_disk
    assert set(setuptools["package-dir"]) == {f"interlock.{part}" for part in PARTS}


def test_every_folder_with_modules_is_a_package():
    for part in PARTS:
        for path in modules(part):
            assert (path.parent / "__init__.py").exists(), path.parent.relative_to(ROOT)


def test_every_public_name_loads_and_nothing_loads_before_it_is_used():
    script = (
        "import sys, interlock.actors as actors\n"
        "early = [m for m in ('zmq', 'pykka', 'pydantic') if m in sys.modules]\n"
        "assert actors.__all__ == sorted(set(actors.__all__)), actors.__all__\n"
        "missing = [n for n in actors.__all__ if getattr(actors, n, None) is None]\n"
        "assert set(actors.__all__) <= set(dir(actors))\n"
        "print(early, missing)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert out.stdout.strip() == "[] []"


def test_type_checkers_see_the_same_public_names_as_programs():
    tree = ast.parse((ROOT / "actors" / "__init__.py").read_text())
    seen = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        for inner in node.body
        if isinstance(inner, ast.ImportFrom)
        for alias in inner.names
    }
    script = "import interlock.actors; print(*interlock.actors.__all__)"
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert seen == set(out.stdout.split())


@pytest.mark.parametrize("part", PARTS)
def test_every_part_says_that_it_is_typed(part):
    assert (ROOT / part / "py.typed").exists()
