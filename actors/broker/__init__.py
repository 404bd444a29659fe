"""The approval broker: owns every open approval request and who may answer. ``core.py`` decides."""
