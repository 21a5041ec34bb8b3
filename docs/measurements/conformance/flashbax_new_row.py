"""After a priority of 1.9, a new row must get 1.9, too, and not 1.

flashbax truncates the largest priority to an integer; its main branch has corrected this since July 2025.
"""

import flashbax
import jax

buffer = flashbax.make_prioritised_item_buffer(4, 1, 4, priority_exponent=1.0)
state = buffer.add(buffer.init({"obs": jax.numpy.zeros(())}), {"obs": jax.numpy.zeros(())})
state = buffer.set_priorities(state, jax.numpy.array([0]), jax.numpy.array([1.9]))
state = buffer.add(state, {"obs": jax.numpy.ones(())})
shares = sorted(set(buffer.sample(state, jax.random.PRNGKey(0)).probabilities.tolist()))
assert all(abs(share - 0.5) < 0.01 for share in shares), shares
