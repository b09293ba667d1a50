"""Reports: what a receiver tells about itself, and what comes of a flood in the end."""

from __future__ import annotations

import json

import attrs

import aiorecv


@attrs.frozen(kw_only=True)
class Report:
    """What one receiver has seen so far. Totals; the fields of reads are aiorecv's alone."""

    elapsed: float
    """Seconds since it was ready."""

    cpu: float
    """CPU seconds of its process, user and system, since it was ready."""

    packets: int
    bytes: int

    drops: int
    """Datagrams the kernel threw away because the receive buffer was full."""

    receive_buffer_size: int
    """SO_RCVBUF in bytes, as the kernel reports it: twice what was asked for."""

    batches: int = 0
    polled_reads: int = 0
    immediate_reads: int = 0
    window_slots: int = 0
    window_peak: int = 0

    @classmethod
    def of(cls, seen: aiorecv.ReceiverStatistics, *, elapsed: float, cpu: float) -> Report:
        """What a receiver of aiorecv has seen."""
        return cls(
            elapsed=elapsed,
            cpu=cpu,
            packets=seen.packets,
            bytes=seen.bytes,
            drops=seen.kernel_drops,
            receive_buffer_size=seen.receive_buffer_size,
            batches=seen.batches,
            polled_reads=seen.polled_reads,
            immediate_reads=seen.immediate_reads,
            window_slots=seen.window_slots,
            window_peak=seen.window_peak,
        )

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Report:
        """What ``to_json`` made."""
        return cls(**json.loads(line))


@attrs.frozen
class Result:
    """What one receiver got of one flood."""

    title: str
    sent: int
    report: Report

    @property
    def lost(self) -> int:
        """Datagrams that were sent and never received."""
        return self.sent - self.report.packets

    @property
    def cpu_per_million(self) -> float | None:
        """CPU seconds of the receiving process for a million packets; None if it got none."""
        packets = self.report.packets
        return self.report.cpu / packets * 1e6 if packets else None
