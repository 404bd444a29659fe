"""What a sandbox may fail to hold, by name, in words for a person (S1)."""

GAPS: dict[str, str] = {
    "abstract-sockets": "abstract unix sockets of the host can be reached",
    "device-ioctl": "devices that may be opened take every control call",
    "hidden-names": "names below hidden directories can be listed; contents cannot be read",
    "hidden-parents": "nothing can be created in the directories above a hidden path",
    "kernel-surface": "system calls are not filtered on this architecture",
    "launcher-writable": "the interpreter that starts the sandbox lies in a writable directory",
    "metadata": "modes, owners, times and attributes of files outside can be changed",
    "network": "the network cannot be switched off",
    "process-limit": "the number of processes is not limited for root",
    "process-visibility": "other processes can be seen, though not touched",
    "protected-paths": "git hooks and settings in the workspace can be changed",
    "running-as-root": "root's own files and uncounted processes; run as an ordinary user",
    "signals": "other processes of the same user can be signalled",
    "sysv-ipc": "shared memory and queues of the host can be reached",
    "unix-sockets": "unix sockets in the file system that the user may use can be reached",
    "leftover-processes": "a process that leaves the supervisor's sight may stay",
}
