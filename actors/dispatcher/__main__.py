"""``python -m interlock.actors.dispatcher``: the dispatcher's process."""

from ..process import run_owner
from .actor import DispatcherActor

if __name__ == "__main__":
    run_owner(DispatcherActor)
