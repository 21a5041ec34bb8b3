"""Environments: what becomes of their spaces, which are refused and why, and which agent fits the actions."""

import subprocess
import sys

import numpy as np
import pytest
import small_environments  # noqa: F401 - registers them, so that these tests can leave its name out
from gymnasium.spaces import Box, Discrete
from small_environments import FAULTS, Counting

from replay_tutorial.agents.environments import (
    CheckedEnvironment,
    EnvironmentFailed,
    UnsupportedEnvironment,
    make_environment,
    spaces_of,
    to_step_actions,
)
from replay_tutorial.agents.evaluation import evaluate
from replay_tutorial.apex.config import Config
from replay_tutorial.apex.parts import agent_name


def test_spaces_of_cart_pole_and_gymnasiums_threshold():
    spaces = spaces_of("CartPole-v1")
    assert (spaces.observation_shape, spaces.action_count, spaces.is_continuous) == ((4,), 2, False)
    assert spaces.solved_at == 475.0
    assert spaces_of("Counting-v0").solved_at is None


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ("NoSuchThing-v0", "NoSuchThing"),
        ("no_such_module:Thing-v0", "no_such_module"),
        ("NoBox2DHere-v0", "doesn't exist"),
        ("Sentences-v0", "no fixed size"),
        ("Buttons-v0", "supports Discrete"),
        ("Boundless-v0", "is unbounded"),
        ("Exiting-v0", r"creating 'Exiting-v0' called sys.exit\(0\)"),
        ("NeedsBox2D-v0", r'pip install "replay_tutorial\[games\]", with Python 3.13 or older'),
    ],
)
def test_environment_that_cannot_be_learned_is_refused_with_the_reason(environment, reason):
    with pytest.raises(UnsupportedEnvironment, match=reason):
        spaces_of(environment)


def test_actions_are_counted_from_zero_whatever_the_environment_counts_from():
    environment = make_environment("FromTen-v0")
    assert environment.action_space == Discrete(2)
    environment.reset(seed=0)
    for action in range(2):
        environment.step(action)


@pytest.mark.parametrize(
    ("environment", "shape", "stacked"),
    [
        ("SmallPictures-v0", (16,), False),
        ("GreyPictures-v0", (1, 40, 60), False),
        ("ColourPictures-v0", (3, 40, 60), False),
        ("StackedPictures-v0", (4, 40, 60), False),
        ("LastPictures-v0", (4, 40, 60), True),
        ("Grid-v0", (6,), False),
        ("Rooms-v0", (5,), False),
        ("Nested-v0", (3 + 2 + 4,), False),
    ],
)
def test_observations_become_flat_or_pictures_and_a_stack_where_gymnasiums_wrapper_says_so(
    environment, shape, stacked
):
    spaces, made = spaces_of(environment), make_environment(environment)
    assert (spaces.observation_shape, spaces.stacked) == (shape, stacked)
    for observation in (made.reset(seed=0)[0], made.step(0)[0]):
        assert made.observation_space.contains(observation)
        assert observation.shape == shape
        assert observation.any()


def test_colours_are_the_first_axis_of_a_picture():
    made = make_environment("ColourPictures-v0")
    observation, _ = made.reset(seed=0)
    shown = made.unwrapped.observation()
    np.testing.assert_array_equal(observation[0], shown[:, :, 0])
    grey = make_environment("GreyPictures-v0")
    observation, _ = grey.reset(seed=0)
    np.testing.assert_array_equal(observation[0], grey.unwrapped.observation())


def test_channels_of_minatar_are_the_first_axis_even_if_there_are_as_many_as_rows():
    spaces, made = spaces_of("MinAtar/Tiles-v0"), make_environment("MinAtar/Tiles-v0")
    assert (spaces.observation_shape, spaces.observation.dtype, spaces.stacked) == ((10, 10, 10), bool, False)
    observation, _ = made.reset(seed=0)
    assert spaces.observation.contains(observation)
    np.testing.assert_array_equal(observation, made.unwrapped.observation().transpose(2, 0, 1))


@pytest.mark.parametrize(("game", "channels"), [("Breakout", 4), ("Freeway", 7), ("Seaquest", 10)])
def test_games_of_minatar_can_be_made(game, channels):
    pytest.importorskip("minatar", reason="needs the extra `games`")
    assert spaces_of(f"MinAtar/{game}-v1").observation_shape == (channels, 10, 10)


def test_actions_from_minus_one_to_one_reach_all_of_the_box():
    made = make_environment("Levers-v0")
    spaces = spaces_of("Levers-v0")
    assert spaces.is_continuous
    assert spaces.action == Box(-1.0, 1.0, (2,), np.float32)
    made.reset(seed=0)
    batch = np.array([[-1, -1], [1, 1], [0, -0.5]], np.float32)
    given = [made.step(action)[4]["given"] for action in to_step_actions(batch)]
    assert given == [[0.0, -10.0], [1.0, 30.0], [0.5, 0.0]]


def test_batch_of_actions_is_dealt_out():
    assert to_step_actions(np.array([2, 0])) == [2, 0]
    first, second = to_step_actions(np.array([[0.5], [1.0]], np.float32))
    assert (first.shape, second.tolist()) == ((1,), [1.0])


@pytest.mark.parametrize(
    ("environment", "name", "other"), [("CartPole-v1", "dqn", "dpg"), ("Pendulum-v1", "dpg", "dqn")]
)
def test_actions_decide_the_agent_and_another_is_refused(environment, name, other):
    for asked in (None, name):
        assert agent_name(Config(environment=environment, agent=asked), spaces_of(environment)) == name
    with pytest.raises(UnsupportedEnvironment, match=f"agent is {other}"):
        agent_name(Config(environment=environment, agent=other), spaces_of(environment))


@pytest.mark.parametrize(
    ("blocked", "environment"),
    [("ale_py", "ALE/Pong-v5"), ("Box2D", "LunarLander-v3"), ("minatar", "MinAtar/Breakout-v1")],
)
def test_missing_package_is_told_with_the_command_that_brings_it(blocked, environment):
    code = f"""
import sys
sys.modules[{blocked!r}] = None
from replay_tutorial.agents.environments import spaces_of
spaces_of({environment!r})
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert 'pip install "replay_tutorial[games]"' in last


def test_lunar_lander_can_be_made():
    pytest.importorskip("Box2D", reason="needs the extra `games`")
    spaces = spaces_of("LunarLander-v3")
    assert (spaces.observation_shape, spaces.action_count) == ((8,), 4)


def id_of(fault):
    return f"{fault.title().replace(' ', '')}-v0"


@pytest.mark.parametrize("fault", FAULTS)
def test_environment_that_returns_no_number_or_exits_is_named_with_the_step(fault):
    environment = make_environment(id_of(fault), label="this one")
    with pytest.raises(EnvironmentFailed, match=FAULTS[fault].replace("of .*", "of this one")):
        for _ in range(3):
            environment.reset()
            while not any(environment.step(0)[2:4]):
                pass
    with pytest.raises(EnvironmentFailed, match=FAULTS[fault].replace("of .*", f"of {id_of(fault)}")):
        evaluate(lambda observations: np.zeros(len(observations), int), id_of(fault), [1, 2, 3], num_envs=1)


def test_numbers_of_float16_are_accepted_without_a_warning():
    class Half(Counting):
        observation_space = Box(-np.inf, np.inf, (2,), np.float16)

        def step(self, action):
            return np.full(2, 6e4, np.float16), np.float16(6e4), False, False, {}

    observation, reward, *_ = CheckedEnvironment(Half(), "half").step(0)
    assert observation.dtype == np.float16
    assert reward == 6e4


def test_environment_that_exits_when_it_is_closed_is_named():
    with pytest.raises(
        EnvironmentFailed, match=r"close of ExitingAtItsEnd-v0 called sys.exit\(0\), in .*, line"
    ):
        spaces_of("ExitingAtItsEnd-v0")
