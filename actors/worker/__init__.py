"""A worker: a process that runs tool bodies for the dispatcher, and nothing else."""
