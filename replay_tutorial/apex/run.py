"""A run: puts actors, learner, replay, limiter and mailbox together, and sees them from the first step to the result.

    actors ──── rows, priorities ───▶ replay ──── samples ────▶ learner
       ▲                                ▲ ◀──── priorities ──────┘  │
       └──────────────── mailbox ◀─────────────── weights ──────────┘

The learner works in this process, and so do the evaluations, between two updates; the limiter makes the actors wait
meanwhile. The policy that is reported is the best of those evaluations, measured once more on episodes of its own.

Left out: checkpoints to go on from, starting a fallen actor again.

Paper: Horgan et al. 2018, figure 1.
"""

# pyright: reportUnknownMemberType=false
# (torch's own annotations are incomplete)

import time
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from replay_tutorial import Mailbox, MPPrioritizedReplayBuffer, SamplesPerInsert
from replay_tutorial.apex.actor import ActorTask, n_step_windows
from replay_tutorial.apex.agent import agent_name, make_agent, make_policy
from replay_tutorial.apex.choose import Candidate, Chooser
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.environments import Spaces, solved_threshold, spaces_of
from replay_tutorial.apex.evaluate import Evaluation, draw_seeds, evaluate
from replay_tutorial.apex.learner import Learner
from replay_tutorial.apex.plot import draw_curves
from replay_tutorial.apex.record import Recorder
from replay_tutorial.apex.run_folder import RunFolder
from replay_tutorial.apex.signals import StopRequest, stop_requests
from replay_tutorial.apex.supervisor import ActorDied, Supervisor
from replay_tutorial.shared.memory import SharedArrays

PATIENCE = (
    0.1  # seconds between two looks at the actors, and at most that the learner waits for them at a time
)

End = Literal["solved", "budget spent", "interrupted"]


@dataclass(frozen=True)
class Result:
    """What a run came to."""

    folder: Path
    end: End
    evaluation: Evaluation | None  # of the chosen policy, on fresh episodes; None if interrupted
    policy_step: int  # environment steps when the policy was chosen
    steps: int  # environment steps of all actors
    updates: int  # of the learner
    seconds: float  # from the start of the actors to the end of learning


def train(config: Config) -> Result:
    """Train an agent, choose its best policy, and measure that on fresh episodes.

    Processes are spawned: a script that calls this does so under `if __name__ == "__main__":`. The first Ctrl-C or
    SIGTERM ends the run in good order, the second at once.

    Args:
        config: The settings; `preset(environment)` gives good ones.

    Raises:
        UnsupportedEnvironment: If there is no such environment, or its spaces aren't supported. No process has been
            started then.
        ActorDied: If an actor ended before its time, with the reason. The other processes are gone, too.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a network is faster on one, and the actors need the other cores
    try:
        return Run(config).run()
    finally:
        torch.set_num_threads(threads)


class RunSeeds:
    """All random numbers of a run, grown from one seed so that no two parts share a stream."""

    def __init__(self, config: Config) -> None:
        network, replay, episodes, actors = np.random.SeedSequence(config.seed).spawn(4)
        self.network = int(network.generate_state(1)[0])
        self.replay = replay
        self.actors = actors.spawn(config.actors)
        # All different: the final episodes played no part in choosing.
        counts = (config.evaluation_episodes, config.confirmation_episodes, config.final_episodes)
        seeds = draw_seeds(episodes, sum(counts))
        self.evaluation = seeds[: counts[0]]
        self.confirmation = seeds[counts[0] : counts[0] + counts[1]]
        self.final = seeds[counts[0] + counts[1] :]


class Run:
    """Everything that a run consists of."""

    def __init__(self, config: Config) -> None:
        self.spaces: Spaces = spaces_of(config.environment)
        self.config = config = replace(config, agent=agent_name(config, self.spaces))
        self.seeds = RunSeeds(config)
        torch.manual_seed(self.seeds.network)
        fields = n_step_windows(config, self.spaces).env_dict
        self.replay = MPPrioritizedReplayBuffer(
            config.capacity, fields, alpha=config.alpha, seed=self.seeds.replay
        )
        # One send moves the error by its rows, one update by its batch: the band must be wider than both.
        rows_of_a_send = (config.send_interval + config.n_step) * config.environments_per_actor
        rows = max(config.slack, rows_of_a_send)
        self.limiter = SamplesPerInsert(
            config.samples_per_insert,
            min_size=config.replay_start,
            error_buffer=max(1.0, rows * config.samples_per_insert) + config.batch_size,
        )
        agent = make_agent(config, self.spaces)
        self.policy = make_policy(config, self.spaces)
        self.mailbox = Mailbox(self.policy.weight_count)
        self.learner = Learner(config, agent, self.replay, self.limiter, self.mailbox)
        threshold = config.solved_at if config.solved_at is not None else solved_threshold(config.environment)
        self.chooser = Chooser(
            self.policy,
            config.environment,
            self.seeds.evaluation,
            self.seeds.confirmation,
            threshold,
            config.evaluation_step_limit,
        )
        self.folder = RunFolder.create(config)

    def run(self) -> Result:
        """Train, then evaluate, then draw."""
        config = self.config
        with (
            stop_requests() as stop,
            Recorder(self.folder.path, self.learner, config.total_steps, config.progress) as recorder,
        ):
            with Supervisor(self.actor_task, config.actors) as supervisor:
                end = self.learn(supervisor, recorder, stop)
            seconds = recorder.seconds
        chosen = self.chooser.best
        evaluation = None
        if chosen is not None and end != "interrupted":
            evaluation = self.final_evaluation(chosen, seconds)
        draw_curves([self.folder.path], self.folder.path / "learning_curve.png")
        return Result(
            folder=self.folder.path,
            end=end,
            evaluation=evaluation,
            policy_step=0 if chosen is None else chosen.step,
            steps=self.limiter.inserts,
            updates=self.learner.updates,
            seconds=seconds,
        )

    def actor_task(self, number: int, stop: SharedArrays, reports: Connection) -> ActorTask:
        """Return what actor `number` is started with."""
        return ActorTask(
            number=number,
            config=self.config,
            spaces=self.spaces,
            seed=self.seeds.actors[number],
            replay=self.replay,
            limiter=self.limiter,
            mailbox=self.mailbox,
            stop=stop,
            reports=reports,
        )

    def learn(self, supervisor: Supervisor, recorder: Recorder, stop: StopRequest) -> End:
        """Update until the run is solved, its budget is spent, or somebody asks it to stop."""
        next_look = 0.0
        while not stop.received:
            updated = self.learner.update(timeout=PATIENCE)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + PATIENCE
                try:
                    recorder.hear(supervisor.hear())
                except ActorDied:
                    if stop.received:  # by the same signal, which was sent to all processes of the group
                        break
                    raise
                recorder.show(self.limiter.inserts)
            if updated and self.learner.updates % self.config.evaluation_interval == 0:
                self.consider(recorder)
            elif updated and self.learner.updates % self.config.record_interval == 0:
                recorder.record(self.limiter.inserts, None)
            if self.chooser.solved:
                return "solved"
            if self.limiter.inserts >= self.config.total_steps:
                if self.chooser.best is None:  # the budget was smaller than one evaluation_interval
                    self.consider(recorder)
                return "budget spent"
        return "interrupted"

    def consider(self, recorder: Recorder) -> None:
        """Evaluate the policy as it is, and save it if it is the best so far."""
        before, step = self.chooser.best, self.limiter.inserts
        evaluation = self.chooser.consider(self.learner.agent.weights(), step)
        recorder.record(step, evaluation)
        if (best := self.chooser.best) is not None and best is not before:
            self.folder.save_policy(best.weights, best.step)
            recorder.say(f"{step:>9,} steps, {self.learner.updates:>7,} updates: best so far, {best.proof}")

    def final_evaluation(self, chosen: Candidate, seconds: float) -> Evaluation:
        """Measure the chosen policy on episodes that played no part in choosing it."""
        self.policy.set_weights(chosen.weights)
        evaluation = evaluate(
            self.policy.act_greedily,
            self.config.environment,
            self.seeds.final,
            self.config.evaluation_step_limit,
        )
        self.folder.save_evaluation(evaluation, chosen.step, seconds)
        return evaluation
