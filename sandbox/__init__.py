"""What a command may touch: policies, and one module per mechanism that enforces them."""

from .confine import confine
from .confined import Confined
from .errors import SandboxUnavailable
from .gaps import GAPS
from .output import Output
from .policy import PROPERTIES, Limits, Mode, Policy, PolicyError, wider
from .probe import BackendReport, best, probe
from .run import Outcome, run
from .watch import CancelToken

__all__ = [
    "GAPS",
    "PROPERTIES",
    "BackendReport",
    "CancelToken",
    "Confined",
    "Limits",
    "Mode",
    "Outcome",
    "Output",
    "Policy",
    "PolicyError",
    "SandboxUnavailable",
    "best",
    "confine",
    "probe",
    "run",
    "wider",
]
