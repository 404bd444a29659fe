"""The writer is killed in the middle of a flood, and what it had not synced is taken away."""
