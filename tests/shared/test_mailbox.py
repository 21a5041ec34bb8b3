"""The mailbox holds the newest weights: never torn, never older than what a reader has."""

import multiprocessing
import pickle
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
from shared_rows import answer, every_start_method, running

from replay_tutorial import Mailbox
from replay_tutorial.shared.mailbox import begin_version, is_intact, publish_version

LENGTH = 500_000  # 2 MB: long enough to be caught half written


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_newest_weights_are_pulled_once_and_are_the_readers_own(dtype):
    mailbox = Mailbox(4, dtype)
    assert mailbox.version == 0
    assert mailbox.pull(0) is None, "nothing has been published"
    published = np.arange(4, dtype=dtype)
    assert mailbox.publish(published) == 1
    assert mailbox.publish(published + dtype(4)) == 2
    published[:] = 0
    version, weights = mailbox.pull(0)
    assert (version, mailbox.version, weights.dtype) == (2, 2, dtype)
    assert mailbox.pull(version) is None
    assert mailbox.pull(1)[0] == 2
    for _ in range(2):
        mailbox.publish(published)
    assert weights.tolist() == [4, 5, 6, 7]
    weights[:] = 9
    assert mailbox.pull(1)[1].tolist() == [0, 0, 0, 0]


def test_weights_that_do_not_fit_are_refused_and_change_nothing():
    mailbox = Mailbox(4)
    mailbox.publish(np.zeros(4, np.float32))
    for shape, dtype in ((3, np.float32), ((2, 2), np.float32), (4, np.float64), (0, np.float32)):
        with pytest.raises(ValueError, match=r"float32\(4,\)"):
            mailbox.publish(np.ones(shape, dtype))
    with pytest.raises(TypeError, match="must be an array of float32, not a list"):
        mailbox.publish([1, 2, 3, 4])
    assert mailbox.version == 1
    assert mailbox.pull(0)[1].tolist() == [0, 0, 0, 0]
    for length in (0, -1):
        with pytest.raises(ValueError, match=str(length)):
            Mailbox(length)


def test_modules_are_published_and_loaded_with_their_statistics_and_in_their_dtypes():
    torch = pytest.importorskip("torch")

    def network(seed):
        torch.manual_seed(seed)
        parts = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2).to(torch.bfloat16)
        return torch.nn.Sequential(*parts)

    learner, actor = network(0), network(1)
    mailbox = Mailbox.for_module(learner)
    before = {name: tensor.clone() for name, tensor in actor.state_dict().items()}
    assert mailbox.load_into(actor, 0) == 0, "nothing has been published"
    assert all(torch.equal(tensor, before[name]) for name, tensor in actor.state_dict().items())
    learner[1](learner[0](torch.randn(8, 3)))  # changes the statistics
    places = [tensor.data_ptr() for tensor in actor.parameters()]
    assert mailbox.publish(learner) == 1
    assert mailbox.load_into(actor, 0) == 1
    for (name, tensor), other in zip(actor.state_dict().items(), learner.state_dict().values(), strict=True):
        assert name.endswith("num_batches_tracked") or torch.equal(tensor, other), name
    assert places == [tensor.data_ptr() for tensor in actor.parameters()], "optimizers keep them"
    with torch.no_grad():
        actor[0].weight.zero_()
    assert mailbox.load_into(actor, 1) == 1 and not actor[0].weight.any(), "the newest is known"
    with pytest.raises(ValueError, match=r"float32\(42,\), not float32\(8,\)"):
        mailbox.publish(torch.nn.Linear(3, 2))
    with pytest.raises(ValueError, match="The module has 8 parameters, but 42 were published"):
        mailbox.load_into(torch.nn.Linear(3, 2), 0)


def test_a_module_of_other_shapes_and_equal_size_is_refused():
    torch = pytest.importorskip("torch")
    learner, actor = torch.nn.Linear(3, 5), torch.nn.Linear(9, 2)  # 20 numbers each
    made = Mailbox.for_module(learner)
    mailbox = pickle.loads(ForkingPickler.dumps(made))
    mailbox.publish(learner)
    before = actor.weight.tolist()
    with pytest.raises(ValueError, match=r"shape \(2, 9\).*of shape \(5, 3\)"):
        mailbox.load_into(actor, 0)
    assert actor.weight.tolist() == before


def test_whole_numbers_in_a_module_are_published_exactly():
    torch = pytest.importorskip("torch")
    sender, receiver = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    for module, number in ((sender, 2**24 + 1), (receiver, 0)):
        module.steps = torch.nn.Parameter(torch.tensor([number]), requires_grad=False)
    mailbox = Mailbox.for_module(sender)
    mailbox.publish(sender)
    mailbox.load_into(receiver, 0)
    assert receiver.steps.item() == 2**24 + 1 and torch.equal(receiver.weight, sender.weight)


@pytest.mark.parametrize("dtype", [object, [("number", object)]])
def test_objects_cannot_be_shared(dtype):
    with pytest.raises(TypeError, match="dtype must not contain Python objects"):
        Mailbox(3, dtype)


def test_masked_elements_are_not_published():
    mailbox = Mailbox(2)
    with pytest.raises(ValueError, match=r"masked elements.*filled\(value\)"):
        mailbox.publish(np.ma.masked_array([1, 2], [False, True], dtype=np.float32))
    assert mailbox.version == 0


def test_numbers_that_are_no_length_or_version_are_refused():
    for length, error in ((0, ValueError), (2.5, TypeError), (True, TypeError), (None, TypeError)):
        with pytest.raises(error, match="length must be"):
            Mailbox(length)
    mailbox = Mailbox(2)
    for version, error in ((-1, ValueError), (None, TypeError), (0.0, TypeError)):
        with pytest.raises(error, match="known_version must be"):
            mailbox.pull(version)


def test_nothing_is_pulled_before_the_first_version():
    assert Mailbox(2).pull(5) is None, "the version of an earlier run"


def test_a_version_is_whole_until_its_place_is_written_to_again():
    counters = np.zeros(16, np.int64)
    for version in (1, 2):
        assert begin_version(counters) == version
        publish_version(counters, version)
    assert is_intact(counters, 1) and is_intact(counters, 2)
    begin_version(counters)  # version 3, in the place of version 1
    assert not is_intact(counters, 1) and is_intact(counters, 2)


def read_until(mailbox, last_version, answers):
    """Pulls until it has seen the last version; tells what was wrong and how many versions it got."""
    known, seen, faults = 0, 0, []
    while known < last_version:
        pulled = mailbox.pull(known)
        if pulled is None:
            continue
        version, weights = pulled
        if version <= known:
            faults.append(f"{version} after {known}")
        if not np.all(weights == version):
            faults.append(f"version {version} is torn: {np.unique(weights)}")
        known, seen = version, seen + 1
    answers.put((seen, faults))


@every_start_method
def test_readers_get_whole_vectors_in_order_and_the_last_one(start_method):
    context = multiprocessing.get_context(start_method)
    mailbox, answers = Mailbox(LENGTH), context.Queue()
    with running(context, read_until, [(mailbox, 300, answers)] * 2) as readers:
        for version in range(1, 301):
            assert mailbox.publish(np.full(LENGTH, version, np.float32)) == version
        told = [answer(answers, readers) for _ in readers]
    assert [faults for _, faults in told] == [[], []]
    assert all(1 <= seen <= 300 for seen, _ in told)


def test_what_has_no_parameters_is_refused():
    torch = pytest.importorskip("torch")
    mailbox, linear = Mailbox(4), torch.nn.Linear(3, 1)
    mailbox.publish(linear)
    calls = Mailbox.for_module, mailbox.publish, lambda module: mailbox.load_into(module, 0)
    for call in calls:
        with pytest.raises(ValueError, match="Flatten has no parameters"):
            call(torch.nn.Flatten())
    for wrong in (linear.state_dict(), list(linear.parameters()), 3, None):
        for call in (calls[0], calls[2]):
            with pytest.raises(TypeError, match=r"module must be a torch.nn.Module, not a "):
                call(wrong)
    assert mailbox.version == 1
