"""The line of calls that wait for one session."""

from __future__ import annotations

import threading
import time

import pytest

from sandboxsync.errors import SessionBusyError, SessionDestroyedError
from sandboxsync.transports._turn import Turn


def _in_thread(function: object) -> threading.Thread:
    thread = threading.Thread(target=function)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_E12_first_come_first_served() -> None:
    """Those who wait get the turn in the order in which they came."""
    turn = Turn()
    assert turn.acquire()
    order: list[int] = []

    def wait(number: int) -> None:
        turn.acquire()
        order.append(number)
        turn.release()

    threads = []
    for number in range(20):
        threads.append(_in_thread(lambda number=number: wait(number)))
        while len(turn._line) <= number:
            time.sleep(0.001)
    turn.release()
    for thread in threads:
        thread.join(10)
    assert order == list(range(20))


def test_E15_the_holder_does_not_wait_for_itself() -> None:
    """Asking again from the thread that holds the turn raises at once."""
    turn = Turn()
    turn.acquire()
    with pytest.raises(SessionBusyError):
        turn.acquire()
    turn.release()
    assert turn.acquire()


def test_T1_waiting_has_a_limit() -> None:
    """Who waited long enough leaves the line and gets nothing, now or later."""
    turn = Turn()
    turn.acquire()
    got: list[bool] = []
    thread = _in_thread(lambda: got.append(turn.acquire(0.05)))
    thread.join(10)
    assert got == [False]
    turn.release()
    assert turn.take()


def test_a_turn_that_comes_as_the_wait_ends_is_kept() -> None:
    """Whoever is told `True` holds it, and nobody else does, however close the limit."""
    turn = Turn()
    holders = 0
    wrong: list[int] = []

    def work() -> None:
        nonlocal holders
        for _ in range(200):
            if turn.acquire(0.0005):
                holders += 1
                if holders != 1:
                    wrong.append(holders)
                time.sleep(0.0004)
                holders -= 1
                turn.release()

    threads = [_in_thread(work) for _ in range(6)]
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert turn.take()


def test_S14_closing_ends_the_wait() -> None:
    """Those in line and those who come later get the reason; the holder may still release."""
    turn = Turn()
    turn.acquire()
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            turn.acquire()
        except SessionDestroyedError as exc:
            raised.append(exc)

    threads = [_in_thread(wait) for _ in range(3)]
    while len(turn._line) < 3:
        time.sleep(0.001)
    turn.close(lambda: SessionDestroyedError("gone"))
    for thread in threads:
        thread.join(10)
    assert len({id(exc) for exc in raised}) == 3
    turn.release()
    with pytest.raises(SessionDestroyedError):
        turn.acquire()


def test_take_never_waits() -> None:
    """It takes a free turn, and only says no to one that is held, even to the holder."""
    turn = Turn()
    assert turn.take()
    assert not turn.take()
    turn.release()
    assert turn.take()
