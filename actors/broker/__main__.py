"""``python -m interlock.actors.broker``: the broker's process."""

from ..process import run_owner
from .actor import BrokerActor

if __name__ == "__main__":
    run_owner(BrokerActor)
