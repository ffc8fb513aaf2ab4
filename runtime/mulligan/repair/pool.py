"""Pool: threads that do a few jobs at once, the earliest slot's first, each of which can be called off.

Knows threads and nothing of repairs. A job is given a function that says whether it was called off, which it asks now and then.
What a job raises is kept with its task: whoever waits for it decides whether it counts.
"""

from __future__ import annotations

import heapq
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Result = TypeVar("Result")


class Task(Generic[Result]):
    """One job: waiting, then perhaps started, then ended with a result or an error."""

    def __init__(self, order: int, job: Callable[[Callable[[], bool]], Result]) -> None:
        self.order = order
        self._job = job
        self.started = False
        self.called_off = False
        self.ended = False
        self.result: Result | None = None
        self.error: BaseException | None = None

    def __lt__(self, other: Task[Result]) -> bool:
        return self.order < other.order

    def do(self) -> None:
        """Do the job, here and now."""
        try:
            self.result = self._job(lambda: self.called_off)
        except BaseException as error:  # noqa: BLE001 - a thread has nobody to raise to; who waits for the task is told
            self.error = error


class Pool(Generic[Result]):
    """At most `size` jobs at once, with those that the owner does itself (`working`)."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._waiting: list[Task[Result]] = []
        self._running: set[Task[Result]] = set()
        self._busy = 0
        self._closed = False
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._at_work = 0  # threads that are in `_work`

    def add(self, order: int, job: Callable[[Callable[[], bool]], Result]) -> Task[Result]:
        """A job to be done when a thread is free; of several that wait, the one with the lowest order comes first."""
        task = Task(order, job)
        with self._changed:
            heapq.heappush(self._waiting, task)
            if len(self._threads) < self.size:
                thread = threading.Thread(target=self._work, name=f"mulligan-replay-{len(self._threads)}")
                self._threads.append(thread)
                try:
                    thread.start()
                except RuntimeError:  # no room for another thread: the task waits, or its owner does it in its turn
                    self._threads.remove(thread)
            self._changed.notify_all()
        return task

    def result_of(self, task: Task[Result]) -> bool:
        """Wait for the end of a task that was started; False, and it never starts, when it was not."""
        with self._changed:
            if not task.started:
                task.called_off = True
                return False
            while not task.ended:
                self._changed.wait()
        return True

    def call_off(self, task: Task[Result]) -> bool:
        """Let it not start, or end soon. Whether it had been started."""
        with self._changed:
            task.called_off = True
            return task.started

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the block as one job more: no other is started meanwhile when the pool is full with it."""
        with self._changed:
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Let waiting jobs go, call off those that run, and wait for their end. Ctrl-C meanwhile is raised after that.

        The pool can be used again afterwards.
        """
        interrupted = False
        while True:
            try:
                self._end()
                break
            except KeyboardInterrupt:
                interrupted = True
        if interrupted:
            raise KeyboardInterrupt

    def _end(self) -> None:
        """Wait by the condition: Ctrl-C in `Thread.join` makes Python 3.11 take a running thread for a stopped one."""
        with self._changed:
            self._closed = True
            for task in (*self._waiting, *self._running):
                task.called_off = True
            self._changed.notify_all()
            while self._at_work:
                self._changed.wait()
        for thread in self._threads:
            with suppress(RuntimeError):  # Ctrl-C came before it was started
                thread.join()
        self._threads.clear()
        self._waiting.clear()
        self._closed = False

    def _work(self) -> None:
        with self._changed:
            self._at_work += 1
        while (task := self._next()) is not None:
            task.do()
            with self._changed:
                self._busy -= 1
                self._running.discard(task)
                task.ended = True
                self._changed.notify_all()
        with self._changed:
            self._at_work -= 1
            self._changed.notify_all()

    def _next(self) -> Task[Result] | None:
        with self._changed:
            while not self._closed:
                if self._busy < self.size:
                    while self._waiting:
                        task = heapq.heappop(self._waiting)
                        if not task.called_off:
                            task.started = True
                            self._running.add(task)
                            self._busy += 1
                            return task
                self._changed.wait()
            return None


__all__ = ["Pool", "Task"]
