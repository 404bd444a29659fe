"""The shell of the approval broker."""

from __future__ import annotations

from ..owner import Core, Owner
from .core import BrokerCore


class BrokerActor(Owner):
    """Owns the open requests; see :class:`~interlock.actors.broker.core.BrokerCore`."""

    def make_core(self) -> Core:
        return BrokerCore(self, self.end, waits=bool(self.config.options.get("waits", False)))
