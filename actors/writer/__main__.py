"""``python -m interlock.actors.writer``: the writer's process."""

from ..process import run_owner
from .actor import WriterActor

if __name__ == "__main__":
    run_owner(WriterActor)
