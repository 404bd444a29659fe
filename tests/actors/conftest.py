"""Property tests of this part do not measure the machine."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "interlock", deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("interlock")
