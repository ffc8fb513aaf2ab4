"""The pool: a few jobs at once, the earliest slot's first, each of which can be called off."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from mulligan.repair.pool import Pool, Task

PATIENCE_S = 10.0
Asked = Callable[[], bool]


@pytest.fixture
def pool() -> Iterator[Pool[int]]:
    """A pool of two; no thread of it is left at the end."""
    made: Pool[int] = Pool(2)
    yield made
    made.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("mulligan-replay")]


class Began:
    """A job that tells when it has begun, and ends when it may or is called off."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, asked: Asked) -> int:
        """Do it."""
        self.begun.set()
        while not asked():
            if self.may_end.wait(0.001):
                return 1
        return -1


def ended(pool: Pool[int], job: Callable[[Asked], int]) -> Task[int]:
    """Have a job begin, and wait for its end."""
    begun = threading.Event()

    def do(asked: Asked) -> int:
        begun.set()
        return job(asked)

    task = pool.add(0, do)
    assert begun.wait(PATIENCE_S)
    assert pool.result_of(task)
    return task


def test_jobs_run_at_the_same_time(pool: Pool[int]) -> None:
    """Two jobs that wait for each other both end."""
    meeting = threading.Barrier(2)
    pool.add(1, lambda _: meeting.wait(PATIENCE_S))
    assert ended(pool, lambda _: meeting.wait(PATIENCE_S)).error is None


def test_no_more_than_there_is_room_for_and_the_earliest_first(pool: Pool[int]) -> None:
    """While two jobs are at work the others wait, and of those the one of the earliest slot comes first."""
    jobs, order, all_done = (Began(), Began()), list[int](), threading.Event()
    for number, job in enumerate(jobs):
        pool.add(number, job)
        assert job.begun.wait(PATIENCE_S)

    def done(number: int) -> int:
        order.append(number)
        if len(order) == 3:
            all_done.set()
        return number

    later = [pool.add(number, lambda _, number=number: done(number)) for number in (9, 5, 7)]
    assert not any(task.started for task in later)
    jobs[0].may_end.set()  # one thread does all three, in order
    assert all_done.wait(PATIENCE_S)
    jobs[1].may_end.set()
    assert order == [5, 7, 9]


def test_what_the_owner_does_counts(pool: Pool[int]) -> None:
    """While the owner itself works at one thing, a pool of two does only one more."""
    one, other = Began(), Began()
    with pool.working():
        pool.add(1, one)
        assert one.begun.wait(PATIENCE_S)
        task = pool.add(2, other)
        assert not task.started
    assert other.begun.wait(PATIENCE_S)
    one.may_end.set()
    other.may_end.set()


def test_a_job_that_did_not_begin_never_does(pool: Pool[int]) -> None:
    """Whoever asks for the result of a job that was not begun is told so, and the job is off."""
    jobs, done = (Began(), Began()), list[int]()
    for number, job in enumerate(jobs):
        pool.add(number, job)
        assert job.begun.wait(PATIENCE_S)
    assert not pool.result_of(pool.add(5, lambda _: done.append(5) or 5))
    for job in jobs:
        job.may_end.set()
    pool.close()
    assert done == []


def test_calling_off_a_job_that_runs(pool: Pool[int]) -> None:
    """A job that runs hears that it was called off; one that waits is not begun."""
    jobs = (Began(), Began())
    running = [pool.add(number, job) for number, job in enumerate(jobs)]
    assert all(job.begun.wait(PATIENCE_S) for job in jobs)
    waiting = pool.add(5, Began())
    assert not pool.call_off(waiting)
    assert all(pool.call_off(task) for task in running)
    pool.close()
    assert [task.result for task in (*running, waiting)] == [-1, -1, None]


def test_what_a_job_raises_is_kept_for_who_waits(pool: Pool[int]) -> None:
    """An error of a job ends no thread, and raises nowhere else."""
    assert isinstance(ended(pool, lambda _: 1 // 0).error, ZeroDivisionError)
    assert ended(pool, lambda _: 2).result == 2


def test_a_closed_pool_can_be_used_again(pool: Pool[int]) -> None:
    """Closing ends the threads; a later job makes new ones."""
    assert ended(pool, lambda _: 1).result == 1
    pool.close()
    assert ended(pool, lambda _: 2).result == 2


def test_ctrl_c_while_it_closes(pool: Pool[int]) -> None:
    """Ctrl-C during the wait for the last jobs is heard when they have ended, and not before."""
    begun, may_end = threading.Event(), threading.Event()
    task = pool.add(1, lambda _: begun.set() or may_end.wait(PATIENCE_S))
    assert begun.wait(PATIENCE_S)

    def interrupt() -> None:
        with pool._changed:
            assert pool._changed.wait_for(lambda: task.called_off, PATIENCE_S)
        os.kill(os.getpid(), signal.SIGINT)
        may_end.set()

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        pool.close()
    helper.join()
    assert task.ended


def test_where_no_thread_can_be_started(pool: Pool[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A job for which there is no room is not begun, which its owner is told; closing waits for nobody."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", refuse)
        assert not pool.result_of(pool.add(1, lambda _: 1))
        pool.close()
    assert ended(pool, lambda _: 2).result == 2
