"""An actor whose ends are elsewhere: what it plays and stores is what a local one does, bit for bit."""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from cluster_parts import gateway_of, made_context, open_context

from replay_tutorial.apex.actor import Actor
from replay_tutorial.apex.messages import Episodes
from replay_tutorial.apex.parts import make_policy
from replay_tutorial.apex.seeds import RunSeeds
from replay_tutorial.cluster import remote_context as remote_context_module
from replay_tutorial.cluster.actor_link import ActorLink
from replay_tutorial.cluster.chunk import ChunkFormat
from replay_tutorial.cluster.remote_context import remote_context

COUNTING = "small_environments:Counting-v0"
PICTURES = "small_environments:StackedPictures-v0"
COLOURS = "small_environments:ColourPictures-v0"
SMALL = {"environments_per_actor": 2, "send_interval": 12, "capacity": 2000, "slack": 10**9}
SEND_SECONDS = remote_context_module.SEND_SECONDS


@pytest.fixture(autouse=True)
def each_send_a_chunk(monkeypatch):
    """Let no row wait for others, so that all are there when a test looks."""
    monkeypatch.setattr(remote_context_module, "SEND_SECONDS", 0.0)


def parameters_of(context, seed):
    count = make_policy(context.config, context.spaces).parameter_count
    return np.random.default_rng(seed).normal(size=count).astype(np.float32)


class Remote:
    """A remote actor, over a gateway on a shared context."""

    def __init__(self, context):
        self.gateway, self.shared = gateway_of(context)
        self.gone = set()  # references that lead nowhere
        self.fetched = []
        self.link = ActorLink([self.send], 0, 0, lambda error: False)
        self.context = remote_context(context.config, context.spaces, self.link, self.fetch)
        self.actor = actor_of(self.context)

    def send(self, *arguments):
        """A call that is answered when it is made."""
        answer = Future()
        answer.set_result(self.gateway.send(*arguments))
        return answer

    def fetch(self, reference):
        self.fetched.append(reference[0])
        if reference[0] in self.gone:
            return None
        parameters = self.shared[reference[0]]
        parameters.flags.writeable = False
        return parameters

    def look(self):
        self.link._last_call = -1.0
        self.link.pump()  # sends
        self.link.pump()  # takes in

    def pull(self):
        """Pull what there is now; else it would be what there was when the link looked last."""
        self.look()
        return self.actor.pull_parameters()


def actor_of(context):
    return Actor(context, 0, RunSeeds(context.config).actor(0, 0, 0))


def assert_same_rows(context, other):
    stored, expected = (each.replay.buffer[:] for each in (context, other))
    assert stored.keys() == expected.keys()
    for name, values in expected.items():
        assert stored[name].tobytes() == values.tobytes(), name
    assert context.counters.steps == other.counters.steps == len(expected["reward"]) > 0
    for _ in range(3):  # drawn by the same seed: the priorities are the same, too
        batch, drawn = (each.replay.sample(32, beta=0.4, timeout=0.0) for each in (context, other))
        np.testing.assert_array_equal(batch.indexes, drawn.indexes)
        np.testing.assert_array_equal(batch.weights, drawn.weights)


@pytest.mark.parametrize("environment", ["CartPole-v1", COUNTING, PICTURES, COLOURS])
def test_remote_actors_rows_are_those_of_a_local_one_after_newer_parameters_too(environment):
    few = {"send_interval": 4} if environment in (PICTURES, COLOURS) else {}  # images take longer
    context, other = (made_context(environment, **(SMALL | few)) for _ in range(2))
    remote = Remote(context)
    actor, local = remote.actor, actor_of(other)
    for version in range(1, 5):
        for each in (context, other):
            each.parameters.publish(parameters_of(context, version), 25 * version)
            each.counters.count_updates(25 * version + 3)
        assert remote.pull() and local.pull_parameters()
        assert (actor.version, actor.parameters_update) == (version, 25 * version)
        actor.play_and_send()
        local.play_and_send()
    remote.link.pump()
    assert_same_rows(context, other)
    assert remote.fetched == [0, 1, 2, 3]


def test_age_of_the_parameters_is_that_of_the_last_reply():
    context = open_context(**SMALL)
    remote = Remote(context)
    actor = remote.actor
    context.parameters.publish(parameters_of(context, 0), 25)
    context.counters.count_updates(30)
    assert remote.pull()
    assert actor.play().parameters_age == 5
    context.counters.count_updates(42)
    remote.look()
    assert actor.play().parameters_age == 17


def test_parameters_that_are_gone_leave_the_old_ones_until_the_next_reply():
    context = open_context(**SMALL)
    remote = Remote(context)
    actor = remote.actor
    context.parameters.publish(parameters_of(context, 0), 25)
    assert remote.pull()
    actor.play()
    rows = actor.fold()
    before = actor.policy.priorities(rows)

    remote.gone.add(1)
    context.parameters.publish(parameters_of(context, 1), 50)
    assert not remote.pull()
    assert (actor.version, actor.parameters_update) == (1, 25)
    np.testing.assert_array_equal(actor.policy.priorities(rows), before)
    assert not actor.pull_parameters(), "no reply since"
    assert remote.fetched == [0, 1]

    remote.gone.clear()
    assert remote.pull()
    assert (actor.version, actor.parameters_update) == (2, 50)
    assert not np.array_equal(actor.policy.priorities(rows), before)
    assert remote.fetched == [0, 1, 1]


def test_actor_waits_for_the_learner_without_losing_a_row():
    context = made_context(**(SMALL | {"slack": 30, "environments_per_actor": 1}))
    context.parameters.publish(parameters_of(context, 0), 0)
    remote = Remote(context)
    actor = remote.actor
    assert remote.pull()
    sent = []
    for _ in range(10):
        actor.play()
        rows = actor.fold()
        priorities = actor.policy.priorities(rows)
        while not remote.context.replay.insert(rows, priorities, timeout=0.0):
            context.replay.sample(64, beta=0.4, timeout=0.0)
        sent.append(rows)
    while context.counters.steps < sum(len(rows["reward"]) for rows in sent):
        context.replay.sample(64, beta=0.4, timeout=0.0)
        remote.link.pump()
    stored = context.replay.buffer[:]
    expected = {name: np.concatenate([rows[name] for rows in sent]) for name in sent[0]}
    order = np.lexsort(stored["obs"].T), np.lexsort(expected["obs"].T)
    for name, values in expected.items():
        np.testing.assert_array_equal(stored[name][order[0]], values[order[1]], name)
    assert remote.link.rows_lost == 0


def test_episodes_are_told_to_the_gateway():
    context = open_context(COUNTING, **SMALL)
    context.parameters.publish(parameters_of(context, 0), 0)
    remote = Remote(context)
    actor = remote.actor
    assert remote.pull()
    for _ in range(5):
        actor.play_and_send()
    remote.pull()
    told = remote.gateway.collect()
    assert all(isinstance(message, Episodes) for message in told.messages)
    assert [value for message in told.messages for value in message.returns] == [5.0] * 24
    assert told.rows_lost == {(0, 0): 0}


def test_actor_ends_when_a_reply_says_so():
    context = open_context(**SMALL)
    actor = Remote(context).actor
    context.stop.request()
    actor.run()  # though no parameters were ever published
    context.parameters.publish(parameters_of(context, 0), 0)
    Remote(context).actor.run()
    assert context.counters.steps == 0


def test_actor_that_waits_for_room_hears_that_the_run_is_over():
    context = made_context(**(SMALL | {"slack": 30, "environments_per_actor": 1}))
    context.parameters.publish(parameters_of(context, 0), 0)
    actor = Remote(context).actor
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(actor.run)
        while context.counters.steps < 30:
            pass
        context.stop.request()
        running.result(timeout=300.0)
    assert context.replay.limiter.error <= context.replay.limiter.error_buffer


class Kept:
    """A link that keeps what it is given, and always has room."""

    def __init__(self):
        self.chunks = []

    def has_room(self, timeout):
        return True

    def send(self, chunk):
        self.chunks.append(chunk)


@pytest.mark.parametrize(
    ("most_rows", "counts", "pauses", "sizes"),
    [
        pytest.param(100, [3] * 9, 0.25, [3, 12, 12], id="rows of a moment are one chunk"),
        pytest.param(100, [2] * 3, 2.0, [2, 2, 2], id="no row waits for others"),
        pytest.param(10, [30, 40], 2.0, [30, 40], id="a large call is sent at once"),
        pytest.param(10, [4, 4, 4, 4, 12, 2, 30, 1, 1], 0.0, [4, 8, 4, 12, 2, 30], id="limit"),
    ],
)
def test_chunks_hold_the_rows_of_a_moment(monkeypatch, most_rows, counts, pauses, sizes):
    """A chunk has more rows than `most_rows` only if one call has."""
    context = open_context(**SMALL)
    chunk_format, link, now = ChunkFormat(context.config, context.spaces), Kept(), [100.0]
    monkeypatch.setattr(remote_context_module, "SEND_SECONDS", SEND_SECONDS)
    monkeypatch.setattr(remote_context_module.time, "monotonic", lambda: now[0])
    replay = remote_context_module.RemoteReplay(link, chunk_format, most_rows)
    number = 0
    for count in counts:
        rewards = np.arange(number, number + count, dtype=np.float32)
        fields = {name: chunk_format.dtype[name] for name in chunk_format.dtype.names if name != "priorities"}
        rows = {name: np.zeros((count, *field.shape), field.base) for name, field in fields.items()}
        assert replay.insert(rows | {"reward": rewards}, 1 + rewards, timeout=0.0)
        number, now[0] = number + count, now[0] + pauses * SEND_SECONDS
    sent = np.concatenate([chunk.records for chunk in link.chunks])
    assert [len(chunk.records) for chunk in link.chunks] == sizes
    assert sent["reward"].ravel().tolist() == list(range(sum(sizes)))
    np.testing.assert_array_equal(sent["priorities"], 1 + sent["reward"].ravel())
