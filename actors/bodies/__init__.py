"""How tool bodies run inside one process, and how their arguments are checked before that."""

from .runner import BodyDone, BodyJob, BodyRunner, RunningBody

__all__ = ["BodyDone", "BodyJob", "BodyRunner", "RunningBody"]
