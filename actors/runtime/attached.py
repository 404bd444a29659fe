"""A client: a program that attaches to a runtime which another process hosts (X4).

It creates, opens, calls and subscribes; tools run where the host has them. It starts and supervises
nothing: the host tells it where the owners are. When the host's end of the connection goes, the
attachment is over and everybody who waits is told so.
"""

from __future__ import annotations

import atexit
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import zmq
from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError

from ..errors import RuntimeFailureError
from ..keys import ClientKey
from ..mailbox import Batch
from ..messages import Attach, Attached, Message, PeerChanged, PeerGone, StillThere
from ..port import PeerLostError, ReplyTimeoutError
from ..roles import OWNERS, Role
from ..tools.spec import ToolSpec
from .connected import ConnectedCore
from .connection import Connection
from .flow import Flow, in_thread, run_sync

#: Seconds within which the host must answer.
ATTACH_TIMEOUT = 15.0
#: Seconds that the end of a program gives its sessions.
LEAVE_TIMEOUT = 2.0


class ClientActor(Connection):
    """The client's connections to the host and the owners; see the module's docstring."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        address: str,
        key: ClientKey,
        made: Callable[[ClientActor], None],
    ) -> None:
        super().__init__()
        made(self)
        self._context, self._address, self._key = context, address, key
        self._pids: dict[str, int] = {}
        self.attached: Future[Attached] = Future()

    def pids(self) -> dict[str, int]:
        return dict(self._pids)

    # The client's thread.

    def on_start(self) -> None:
        self._mailbox.use(self._context, self._key.keys, Role.CLIENT)
        self._mailbox.connect(Role.HOST, self._address, self._key.host_public, watched=True)
        asked = self._requests.ask(Role.HOST, Attach, ATTACH_TIMEOUT)

        def answered() -> None:
            try:
                self._attached(asked.result())
            except (InterlockError, PeerLostError, ReplyTimeoutError) as error:
                self._give_up(str(error))

        asked.then(answered)

    def _attached(self, word: Attached) -> None:
        self._mailbox.use_keys(word.public_key, word.secret_key)
        self.attached.set_result(word)
        for owner in word.owners:
            self._changed(owner)

    def _receive(self, batch: Batch) -> None:
        super()._receive(batch)
        for why in batch.lost[:1]:
            self._give_up(why)

    def hear(self, message: Message) -> bool:
        """What the host says unasked."""
        match message:
            case PeerChanged():
                self._changed(message)
            case PeerGone(role, incarnation):
                self._gone(Role(role), incarnation)
            case StillThere():
                pass
            case _:
                return False
        return True

    def _changed(self, word: PeerChanged) -> None:
        role = Role(word.role)
        if self.incarnation(role) == word.incarnation:
            return
        if role in self._incarnations:
            self._gone(role, self._incarnations[role])
        self._pids[word.role] = word.pid
        self._mailbox.connect(role, word.endpoint, word.public_key)
        self._owner_is_back(role, word.incarnation)

    def _gone(self, role: Role, incarnation: str) -> None:
        if self._incarnations.get(role) == incarnation:
            self._owner_is_gone(role)
            self.restarts.append((role, "the host replaces it"))
            self.owner_lost(role)

    def _give_up(self, why: str) -> None:
        """The attachment is over: there is nobody who could tell what becomes of the owners."""
        if self.failure is not None:
            return
        self._mailbox.disconnect(Role.HOST)
        if self.attached.done():
            text = f"the runtime at {self._address} has ended or let go of this client ({why})"
        else:
            text = f"no runtime could be attached to at {self._address} ({why})"
        error = RuntimeFailureError(Code.ACTOR_LOST, text)
        for role in OWNERS:
            if role in self._incarnations:
                self._owner_is_gone(role)
        self._fail(error)
        self.owner_lost(Role.WRITER)
        if not self.attached.done():
            self.attached.set_exception(error)


class ClientCore(ConnectedCore):
    """One attachment of this process to a runtime."""

    def __init__(self, address: str, key: str) -> None:
        self._address, self._key = address, ClientKey.parse(key)
        if not address.startswith(("ipc://", "tcp://")):
            raise ValueError(f"{address!r} is no address; take runtime.address of the runtime")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._setting: Attached | None = None
        self._reference = ClientActor.start(self._context, address, self._key, self._use)

    def _use(self, client: ClientActor) -> None:
        """Take the actor's calls before it makes any."""
        self._client = client
        super().__init__(client)
        client.told = self._take
        client.owner_lost = self._owner_lost

    def started(self) -> Flow[None]:
        """Wait until the host has let this client in and every owner is connected."""
        atexit.register(self.close_now)
        try:
            self._setting = yield self._client.attached
            yield self._client.ready
        except BaseException:
            yield from self.closed(grace=0.0, timeout=LEAVE_TIMEOUT)
            raise

    def _take(self, role: Role, message: Message) -> None:
        if role is not Role.HOST or not self._client.hear(message):
            self._told(role, message)

    @property
    def _known(self) -> Attached:
        if self._setting is None:
            raise RuntimeFailureError(Code.RUNTIME_CLOSED, "this client is not attached")
        return self._setting

    @property
    def root(self) -> Path:
        return Path(self._known.root)

    @property
    def tools(self) -> list[ToolSpec]:
        return list(self._known.tools)

    @property
    def default_policy(self) -> str:
        return self._known.approval

    @property
    def address(self) -> str:
        return self._address

    @property
    def directory(self) -> Path:
        raise ValueError("a client does not know the runtime's directory; its host does")

    @property
    def client_key(self) -> str:
        return self._key.text()

    # Ending.

    def closed(self, *, grace: float, timeout: float) -> Flow[dict[str, int]]:
        """Detach: close the sessions that are open here; the runtime goes on."""
        if self._closed or self._client.forked:
            return {}
        self._closed = True
        atexit.unregister(self.close_now)
        deadline = time.monotonic() + timeout
        durable: dict[str, int] = {}
        for session in list(self._sessions.values()):
            left = max(0.05, deadline - time.monotonic())
            with contextlib.suppress(InterlockError):
                durable[session.id] = yield from session.close(left)
            session.end(None)
        yield in_thread(self._end)
        return durable

    def close_now(self) -> None:
        """What remains to do when the program ends without detaching."""
        with contextlib.suppress(Exception):
            run_sync(self.closed(grace=0.0, timeout=LEAVE_TIMEOUT))

    def _end(self) -> None:
        with contextlib.suppress(Exception):
            self._reference.stop(block=False)
            self._client.ended.result(timeout=2.0)
        self._context.destroy(linger=0)
