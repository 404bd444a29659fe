"""What a command may touch: policies, and one module per mechanism that enforces them."""
