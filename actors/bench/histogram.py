"""Durations counted in buckets, so that any number of them takes the same small memory."""

from __future__ import annotations

from collections import Counter

#: Buckets in each power of two: a percentile is off by at most 1/128 of its value.
_PER_OCTAVE = 64
_BITS = _PER_OCTAVE.bit_length()


class Histogram:
    """Counts durations in nanoseconds; percentiles come out in microseconds."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def record(self, ns: int) -> None:
        """Count one duration of ``ns`` nanoseconds."""
        self._counts[_bucket(max(0, ns))] += 1

    def merge(self, other: Histogram) -> None:
        """Count everything that ``other`` counted."""
        self._counts.update(other._counts)

    @property
    def count(self) -> int:
        """How many durations were counted."""
        return self._counts.total()

    def percentile_us(self, percent: float) -> float:
        """The duration in us that ``percent`` % of the counted ones do not exceed.

        It is the middle of the bucket in which the duration of that rank lies.

        :raises ValueError: nothing was counted.
        """
        rank = max(1.0, self.count * percent / 100)
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= rank:
                low, high = _bounds(bucket)
                return (low + high) / 2000
        raise ValueError("a percentile of nothing: the histogram is empty")

    def buckets_us(self) -> list[tuple[float, int]]:
        """Each bucket that counted something: its lower bound in us, and how many."""
        return [
            (_bounds(bucket)[0] / 1000, self._counts[bucket]) for bucket in sorted(self._counts)
        ]


def _bucket(ns: int) -> int:
    """Exact below ``2 * _PER_OCTAVE`` ns; above, the leading bits of ``ns`` after its magnitude."""
    shift = max(0, ns.bit_length() - _BITS)
    return shift * _PER_OCTAVE + (ns >> shift)


def _bounds(bucket: int) -> tuple[int, int]:
    """The first and the last duration (ns) of a bucket."""
    shift = max(0, bucket // _PER_OCTAVE - 1)
    lead = bucket - shift * _PER_OCTAVE
    return lead << shift, ((lead + 1) << shift) - 1
