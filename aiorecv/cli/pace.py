"""Pace: what a receiver does by the second, from two reports, and as one line of words."""

from __future__ import annotations

import attrs

from aiorecv.cli.report import Report


@attrs.frozen
class Pace:
    """What one receiver did between two reports, by the second."""

    packets: float
    bits: float
    polled_reads: float
    immediate_reads: float
    batch_packets: float | None
    """Packets a batch; None if there was none."""
    cpu: float
    """Share of one core."""
    drops: float
    window: int
    window_peak: int

    @classmethod
    def between(cls, before: Report, after: Report) -> Pace:
        """The pace from one report to the next."""
        seconds = after.elapsed - before.elapsed
        packets = after.packets - before.packets
        batches = after.batches - before.batches
        return cls(
            packets=packets / seconds,
            bits=(after.bytes - before.bytes) * 8 / seconds,
            polled_reads=(after.polled_reads - before.polled_reads) / seconds,
            immediate_reads=(after.immediate_reads - before.immediate_reads) / seconds,
            batch_packets=packets / batches if batches else None,
            cpu=(after.cpu - before.cpu) / seconds,
            drops=(after.drops - before.drops) / seconds,
            window=after.window_slots,
            window_peak=after.window_peak,
        )

    def to_line(self) -> str:
        """The same in words."""
        words = [f"{self.packets:,.0f} packets/s", f"{self.bits / 1e6:,.1f} Mbit/s"]
        if self.batch_packets is not None:
            words += [
                f"{self.batch_packets:.1f} packets a batch",
                f"window {self.window}",
                f"{self.polled_reads:,.0f} polled and "
                f"{self.immediate_reads:,.0f} immediate reads/s",
            ]
        words += [f"{self.drops:,.0f} drops/s", f"CPU {self.cpu:.0%}"]
        return ", ".join(words)
