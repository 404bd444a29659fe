"""What a failed command was refused, known from the sandbox; and a guess where nothing is known.

The guess comes from the command's complaint, checked against the policy.

Its question is counterfactual: would this have worked outside? A path is evidence only if the
policy keeps it closed *and* the user could have written it without a sandbox. What a mechanism
could not have refused, or the user could not have done anyway, is an ordinary failure.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from .confined import Backend
from .policy import Mode, Policy, inside
from .status import Refusal

#: Names of what programs keep for themselves and go on without: a refusal of these ends nothing.
_CACHES = frozenset(
    {"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".cache"}
)
#: Refusals that are named in one sentence.
_NAMED = 3


def counted(refused: Sequence[Refusal]) -> str | None:
    """The refusals that a command may have failed for, the last ones first, or None."""
    telling = [r for r in refused if not _CACHES & {*Path(r.what).parts}]
    if not telling:
        return None
    words = ", ".join(str(refusal) for refusal in reversed(telling[-_NAMED:]))
    more = len(telling) - _NAMED
    return f"{words} and {more} more" if more > 0 else words


#: How each backend's refusals reach the command, as C library texts.
_REFUSALS: dict[Backend, tuple[str, ...]] = {
    "bwrap": ("Read-only file system", "Invalid cross-device link", "Device or resource busy"),
    "landlock": ("Permission denied", "Operation not permitted", "Invalid cross-device link"),
    "seatbelt": ("Operation not permitted",),
    "none": (),
}
_NETWORK = (
    *("Network is unreachable", "Could not resolve host", "Temporary failure in name resolution"),
    "Name or service not known",
)
#: Bytes at the end of the error stream that are looked at.
LOOK = 8192
_PATHS = re.compile(r"""['"‘’`]([^'"‘’`\n]+)['"‘’`]|(?:^|[\s:=])(/[^\s:'"]+|\.{1,2}/[^\s:'"]+)""")


def evidence(complaint: bytes, policy: Policy, backend: Backend) -> str | None:
    """What shows that the sandbox refused something, in words, or None.

    complaint: the end of the command's error stream. The command wrote it, so this is a guess: good
    for a message and a retry offer, never for widening anything.
    """
    for line in reversed(complaint[-LOOK:].decode(errors="replace").splitlines()):
        if any(text in line for text in _REFUSALS[backend]):
            for path in mentioned(line, policy.start):
                if refused(path, policy):
                    return f"{path} cannot be written in mode {policy.mode}"
        if not policy.network and any(text in line for text in _NETWORK):
            return "the network is off in this sandbox"
    return None


def mentioned(line: str, start: Path) -> list[Path]:
    """Paths that a line of error output names, made absolute."""
    # "program: what: why": the program is not what was refused.
    said = line.partition(": ")[2] or line
    words = [quoted or bare for quoted, bare in _PATHS.findall(said)]
    for part in said.split(": ")[:-1]:
        word = part.strip().removeprefix("cannot create ")
        if " " not in word and not word.isdigit():
            words.append(word)
    found = [Path(os.path.normpath(start / w)) for w in words if w and "\0" not in w]
    return list(dict.fromkeys(found))


def refused(path: Path, policy: Policy) -> bool:
    """Whether the policy keeps ``path`` closed although this user could write it."""
    real = Path(os.path.realpath(path))
    if inside(real, policy.hidden):
        return True
    open_ = inside(real, policy.roots)
    guarded = policy.mode is Mode.WORKSPACE_WRITE and bool({".git", ".agent"} & {*real.parts})
    if open_ and not guarded:
        return False
    target = real if real.exists() else real.parent
    return target.exists() and os.access(target, os.W_OK)
