"""What can go wrong before a command starts."""

from collections.abc import Sequence


class SandboxUnavailable(Exception):  # noqa: N818 the name is the code that callers see
    """No backend can hold this policy here. Nothing was run (S3).

    code: always ``SANDBOX_UNAVAILABLE``.
    mode: the mode that was asked for.
    tried: each backend that was considered, with the reason it was not used.
    """

    code = "SANDBOX_UNAVAILABLE"

    def __init__(self, mode: str, tried: Sequence[tuple[str, str]]) -> None:
        self.mode = str(mode)
        self.tried = list(tried)
        reasons = "; ".join(f"{backend}: {reason}" for backend, reason in self.tried)
        super().__init__(
            f"no sandbox can hold mode {self.mode} here, so nothing was run "
            f"({reasons or 'no backend was named'}). `interlock doctor` shows what there is."
        )

    def __reduce__(self) -> tuple[type, tuple[str, list[tuple[str, str]]]]:
        return (type(self), (self.mode, self.tried))
