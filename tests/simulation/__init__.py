"""All owners, agents, workers and answerers in one thread; a seed decides what happens when.

``python -m tests.simulation --runs 1000 --seed 7``; docs/simulation.md says what is checked.
"""

import sys
from pathlib import Path

# What the tests of the owners are built on.
sys.path.insert(0, str(Path(__file__).parents[1] / "actors"))
