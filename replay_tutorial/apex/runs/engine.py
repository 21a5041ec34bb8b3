"""Engines: whoever runs the roles of a run, and where it is found.

An engine stands above this folder, so nothing here can import it: it is handed to `train`, or is the one of
this machine, imported by its name. To write another one takes `make_context`, the five ends of
`apex.context`, and `run`: what starts actors, learner and evaluator where they belong, as `watch.Workers`
for `watch.watch`. `cluster` is one, whose actors are elsewhere.
"""

from importlib import import_module
from typing import Protocol

from replay_tutorial.agents.environments import Spaces
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.context import Context, Counters
from replay_tutorial.apex.runs.recorder import Recorder
from replay_tutorial.apex.runs.setup import End, RunSetup
from replay_tutorial.apex.runs.signals import StopRequest

THIS_MACHINE = "replay_tutorial.local.local_engine"


class Engine(Protocol):
    """Runs actors, learner and evaluator somewhere."""

    def make_context(
        self, config: Config, spaces: Spaces, parameter_count: int, counters: Counters
    ) -> Context:
        """Reserve everything through which the roles meet; `parameter_count` is the policy's.

        Raises:
            MemoryError: If there is less room than the replay may come to need.
        """
        ...

    def run(self, setup: RunSetup, recorder: Recorder, stop: StopRequest) -> End:
        """Run until it is solved, its budget is spent, or somebody asks it to stop.

        Raises:
            ProcessDied: If a role ended before its time. None is left then.
        """
        ...


def this_machine() -> Engine:
    """Return the engine that runs the roles as processes of this machine."""
    return import_module(THIS_MACHINE).LocalEngine()
