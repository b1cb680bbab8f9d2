"""recurve.jax.scan against jax.lax.scan, on the CPU and on a GPU where JAX has one."""

from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import recurve.jax as rj  # noqa: E402

jax.config.update("jax_enable_x64", True)

pytestmark = pytest.mark.usefixtures("place")

STEPS, BATCH, CHANNELS = 9, 3, 5
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 0.02, "bfloat16": 0.1}


def random(number: int, shape: Any, dtype: str = "float64") -> Any:
    return jnp.asarray(np.random.default_rng(number).uniform(-1, 1, shape)).astype(dtype)


def reference(
    a: Any, b: Any, initial: Any = None, lengths: Any = None, resets: Any = None, reverse: bool = False
) -> Any:
    steps, batch, channels = a.shape
    initial = jnp.zeros((batch, channels)) if initial is None else initial
    lengths = jnp.full(batch, steps) if lengths is None else jnp.asarray(lengths)
    valid = (jnp.arange(steps)[:, None] < lengths)[..., None]
    resets = (jnp.zeros((steps, batch), bool) if resets is None else jnp.asarray(resets)) & valid[..., 0]
    if reverse:  # an episode ends before the next one begins
        resets = jnp.concatenate([resets[1:], jnp.zeros((1, batch), bool)])

    def body(h: Any, inputs: Any) -> Any:
        a_t, b_t, valid_t, reset_t = inputs
        after = a_t * jnp.where(reset_t[:, None], initial, h) + b_t
        h = jnp.where(valid_t, after, h)
        return h, jnp.where(valid_t, h, 0)

    return jax.lax.scan(body, initial, (a, b, valid, resets), reverse=reverse)[1]


def close(ours: Any, theirs: Any, dtype: str = "float64") -> None:
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs)):
        np.testing.assert_allclose(
            np.asarray(x, "float64"), np.asarray(y, "float64"), TOLERANCE[dtype], TOLERANCE[dtype]
        )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("options", ["", "lengths", "resets", "lengths resets"])
def test_scan(options: str, reverse: bool) -> None:
    given: dict[str, Any] = {"reverse": reverse}
    if "lengths" in options:
        given["lengths"] = np.array([4, 9, 1])
    if "resets" in options:
        given["resets"] = np.asarray(random(5, (STEPS, BATCH)) > 0.4)
    operands = random(1, (STEPS, BATCH, CHANNELS)), random(2, (STEPS, BATCH, CHANNELS)), random(3, (BATCH, CHANNELS))
    weights = random(4, (STEPS, BATCH, CHANNELS))
    close(jax.jit(lambda *o: rj.scan(*o, **given))(*operands), reference(*operands, **given))
    ours = jax.grad(lambda *o: (rj.scan(*o, **given) * weights).sum(), (0, 1, 2))
    theirs = jax.grad(lambda *o: (reference(*o, **given) * weights).sum(), (0, 1, 2))
    close(jax.jit(ours)(*operands), jax.jit(theirs)(*operands))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_types(dtype: str) -> None:
    a, b = random(1, (STEPS, BATCH, CHANNELS), dtype), random(2, (STEPS, BATCH, CHANNELS), dtype)
    h = rj.scan(a, b)
    assert h.dtype == a.dtype
    close(h, reference(a.astype("float64"), b.astype("float64")), dtype)
    da, initial = jax.grad(lambda a, i: rj.scan(a, b, i).sum(), (0, 1))(a, random(3, (BATCH, CHANNELS), dtype))
    assert da.dtype == a.dtype == initial.dtype


@pytest.mark.parametrize("shape", [(3000, 1, 4), (700, 2, 32), (64, 4, 512)])
def test_sizes(shape: Any) -> None:
    """Long, and wide: on a GPU by several algorithms, whose memory each first call finds cleared."""
    a, b, weights = random(1, shape), random(2, shape), random(3, shape)
    for dtype in ("float64", "float32"):
        given = a.astype(dtype), b.astype(dtype)
        close(jax.jit(rj.scan)(*given), jax.jit(reference)(a, b), dtype)
        ours = jax.jit(jax.grad(lambda a, b: (rj.scan(a, b).astype("float64") * weights).sum(), (0, 1)))
        theirs = jax.jit(jax.grad(lambda a, b: (reference(a, b) * weights).sum(), (0, 1)))
        close(ours(*given), theirs(a, b), dtype)


def test_lengths_traced_and_resets() -> None:
    a, b, resets = random(1, (STEPS, BATCH, CHANNELS)), random(2, (STEPS, BATCH, CHANNELS)), random(3, (STEPS, BATCH)) > 0
    call = jax.jit(lambda lengths: rj.scan(a, b, lengths=lengths, resets=resets))
    for lengths in ([4, 9, 1], [9, 2, 3]):
        close(call(jnp.array(lengths)), reference(a, b, lengths=lengths, resets=resets))


def test_without_batch() -> None:
    a, b, initial = random(1, (STEPS, CHANNELS)), random(2, (STEPS, CHANNELS)), random(3, (CHANNELS,))
    resets = np.arange(STEPS) == 3
    wanted = reference(a[:, None], b[:, None], initial[None], resets=resets[:, None])[:, 0]
    close(rj.scan(a, b, initial, resets=resets), wanted)
    assert rj.scan(a[:, :0], b[:, :0]).shape == (STEPS, 0)


def test_vmap() -> None:
    a, b = random(1, (2, STEPS, BATCH, CHANNELS)), random(2, (STEPS, BATCH, CHANNELS))
    close(jax.vmap(lambda a: rj.scan(a, b))(a), jnp.stack([reference(x, b) for x in a]))
    close(
        jax.grad(lambda b: jax.vmap(lambda a: rj.scan(a, b))(a).sum())(b),
        jax.grad(lambda b: sum(reference(x, b).sum() for x in a))(b),
    )


def test_refusals() -> None:
    a = random(1, (STEPS, BATCH, CHANNELS))
    with pytest.raises(ValueError, match=r"b has shape \[2, 3, 5\]; it must be \[9, 3, 5\]"):
        rj.scan(a, a[:2])
    with pytest.raises(ValueError, match=r"initial has shape \[5\]"):
        rj.scan(a, a, a[0, 0])
    with pytest.raises(ValueError, match=r"lengths\[0\] is 10; it must be in 1..9"):
        rj.scan(a, a, lengths=[10, 2, 3])
    with pytest.raises(TypeError, match="must be of float numbers"):
        rj.scan(a.astype("complex64"), a)
    with pytest.raises(TypeError, match="must be of bool"):
        rj.scan(a, a, resets=a[..., 0])
    with pytest.raises(ValueError, match="no time steps"):
        rj.scan(a[:0], a[:0])
    with pytest.raises(NotImplementedError, match="no second derivatives"):
        jax.hessian(lambda a: rj.scan(a, a).sum())(a)
