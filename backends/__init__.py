"""Where logs live: events and their grammar, the JSONL backend, locks, repair."""
