"""Windows: refuses, until a restricted token and job object have been built and tried on one."""

REASON = "it cannot confine yet; use WSL, or ask for danger-full-access by name"
