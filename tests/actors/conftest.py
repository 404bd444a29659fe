"""What the tests of the actors share."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# Property tests of this part do not measure the machine.
settings.register_profile(
    "interlock", deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("interlock")
