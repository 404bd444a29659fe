"""Descriptions out of a docstring: the tool's own, and its parameters' (Google, NumPy, Sphinx)."""

from __future__ import annotations

import inspect
import re

_GOOGLE_HEADING = re.compile(r"(Args|Arguments|Parameters):\s*\Z")
_OTHER_HEADING = re.compile(r"(Returns|Yields|Raises|Examples?|Notes?|See Also|Warnings?):\s*\Z")
_GOOGLE_ENTRY = re.compile(r"(?P<indent>\s+)\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?:\s*(?P<text>.*)\Z")
_SPHINX_ENTRY = re.compile(r":param\s+(?:[\w\[\], |.]+\s+)?(?P<name>\w+):\s*(?P<text>.*)\Z")
_SPHINX_OTHER = re.compile(r":(type|returns?|rtype|raises?)\b.*:")
_NUMPY_NAME = re.compile(r"(?P<name>\w+)\s*(:.*)?\Z")


def read_docstring(text: str | None) -> tuple[str, dict[str, str]]:
    """Return the description without its parameter section, and the parameters' descriptions."""
    lines = inspect.cleandoc(text or "").split("\n")
    description: list[str] = []
    parameters: dict[str, list[str]] = {}
    index = 0
    while index < len(lines):
        line = lines[index]
        underlined = (
            index + 1 < len(lines) and re.fullmatch(r"-{3,}\s*", lines[index + 1]) is not None
        )
        if _GOOGLE_HEADING.match(line):
            index = _google(lines, index + 1, parameters)
        elif underlined and line.strip() == "Parameters":
            index = _numpy(lines, index + 2, parameters)
        elif _SPHINX_ENTRY.match(line):
            index = _sphinx(lines, index, parameters)
        elif _OTHER_HEADING.match(line) or underlined or _SPHINX_OTHER.match(line):
            index = _skip(lines, index + 1)
        else:
            description.append(line)
            index += 1
    found = {name: " ".join(" ".join(parts).split()) for name, parts in parameters.items()}
    return "\n".join(description).strip(), {name: text for name, text in found.items() if text}


def _google(lines: list[str], index: int, parameters: dict[str, list[str]]) -> int:
    indent: str | None = None
    current: list[str] = []
    while index < len(lines) and (not lines[index].strip() or lines[index][0].isspace()):
        entry = _GOOGLE_ENTRY.match(lines[index])
        if entry and indent in (None, entry["indent"]):
            indent = entry["indent"]
            current = parameters.setdefault(entry["name"], [])
            current.append(entry["text"])
        else:
            current.append(lines[index])
        index += 1
    return index


def _numpy(lines: list[str], index: int, parameters: dict[str, list[str]]) -> int:
    current: list[str] = []
    while index < len(lines):
        line = lines[index]
        if index + 1 < len(lines) and re.fullmatch(r"-{3,}\s*", lines[index + 1]):
            break  # the next section's heading
        if line[:1].isspace() or not line:
            current.append(line)
        else:
            name = _NUMPY_NAME.match(line)
            if name is None:
                break
            current = parameters.setdefault(name["name"], [])
        index += 1
    return index


def _sphinx(lines: list[str], index: int, parameters: dict[str, list[str]]) -> int:
    entry = _SPHINX_ENTRY.match(lines[index])
    if entry is None:
        return index + 1
    current = parameters.setdefault(entry["name"], [])
    current.append(entry["text"])
    index += 1
    while index < len(lines) and lines[index][:1].isspace():
        current.append(lines[index])
        index += 1
    return index


def _skip(lines: list[str], index: int) -> int:
    """Pass over a section that a model has no use for: its indented or underlined body."""
    while index < len(lines) and lines[index].strip():
        index += 1
    return index
