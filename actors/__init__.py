"""The running system: messages, the four owners, workers, the runtime and the agent loop."""
