"""Damaged logs by the thousand: the reader reads a correct prefix or refuses with the right code."""
