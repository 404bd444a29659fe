"""The journal: one sync makes the batches of many sessions durable.

The life of a batch, a module a step: :mod:`.commit` collects batches of many logs; :mod:`.store`
prepares each (room in its file, L15); :mod:`.record` encodes them as one record; :mod:`.file`
writes and syncs it, the commit point; :mod:`.store` places the frames in the session files;
:mod:`.writer` retires a segment once every file it names is synced. After a crash :mod:`.dead`
finds the journal, :mod:`.contents` reads it, :mod:`.image` decides what a file lacks and
:mod:`.replay` writes it; :mod:`.overlay` shows the same to readers and changes nothing.

The bytes on disk are described in :mod:`.names`, :mod:`.slot` and :mod:`.record`.
"""
