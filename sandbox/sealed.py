"""Anonymous files: content handed to a child process that nobody else can reach."""

import os

#: What a pipe takes without a reader everywhere (macOS grants 16 KiB to start with).
_PIPE_HOLDS = 16_384


def sealed(name: str, content: bytes) -> int:
    """An anonymous file with ``content``, read from its start. The caller closes the descriptor."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
    else:
        reader, writer = os.pipe()
        if len(content) > _PIPE_HOLDS:
            os.close(reader)
            os.close(writer)
            raise OSError(27, f"{name} is too long for a pipe here")
        os.write(writer, content)
        os.close(writer)
        return reader
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
