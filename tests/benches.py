"""What tests of the benches share."""

from aiorecv.bench.sink_rounds import Plan

SINK_PLAN = Plan(
    count=150,
    port=0,
    repeat=1,
    connect=False,
    batch=32,
    size=64,
    gro=False,
    flows=1,
    pin=None,
    live=False,
)
"""A short run of ``bench sink``, one sample a row."""
