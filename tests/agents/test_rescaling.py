"""R2D2's rescaling of values: its definition, and its inverse in both float types."""

import math

import pytest

torch = pytest.importorskip("torch")

from replay_tutorial.agents.td_error import rescale, unscale

NUMBERS = [sign * 10.0**k for k in range(-6, 6) for sign in (-1, 1)] + [0.0, 3.0]


def test_rescale_is_its_definition():
    for x in NUMBERS:
        expected = math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 1e-3 * x
        assert rescale(torch.tensor(x, dtype=torch.float64)).item() == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 1e-5)])
@pytest.mark.parametrize("eps", [1e-3, 1e-2])
def test_unscale_is_the_inverse(dtype, tolerance, eps):
    x = torch.cat([torch.linspace(-1e5, 1e5, 20_001, dtype=torch.float64), torch.tensor(NUMBERS).double()])
    error = (unscale(rescale(x.to(dtype), eps), eps).double() - x).abs()
    assert (
        error <= tolerance * torch.clamp(x.abs(), min=1.0 if dtype == torch.float32 else 0.0) + 1e-12
    ).all()
    if dtype == torch.float64:
        assert error.max() <= 1e-6
