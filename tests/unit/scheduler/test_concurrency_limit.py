"""A process that loses jobs holds fewer, and grows again as jobs end."""

from __future__ import annotations

from siteatlas.scheduler.slots import ConcurrencyLimit


def test_a_loss_halves_what_is_held_and_ends_bring_it_back():
    intake = ConcurrencyLimit(32, 10, clock=lambda: 0.0)
    intake.record_loss(running=32)
    assert intake.max_jobs == 16
    for _ in range(40):
        intake.ended()
    assert intake.max_jobs == 32


def test_losses_within_one_lease_count_once():
    now = [100.0]
    intake = ConcurrencyLimit(32, 10, clock=lambda: now[0])
    for _ in range(5):
        intake.record_loss(running=32)
    assert intake.max_jobs == 16
    now[0] += 10
    intake.record_loss(running=16)
    assert intake.max_jobs == 8


def test_at_least_one_job_is_always_held():
    now = [0.0]
    intake = ConcurrencyLimit(2, 1, clock=lambda: now[0])
    for _ in range(5):
        now[0] += 1
        intake.record_loss(running=0)
    assert intake.max_jobs == 1
