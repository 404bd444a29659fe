"""``python -m interlock.actors.cli``: the same as the console script ``interlock``."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
