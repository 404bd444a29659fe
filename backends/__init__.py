"""Where logs live: events and their grammar, the JSONL backend, locks, repair.

A log is one file, ``<root>/--<cwd>--/<id>/session.v3.jsonl.zstd``, in the third generation of the
harness's session format::

    file    = frame(header line) frame(batch)*        # .zstd: independent frames, with checksum
    file    = header line, event lines                # raw: the same lines without frames
    header  = {"type":"session","version":3,"id":…,"createdAt":…, …} "\\n"
    event   = {"type":…,"seq":…,"time":…,"data":{…}, …} "\\n"      # seq = 0, 1, 2, …

One frame is one durable batch. A batch is durable when ``fdatasync`` has returned after its last
byte; a new log, when the sync of its directory has returned after the hard link that names it.
Beside the log stand ``session.lock`` (``flock``; a line about the holder, for people) and
``spill/<seq>`` (results too large to be inline).

Logs of the generations before (``session.jsonl``, ``session.v1.jsonl``, ``session.v2.jsonl``, each
with ``.zstd`` or without) read as the same events, and are migrated by opening them to write:
``generations``.

To follow an event to the disk, read ``fold`` (``admit`` gives it its seq), ``log`` (``append``,
``seal``), ``store`` (``write``), ``disk``. To follow it back: ``frames``, ``source``, ``reading``.
"""
