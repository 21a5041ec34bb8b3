"""The learner: draws rows from the replay, learns from them, and tells the replay how surprising they still are.

The circle that makes prioritized replay work is closed here: sample → TD errors → gradient step → the same errors are
the rows' new priorities. Between two updates the learner waits for the limiter, so that a row is sampled as often on a
slow machine as on a fast one; every so often it puts its weights into the mailbox for the actors.

Left out: prefetching, GPUs, several learners.

Paper: Horgan et al. 2018, algorithm 2.
"""

from replay_tutorial import Mailbox, MPPrioritizedReplayBuffer, SamplesPerInsert
from replay_tutorial.apex.agent import Agent
from replay_tutorial.apex.config import Config


class Learner:
    """The agent and its ends of the replay, the limiter and the mailbox.

    Args:
        config: The run's settings.
        agent: What learns, with its first weights.
        replay: Where rows come from and priorities go to.
        limiter: Says when an update is due.
        mailbox: Where weights go to; the first ones at once, so that actors start from them.
    """

    def __init__(
        self,
        config: Config,
        agent: Agent,
        replay: MPPrioritizedReplayBuffer,
        limiter: SamplesPerInsert,
        mailbox: Mailbox,
    ) -> None:
        self.config = config
        self.replay = replay
        self.limiter = limiter
        self.mailbox = mailbox
        self.agent = agent
        self.metrics: dict[str, float] = {}  # of the last update
        self.mailbox.publish(agent.weights())

    @property
    def updates(self) -> int:
        """Updates made so far."""
        return self.agent.updates

    def update(self, timeout: float) -> bool:
        """Wait until an update is due, and make it; False if it wasn't due within `timeout` seconds."""
        size = self.config.batch_size
        if not self.limiter.await_can_sample(size, timeout=timeout):
            return False
        sample = self.replay.sample(size, beta=self.config.beta)
        self.limiter.sampled(size)
        priorities, self.metrics = self.agent.update(sample, sample["weights"])
        self.replay.update_priorities(sample["indexes"], priorities)
        if self.updates % self.config.publish_interval == 0:
            self.mailbox.publish(self.agent.weights())
        return True
