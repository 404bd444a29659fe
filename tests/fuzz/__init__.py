"""Damaged logs: the reader reads a correct prefix, or refuses with the right code."""
