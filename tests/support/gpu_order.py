"""Who may touch a piece of memory, and when: vector clocks of the host and of the streams of the simulated GPU.

Each stream, and the host, is an *actor* with a clock: how many steps of each actor are certain to have ended. A step on
a stream begins after what the host had done when it queued the step. An event carries the clock of its stream to those
that wait for it. Two accesses to the same memory, one of which writes, must be ordered by these clocks. Otherwise the
memory is touched while it is in flight, whatever the timing of a test.
"""

from __future__ import annotations

from dataclasses import dataclass

HOST = 0
Clock = dict[int, int]


@dataclass(frozen=True)
class _Access:
    start: int
    end: int
    writes: bool
    actor: int
    step: int
    what: str


class Order:
    def __init__(self) -> None:
        self._clocks: dict[int, Clock] = {HOST: {HOST: 0}}
        self._events: dict[int, Clock] = {}
        self._accesses: list[_Access] = []

    def step(self, actor: int) -> Clock:
        """Begin a step of the host, or queue one on a stream."""
        clock = self._clocks.setdefault(actor, {})
        if actor != HOST:
            _join(clock, self._clocks[HOST])
        clock[actor] = clock.get(actor, 0) + 1
        return clock

    def record(self, event: int, stream: int) -> None:
        self._events[event] = dict(self.step(stream))

    def wait(self, actor: int, event: int) -> None:
        """The actor goes on after what the event was recorded for. An event that was never recorded orders nothing."""
        _join(self.step(actor), self._events.get(event, {}))

    def synchronize(self, stream: int) -> None:
        _join(self.step(HOST), self._clocks.get(stream, {}))

    def access(self, actor: int, address: int, size: int, what: str, *, writes: bool) -> None:
        """Check an access of the actor's present step against all earlier ones."""
        clock = self._clocks[actor]
        for other in self._accesses:
            overlaps = address < other.end and other.start < address + size
            if overlaps and (writes or other.writes):
                assert clock.get(other.actor, 0) >= other.step, (
                    f"{what} touches memory while '{other.what}' may still be in flight"
                )
        if writes:  # what the write was ordered after need not be checked again
            self._accesses = [one for one in self._accesses if not (address <= one.start and one.end <= address + size)]
        self._accesses.append(_Access(address, address + size, writes, actor, clock[actor], what))

    def forget(self, address: int, size: int) -> None:
        """The memory was freed. Another allocation may get its address."""
        self._accesses = [one for one in self._accesses if one.end <= address or address + size <= one.start]


def _join(clock: Clock, other: Clock) -> None:
    for actor, step in other.items():
        clock[actor] = max(clock.get(actor, 0), step)
