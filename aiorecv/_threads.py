"""Calls that wait for the kernel, made in a thread of their own.

A fresh one each time: it has its caller's network namespace, which a pool's thread may not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

_Result = TypeVar("_Result")


async def in_thread(call: Callable[[], _Result], undo: Callable[[_Result], object]) -> _Result:
    """The result of ``call()``, made in another thread; if this is cancelled, it is undone."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()

    def tell(result: _Result | None, error: BaseException | None) -> None:
        if done.cancelled():
            if error is None:
                undo(result)  # type: ignore[arg-type]  # a call without error has its result
        elif error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # the same

    def run() -> None:
        result, failure = None, None
        try:
            result = call()
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(tell, result, failure)
        except RuntimeError:  # the loop was closed meanwhile
            if failure is None:
                undo(result)  # type: ignore[arg-type]  # the same

    threading.Thread(target=run, name="aiorecv").start()
    return await done


def start_thread(call: Callable[[], object]) -> None:
    """Have ``call()`` made in another thread; here, if the interpreter is about to end."""
    try:
        threading.Thread(target=call, name="aiorecv").start()
    except RuntimeError:  # "can't create new thread at interpreter shutdown"
        call()
