"""A priority is 1e8, then 1 again, as all others are: 8 stratified draws must take each of 8 items once.

JAX's default is 32 bits. With jax_enable_x64, which the README of later versions recommends, they do.
"""

import flashbax
import jax

buffer = flashbax.make_prioritised_item_buffer(8, 1, 8, priority_exponent=1.0)
state = buffer.init({"obs": jax.numpy.zeros(())})
for item in range(8):
    state = buffer.add(state, {"obs": jax.numpy.float32(item)})
for priority in (1e8, 1.0):
    state = buffer.set_priorities(state, jax.numpy.array([2]), jax.numpy.array([priority]))
drawn = buffer.sample(state, jax.random.PRNGKey(0)).indices.tolist()
assert sorted(drawn) == list(range(8)), drawn
