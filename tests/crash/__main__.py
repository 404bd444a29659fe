"""``python -m tests.crash``: every disk that a power cut could leave, opened."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
