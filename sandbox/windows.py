"""Windows: refuses, until a restricted token and job object have been built and tried on one."""

REASON = "commands cannot be confined on Windows yet; run under WSL, or ask for danger-full-access by name"
