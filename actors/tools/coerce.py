"""From the model's JSON to Python arguments, in the process where the body runs."""

from __future__ import annotations

from typing import Any

import pydantic

from .failure import InvalidArgumentsError
from .signature import Signature

#: Problems named in one message; the model mends those and learns of the rest.
_SHOWN = 5


class Coercer:
    """Reads the arguments of one tool. Made once per tool and process; used from any thread."""

    def __init__(self, tool: str, signature: Signature, model: type[pydantic.BaseModel]) -> None:
        self._tool = tool
        self._model = model
        self._names = {f"a{i}": p.name for i, p in enumerate(signature.parameters)}

    def __call__(self, arguments: bytes) -> dict[str, Any]:
        """Return the keyword arguments that the JSON object gives; absent ones keep their defaults.

        :raises InvalidArgumentsError: what does not fit, by path.
        """
        try:
            read = self._model.model_validate_json(arguments or b"{}")
        except pydantic.ValidationError as error:
            raise InvalidArgumentsError(self._explain(error)) from None
        except Exception as error:
            # A validator in the tool's own types raised something else: no less a refusal.
            problem = f"{type(error).__name__}: {error}"
            raise InvalidArgumentsError(f"arguments of {self._tool}: {problem}") from error
        return {self._names[field]: getattr(read, field) for field in read.model_fields_set}

    def _explain(self, error: pydantic.ValidationError) -> str:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        lines = [_line(problem) for problem in problems[:_SHOWN]]
        if len(problems) > _SHOWN:
            lines.append(f"and {len(problems) - _SHOWN} more")
        return f"arguments of {self._tool} do not fit: " + "; ".join(lines)


def _line(problem: Any) -> str:
    path = ".".join(str(part) for part in problem["loc"])
    return f"{path}: {problem['msg']}" if path else str(problem["msg"])
