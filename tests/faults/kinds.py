"""Kinds of faults: how each is injected and healed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tests.crash.drivers import Victim
from tests.faults.processes import executors, server

if TYPE_CHECKING:
    from tests.faults.trial import Trial

SERVERS = ("postgres", "kafka")
MOST_HOURS = 12.0
"""The maximum offset of the clock; the query's idle timeout is three days."""


def _nothing(trial: Trial) -> None:
    """Does nothing, as not every fault can be healed."""


@dataclass(frozen=True)
class Fault:
    """A fault that is injected at some moment and healed later.

    Attributes:
        name: Its name, with its random parameters.
        family: What it affects; the faults of one round are of different families.
        inject: Injects it.
        heal: Heals it.
    """

    name: str
    family: str
    inject: Callable[[Trial], None]
    heal: Callable[[Trial], None] = _nothing

    @property
    def kind(self) -> str:
        """Its name without random parameters."""
        return self.name.partition(":")[0]


def every_kind(chance: random.Random) -> list[Fault]:
    """One fault of each kind."""
    victim = chance.choice(list(Victim))
    spare = chance.choice((0, 0, 0, 0, 1, 2, 4))
    delay = chance.uniform(0, 8)
    hours = chance.uniform(-MOST_HOURS, MOST_HOURS)
    return [
        # A successor starts while half of the old driver may still be dying.
        Fault(f"driver killed: {victim.value}", "driver", lambda trial: trial.kill(victim)),
        Fault(
            f"driver and successor killed: {victim.value}, {delay:.1f} s from its start",
            "driver",
            lambda trial: trial.kill_again(victim, delay),
        ),
        Fault("driver stopped", "driver", lambda trial: trial.driver.suspend(), lambda trial: trial.driver.resume()),
        # Taken for dead, it resumes when its successor has done all the work.
        Fault("zombie", "driver", lambda trial: trial.bury()),
        Fault("executor killed", "executor", lambda trial: trial.kill_processes(executors(trial.driver.jvm)[:1])),
        Fault(
            "executor stopped",
            "executor",
            lambda trial: trial.stop_processes(executors(trial.driver.jvm)[:1]),
            lambda trial: trial.resume_processes(),
        ),
        *(Fault(f"{name} killed", name, partial(_kill, name), partial(_start, name)) for name in SERVERS),
        *(Fault(f"{name} stopped", name, partial(_stop, name), lambda t: t.resume_processes()) for name in SERVERS),
        Fault(
            f"disk full: {spare} pages left",
            "disk",
            lambda trial: trial.disk.fill(spare),
            lambda trial: trial.disk.free(),
        ),
        Fault(
            "disk read-only",
            "disk",
            lambda trial: trial.disk.make_read_only(),
            lambda trial: trial.disk.make_writable(),
        ),
        Fault(f"clock stepped: {hours:+.1f} hours", "clock", lambda trial: trial.step_clock(hours)),
    ]


def _kill(name: str, trial: Trial) -> None:
    trial.servers[name].kill()


def _start(name: str, trial: Trial) -> None:
    trial.servers[name].start()


def _stop(name: str, trial: Trial) -> None:
    trial.stop_processes(server(trial.servers[name].pid))
