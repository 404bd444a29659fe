"""A cut point: everything that the platter holds or may hold at one moment, and the disks it means.

Each file and each name that changed since its last sync is an axis with its own choices; a disk is
one choice on every axis. Where there are more disks than are asked for, some are drawn by seed, the
emptiest and the fullest always among them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from .machine import Change, Directory, Entry, File, Machine
from .remains import Model, Remains

Tree = dict[str, bytes | None]
Node = File | Directory


class _FileThen(NamedTuple):
    durable: bytes
    changes: list[Change]
    count: int


class _DirectoryThen(NamedTuple):
    durable: dict[str, Node]
    changes: list[Entry]
    count: int


class _FileAxis:
    def __init__(self, file: File, then: _FileThen, model: Model, *, matters: bool) -> None:
        self.file = file
        self.matters = matters
        self.remains = Remains(then.durable, then.changes[: then.count], model)
        self.count = self.remains.count

    def draw(self, draw: random.Random) -> int:
        """Draw one of the choices."""
        return self.remains.draw(draw)


class _NameAxis:
    """What one name of a directory may lead to."""

    def __init__(self, directory: Directory, name: str, changes: list[Entry], old: Node | None):
        self.directory = directory
        self.name = name
        self.matters = not is_temporary(name)
        #: What the name may lead to, and what it gave way to in a rename.
        self.choices: list[tuple[Node | None, str | None]] = [(old, None)]
        self.choices += [(change.node, change.renamed) for change in changes]
        self.count = len(self.choices)

    def draw(self, draw: random.Random) -> int:
        """Draw one of the choices."""
        return draw.randrange(self.count)


class Cut:
    """One moment of a machine. Cheap to take; the disks are made when asked for."""

    def __init__(self, machine: Machine, operation: str) -> None:
        self.operation = operation
        self._root = machine.root
        self._files = {
            file: _FileThen(file.durable, file.pending, len(file.pending)) for file in machine.files
        }
        self._directories = {
            directory: _DirectoryThen(directory.durable, directory.pending, len(directory.pending))
            for directory in machine.directories
        }

    def disks(self, model: Model, limit: int, draw: random.Random) -> Iterator[Tree]:
        """Yield up to ``limit`` of the disks that a power cut at this moment could leave."""
        axes = self._axes(model)
        telling = [axis for axis in axes if axis.matters]
        counts = [axis.count for axis in telling]
        every = prod(counts)
        picks: Iterator[Sequence[int]]
        if every <= limit:
            picks = (_nth(number, counts) for number in range(every))
        else:
            picks = _drawn(telling, limit, draw)
        for pick in picks:
            rest = iter(pick)
            yield self._disk(
                [(axis, next(rest) if axis.matters else axis.draw(draw)) for axis in axes]
            )

    def any_disk(self, model: Model, draw: random.Random) -> Tree:
        """Return one of the disks that a power cut at this moment could leave."""
        return self._disk([(axis, axis.draw(draw)) for axis in self._axes(model)])

    def _axes(self, model: Model) -> list[_FileAxis | _NameAxis]:
        axes: list[_FileAxis | _NameAxis] = []
        names: dict[File, list[str]] = {}
        for directory, then in self._directories.items():
            changed: dict[str, list[Entry]] = {}
            for entry in then.changes[: then.count]:
                changed.setdefault(entry.name, []).append(entry)
                if isinstance(entry.node, File):
                    names.setdefault(entry.node, []).append(entry.name)
            for name, node in then.durable.items():
                if isinstance(node, File):
                    names.setdefault(node, []).append(name)
            axes += [
                _NameAxis(directory, name, changes, then.durable.get(name))
                for name, changes in changed.items()
            ]
        for file, state in self._files.items():
            if state.count and file in names:
                matters = not all(map(is_beside_the_point, names[file]))
                axes.append(_FileAxis(file, state, model, matters=matters))
        return axes

    def _disk(self, choices: list[tuple[_FileAxis | _NameAxis, int]]) -> Tree:
        contents: dict[File, bytes] = {}
        names: dict[Directory, dict[str, Node | None]] = {}
        renamed: list[tuple[Directory, str, str, Node]] = []
        for axis, index in choices:
            if isinstance(axis, _FileAxis):
                contents[axis.file] = axis.remains.content(index)
                continue
            node, new_name = axis.choices[index]
            names.setdefault(axis.directory, {})[axis.name] = node
            before = axis.choices[index - 1][0]
            if new_name is not None and before is not None:
                renamed.append((axis.directory, axis.name, new_name, before))
        for directory, old_name, new_name, node in renamed:
            # A rename takes the old name away only with the new one there.
            if names[directory].get(new_name) is not node:
                names[directory][old_name] = node
        tree: Tree = {}
        self._walk(self._root, "/", names, contents, tree)
        return tree

    def _walk(
        self,
        directory: Directory,
        prefix: str,
        names: dict[Directory, dict[str, Node | None]],
        contents: dict[File, bytes],
        tree: Tree,
    ) -> None:
        entries: dict[str, Node | None] = {
            **self._directories[directory].durable,
            **names.get(directory, {}),
        }
        for name, node in entries.items():
            if isinstance(node, File):
                content = contents.get(node)
                tree[prefix + name] = self._files[node].durable if content is None else content
            elif node is not None:
                tree[prefix + name] = None
                self._walk(node, f"{prefix}{name}/", names, contents, tree)


def is_temporary(name: str) -> bool:
    """Tell whether a name is that of a file which is no log if it is left over."""
    return name.endswith(".tmp")


def is_beside_the_point(name: str) -> bool:
    """Tell whether a file's content changes nothing that can be recovered."""
    return is_temporary(name) or name in ("session.lock", "lock")


def _nth(number: int, counts: list[int]) -> list[int]:
    pick: list[int] = []
    for count in counts:
        number, index = divmod(number, count)
        pick.append(index)
    return pick


def _drawn(
    axes: list[_FileAxis | _NameAxis], limit: int, draw: random.Random
) -> Iterator[list[int]]:
    yield [0] * len(axes)
    yield [axis.count - 1 for axis in axes]
    for _ in range(limit - 2):
        yield [axis.draw(draw) for axis in axes]
