"""From a list to a ring of records: four ways to store the newest transitions and sample from them."""

from replay_course.steps.uniform.deque_of_tuples import DequeOfTuples
from replay_course.steps.uniform.list_of_tuples import ListOfTuples
from replay_course.steps.uniform.ring_of_arrays import RingOfArrays
from replay_course.steps.uniform.ring_of_records import RingOfRecords

__all__ = ["DequeOfTuples", "ListOfTuples", "RingOfArrays", "RingOfRecords"]
