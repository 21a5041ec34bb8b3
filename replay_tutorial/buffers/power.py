"""Powers of many numbers, several at a time.

`x ** y` is a call of the C library, and a compiler can't do calls side by side: a loop of powers goes one number at a
time. Written out as additions and multiplications, without a branch, the same loop takes several numbers with each
instruction.

    x^y = 2^(y · log2 x),    x = 2^e · m with m in [√½, √2),    s = (m - 1) / (m + 1)
    log2 x = e + 2 / ln 2 · (s + s^3 / 3 + s^5 / 5 + ...),    2^f = Σ_k (f · ln 2)^k / k!  for f in [-½, ½]

Left out: negative numbers, exponents beyond [0, 1], and the last bits: the error is below 10^-13 of the result.

Source: Abramowitz and Stegun 1964, 4.1.27 and 4.2.1.
"""

import math

import numpy as np

from replay_tutorial.buffers.jit import kernel

# As many terms as add anything to a double. The last term comes first, as Horner's rule wants it.
LOG2_TERMS = tuple(2 / math.log(2) / (2 * k + 1) for k in reversed(range(11)))
EXP2_TERMS = tuple(math.log(2) ** k / math.factorial(k) for k in reversed(range(14)))

# A double is its sign, 11 bits of exponent (counted from -1023), and 52 bits of fraction.
FRACTION_BITS, ZERO_EXPONENT = 52, 1023
ROOT_OF_HALF = int(np.float64(math.sqrt(0.5)).view(np.int64))  # as bits
LEAST_NORMAL = 2.0**-1022  # below it, the bits mean something else


@kernel
def power(x: float, y: float) -> float:
    """Give x ** y for x in [0, 2^1023] and y in [0, 1]; 0 ** 0 is 1, other x below 2^-1022 are taken for 2^-1022."""
    bits = np.float64(max(x, LEAST_NORMAL)).view(np.int64)
    exponent = (bits - ROOT_OF_HALF) >> FRACTION_BITS
    m = np.int64(bits - (exponent << FRACTION_BITS)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    series = 0.0
    for term in LOG2_TERMS:
        series = series * (s * s) + term
    log2 = y * (exponent + s * series)
    whole = np.rint(log2)
    two_to_rest = 0.0
    for term in EXP2_TERMS:
        two_to_rest = two_to_rest * (log2 - whole) + term
    two_to_whole = np.int64((np.int64(whole) + ZERO_EXPONENT) << FRACTION_BITS).view(np.float64)
    return two_to_rest * two_to_whole if x > 0.0 or y == 0.0 else 0.0
