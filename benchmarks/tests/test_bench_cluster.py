"""The benchmark of the cluster engine samples from a replay that is full."""

from benchmarks import cluster


def test_batches_are_sampled_from_a_full_replay_of_different_rows():
    context = cluster.full_context(cluster.settings(200), cluster.ATARI)
    assert context.replay.next_index == 200
    drawn = context.replay.sample(400, 0.4, timeout=0.0).rows["obs"]
    different = {stack.tobytes() for stack in drawn}
    assert len(different) > 150, "a frame that repeats would be stored once, and stay in the cache"
    calls, arrived = cluster.rates_of(context, cluster.learn, 0.05)
    assert calls > 0 and arrived == 0
    assert context.counters.samples > 400
