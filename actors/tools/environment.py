"""X5: the environment of a worker. Nothing passes but what is listed or named by the caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: What a Python process and ordinary programs need to start and to speak the user's language.
ALLOWED = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "TMPDIR",
        "TMP",
        "TEMP",
        "VIRTUAL_ENV",
        "LD_LIBRARY_PATH",
        "DYLD_LIBRARY_PATH",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "PYTHONPATH",
        "PYTHONHOME",
        "PYTHONUTF8",
        "PYTHONIOENCODING",
        "PYTHONHASHSEED",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONPYCACHEPREFIX",
        "PYTHONNOUSERSITE",
        "PYTHONUSERBASE",
    }
)
#: The locale's categories.
ALLOWED_PREFIX = "LC_"


def worker_environment(source: Mapping[str, str], named: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment for a worker process.

    :param source: the environment to choose from, as a rule ``os.environ``.
    :param named: further variables to let through, by their exact names; unset ones are left out.
    :raises ValueError: a name that no variable can have, or a pattern: each secret is named.
    """
    wanted = set(named)
    for name in wanted:
        if not name or any(c in name for c in "=*?\0"):
            raise ValueError(f"{name!r} is not the name of an environment variable; name each one")
    return {
        name: value
        for name, value in source.items()
        if name in ALLOWED or name.startswith(ALLOWED_PREFIX) or name in wanted
    }
