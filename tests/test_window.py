"""The window policies, against a second telling of the rule."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiorecv
from tests.helpers import send

INITIALS = st.integers(1, 64)
READS = st.lists(st.tuples(st.sampled_from(["full", "all but one", "one"]), st.booleans()))


def expected_slots(
    initial: int, maximum: int, shrink_after: int, history: Sequence[tuple[str, bool]]
) -> int:
    """The rule told over again from the whole history, without any state in between."""
    slots = initial
    short_in_a_row = 0
    for filled, polled in history:
        full = received_of(filled, slots) == slots
        short_in_a_row = 0 if full else short_in_a_row + 1
        if full and not polled:
            slots = slots * 2 if slots * 2 < maximum else maximum
        if short_in_a_row == shrink_after:
            slots, short_in_a_row = initial, 0
    return slots


def received_of(filled: str, slots: int) -> int:
    """How many messages a read brings that went like this; one that brings none is no read."""
    return {"full": slots, "all but one": max(slots - 1, 1), "one": 1}[filled]


@given(
    initial=INITIALS,
    more=st.integers(0, 300),
    shrink_after=st.integers(1, 5),
    reads=READS,
)
def test_adaptive_window_follows_the_rule_to_the_letter(initial, more, shrink_after, reads):
    window = aiorecv.AdaptiveWindow(initial, initial + more, shrink_after)

    for number, (filled, polled) in enumerate(reads):
        window.record(received=received_of(filled, window.slots), polled=polled)

        expected = expected_slots(initial, initial + more, shrink_after, reads[: number + 1])
        assert window.slots == expected
        assert initial <= window.slots <= window.maximum == initial + more


def test_adaptive_window_starts_at_one_slot_and_ends_at_sixty_four():
    window = aiorecv.AdaptiveWindow()
    assert (window.initial, window.maximum, window.shrink_after) == (1, 64, 256)

    seen = [window.slots]
    for _ in range(8):
        window.record(received=window.slots, polled=False)
        seen.append(window.slots)

    assert seen == [1, 2, 4, 8, 16, 32, 64, 64, 64]


def test_a_full_read_that_had_to_wait_does_not_grow_the_window():
    window = aiorecv.AdaptiveWindow(initial=4)

    for _ in range(10):
        window.record(received=4, polled=True)

    assert window.slots == 4


@pytest.mark.parametrize("polled", [True, False])
def test_only_short_reads_in_a_row_shrink_the_window(polled):
    window = aiorecv.AdaptiveWindow(initial=2, maximum=8, shrink_after=256)
    window.record(received=2, polled=False)
    window.record(received=4, polled=False)

    for _ in range(255):
        window.record(received=7, polled=polled)
    window.record(received=8, polled=polled)
    for _ in range(255):
        window.record(received=1, polled=polled)
    assert window.slots == 8

    window.record(received=7, polled=polled)
    assert window.slots == 2


def test_maximum_that_is_no_doubling_of_initial_is_reached_exactly():
    window = aiorecv.AdaptiveWindow(initial=3, maximum=20)

    for _ in range(4):
        window.record(received=window.slots, polled=False)

    assert window.slots == 20


def expected_peak_slots(
    initial: int, maximum: int, shrink_after: int, history: Sequence[int]
) -> int:
    """The peak window's rule told over again, from what each read brought."""
    slots = initial
    row: list[int] = []  # since the last full read, or the last time a row was complete
    skipped = True
    for received in history:
        if received >= slots:
            slots = maximum
            row, skipped = [], False
        elif not skipped:
            skipped = True
        else:
            row.append(received)
        if len(row) == shrink_after:
            above = next(2**power for power in range(12) if 2**power > max(row))
            slots = above if slots > initial and 4 * above <= slots else slots
            row = []
    return slots


@given(
    initial=INITIALS,
    more=st.integers(0, 300),
    shrink_after=st.integers(1, 5),
    reads=READS,
)
def test_peak_window_follows_its_rule_to_the_letter(initial, more, shrink_after, reads):
    window = aiorecv.PeakWindow(initial, initial + more, shrink_after)
    history: list[int] = []

    for filled, polled in reads:
        history.append(received_of(filled, window.slots))
        window.record(received=history[-1], polled=polled)

        expected = expected_peak_slots(initial, initial + more, shrink_after, history)
        assert window.slots == expected
        assert 1 <= window.slots <= window.maximum == initial + more


@given(reads=st.lists(st.integers(1, 64)), maximum=st.integers(8, 1024))
def test_peak_window_is_small_again_after_packets_that_came_singly(reads, maximum):
    window = aiorecv.PeakWindow(maximum=maximum)
    for received in reads:
        window.record(received=min(received, window.slots), polled=True)

    for _ in range(3 * 256 + 1):
        window.record(received=1, polled=True)

    assert window.slots in (2, 4, 8)


def test_peak_window_starts_at_eight_slots_and_grows_to_its_maximum_at_once():
    window = aiorecv.PeakWindow()
    assert (window.initial, window.maximum, window.shrink_after) == (8, 112, 256)

    window.record(received=7, polled=False)
    assert window.slots == 8

    window.record(received=8, polled=True)
    assert window.slots == 112

    window.record(received=112, polled=False)
    assert window.slots == 112


@given(load=st.integers(1, 111))
def test_peak_window_keeps_what_a_steady_load_needs(load):
    window = aiorecv.PeakWindow()
    window.record(received=8, polled=True)

    seen = set()
    for number in range(5 * 256):
        window.record(received=load, polled=number % 2 == 0)
        if number > 256:
            seen.add(window.slots)

    (slots,) = seen
    assert load < slots
    assert slots == 112 if load > 15 else slots <= 2 * load


def test_the_rest_of_a_backlog_is_no_peak():
    window = aiorecv.PeakWindow(shrink_after=3)
    window.record(received=8, polled=True)
    window.record(received=60, polled=False)
    for _ in range(2):
        window.record(received=1, polled=True)
    assert window.slots == 112

    window.record(received=1, polled=True)
    assert window.slots == 2


def test_a_peak_window_that_has_not_grown_does_not_shrink():
    window = aiorecv.PeakWindow(shrink_after=2)

    for _ in range(10):
        window.record(received=1, polled=True)

    assert window.slots == 8


@given(slots=st.integers(1, 1024), reads=READS)
def test_fixed_window_never_changes(slots, reads):
    window = aiorecv.FixedWindow(slots)

    for filled, polled in reads:
        window.record(received=received_of(filled, slots), polled=polled)

    assert window.slots == window.maximum == slots


@pytest.mark.parametrize("policy", [aiorecv.AdaptiveWindow, aiorecv.PeakWindow])
@pytest.mark.parametrize("name", ["initial", "maximum", "shrink_after"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (1.0, TypeError),
        ("1", TypeError),
        (None, TypeError),
        (True, TypeError),
    ],
)
def test_a_window_that_follows_refuses_what_is_no_count(policy, name, value, error):
    with pytest.raises(error, match=name):
        policy(**{name: value})


@pytest.mark.parametrize("policy", [aiorecv.AdaptiveWindow, aiorecv.PeakWindow])
@pytest.mark.parametrize("name", ["initial", "maximum"])
def test_a_window_that_follows_refuses_more_slots_than_the_kernel_takes(policy, name):
    assert policy(initial=1024, maximum=1024).slots == 1024

    with pytest.raises(ValueError, match=rf"{name}=1025.*1024"):
        policy(**{"maximum": 1024, name: 1025})


@pytest.mark.parametrize("policy", [aiorecv.AdaptiveWindow, aiorecv.PeakWindow])
def test_a_window_that_follows_refuses_a_maximum_below_initial(policy):
    with pytest.raises(ValueError, match=r"maximum=3 .*initial=4"):
        policy(initial=4, maximum=3)


@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ValueError), (1025, ValueError), (2.0, TypeError), ("2", TypeError), (False, TypeError)],
)
def test_fixed_window_refuses_what_is_no_number_of_slots(value, error):
    with pytest.raises(error, match="slots"):
        aiorecv.FixedWindow(value)


def test_fixed_window_can_not_be_changed():
    window = aiorecv.FixedWindow(4)

    with pytest.raises(AttributeError):
        window.slots = 5


class Alternating:
    """A user's own policy: nothing of ours in it."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, bool]] = []

    @property
    def slots(self) -> int:
        return 1 + 2 * (len(self.heard) % 2)

    @property
    def maximum(self) -> int:
        return 3

    def record(self, *, received: int, polled: bool) -> None:
        self.heard.append((received, polled))


def test_policies_are_known_by_their_three_names():
    for policy in (
        aiorecv.AdaptiveWindow(),
        aiorecv.PeakWindow(),
        aiorecv.FixedWindow(1),
        Alternating(),
    ):
        assert isinstance(policy, aiorecv.WindowPolicy)
    assert not isinstance(object(), aiorecv.WindowPolicy)


async def test_a_policy_of_the_users_own_is_asked_and_told():
    policy = Alternating()
    async with aiorecv.open_udp(("127.0.0.1", 0), window=policy, gro=False) as receiver:
        assert receiver.window is policy
        send(receiver, *[b"%d" % number for number in range(6)])

        batches = []
        while (batch := receiver.receive_nowait()) is not None:
            batches.append((batch.slots, len(batch), batch.polled))

        assert batches == [(1, 1, False), (3, 3, False), (1, 1, False), (3, 1, False)]
        assert policy.heard == [(1, False), (3, False), (1, False), (1, False)]
        statistics = receiver.statistics()
        assert (statistics.window_peak, statistics.window_grows) == (3, 2)
        assert (statistics.window_shrinks, statistics.window_slots) == (2, 1)


async def test_slots_out_of_a_policys_own_bounds_are_refused_before_the_read():
    class Wild(Alternating):
        wild = 1

        @property
        def slots(self) -> int:
            return self.wild

    policy = Wild()
    async with aiorecv.open_udp(("127.0.0.1", 0), window=policy) as receiver:
        send(receiver, b"kept")

        for wild in (0, 4, -1, 1025):
            policy.wild = wild
            with pytest.raises(ValueError, match=re.escape(f"{wild} slots")):
                receiver.receive_nowait()

        policy.wild = 3
        batch = receiver.receive_nowait()
        assert batch is not None
        assert batch.payloads()[0] == b"kept"


def test_a_peak_window_has_no_more_slots_than_bring_its_bytes():
    window = aiorecv.PeakWindow(maximum_bytes=1000)

    window.record(received=8, polled=True, nbytes=8 * 50)
    assert window.slots == 20

    window.record(received=20, polled=False, nbytes=20 * 50)
    assert window.slots == 20  # and stays

    window.record(received=20, polled=False, nbytes=20)
    assert window.slots == 112

    window.record(received=60, polled=False, nbytes=60 * 50)
    assert window.slots == 20  # though the read was not full

    window.record(received=20, polled=False, nbytes=20 * 2000)
    assert window.slots == 1


class Weighing:
    """A policy that asks for the bytes of each read."""

    slots = maximum = 4

    def __init__(self) -> None:
        self.heard: list[tuple[int, bool, int]] = []

    def record(self, *, received: int, polled: bool, nbytes: int) -> None:
        self.heard.append((received, polled, nbytes))


async def test_a_policy_that_takes_bytes_is_told_them():
    window = Weighing()
    async with aiorecv.open_udp(("127.0.0.1", 0), window=window) as receiver:
        send(receiver, b"seven b")
        receiver.receive_nowait().release()

    assert window.heard == [(1, False, 7)]


class OfC:
    """A policy whose method does not tell what it takes."""

    slots = maximum = 4
    record = dict


class Hiding:
    """A policy whose method tells something else."""

    slots = maximum = 4

    def __init__(self) -> None:
        self.heard: list[dict[str, object]] = []

    @property
    def record(self):
        def record(**told: object) -> None:
            self.heard.append(told)

        record.__signature__ = "anything"  # type: ignore[attr-defined]
        return record


@pytest.mark.parametrize(("value", "error"), [(0, ValueError), (1.5, TypeError)])
def test_a_peak_window_of_wrong_bytes_is_refused(value, error):
    with pytest.raises(error, match="maximum_bytes"):
        aiorecv.PeakWindow(maximum_bytes=value)


@pytest.mark.parametrize("policy", [OfC, Hiding])
async def test_a_policy_that_does_not_show_what_it_takes_is_told_no_bytes(policy):
    window = policy()
    async with aiorecv.open_udp(("127.0.0.1", 0), window=window) as receiver:
        send(receiver, b"x")
        with receiver.receive_nowait() as batch:
            assert batch.payloads() == (b"x",)

    if policy is Hiding:
        assert window.heard == [{"received": 1, "polled": False}]
