"""The sandbox launcher: owns every confined process and its whole tree. ``core.py`` decides."""
