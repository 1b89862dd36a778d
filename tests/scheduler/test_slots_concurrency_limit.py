"""A process that loses jobs holds fewer, and grows again as jobs end."""

from __future__ import annotations

from siteatlas.scheduler.slots import ConcurrencyLimit


def test_a_loss_halves_what_is_held_and_ends_bring_it_back():
    limit = ConcurrencyLimit(32, 10, clock=lambda: 0.0)
    limit.reduce(running=32)
    assert limit.max_jobs == 16
    for _ in range(40):
        limit.increase()
    assert limit.max_jobs == 32


def test_losses_within_one_lease_count_once():
    now = [100.0]
    limit = ConcurrencyLimit(32, 10, clock=lambda: now[0])
    for _ in range(5):
        limit.reduce(running=32)
    assert limit.max_jobs == 16
    now[0] += 10
    limit.reduce(running=16)
    assert limit.max_jobs == 8


def test_at_least_one_job_is_always_held():
    now = [0.0]
    limit = ConcurrencyLimit(2, 1, clock=lambda: now[0])
    for _ in range(5):
        now[0] += 1
        limit.reduce(running=0)
    assert limit.max_jobs == 1
