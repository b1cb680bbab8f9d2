"""recurve.jax on a GPU beside the CPU: where calls run, sizes of real networks, streams. Skipped where JAX has none.

test_jax.py and test_jax_scan.py run on the GPU, too.
"""

import os
import subprocess
import sys
from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import jax_reference as reference  # noqa: E402
import numpy as np  # noqa: E402
import recurve.jax as rj  # noqa: E402

jax.config.update("jax_enable_x64", True)

pytestmark = pytest.mark.skipif(
    not any(device.platform == "gpu" for device in jax.devices()), reason="JAX has no CUDA device"
)
STEPS, BATCH, INPUT, HIDDEN = 7, 4, 5, 6
TOLERANCE = {"float64": 1e-9, "float32": 5e-5, "tfloat32": 1e-2, "bfloat16": 5e-2, "float16": 1e-2}  # of the largest


def random(number: int, shape: Any, dtype: Any = "float32") -> Any:
    return jnp.asarray(np.random.default_rng(number).standard_normal(shape)).astype(dtype)


def compare(ours: Any, theirs: Any, dtype: str) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs)):
        a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
        np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE[dtype] * max(1.0, abs(b).max()))


def exact(tree: Any) -> Any:
    return jax.tree.map(lambda a: a.astype("float64"), tree)


def platform(array: Any) -> str:
    return next(iter(array.devices())).platform


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize(
    ("effort", "products"),
    [*(("first", name) for name in TOLERANCE), *(("measure", name) for name in ("float32", "tfloat32", "bfloat16"))],
)
def test_real_sizes(cell: str, effort: str, products: str) -> None:
    """Products on tensor cores, persistent kernels, and lengths on the device."""
    steps, batch, hidden, layers = 25, 32, 128, 2
    dtype = "float32" if products == "tfloat32" else products
    net = rj.Network(cell, 64, hidden, layers, effort=effort)
    params, x = net.init(jax.random.key(0), dtype), random(1, (steps, batch, 64), dtype)
    lengths, weights = jnp.asarray(np.random.default_rng(2).integers(1, steps + 1, batch)), random(3, (steps, batch, hidden))
    zeros = exact(net.zeros(batch))

    def ours(params: Any, x: Any, lengths: Any) -> Any:
        return net(params, x, lengths=lengths, dtype="tfloat32" if products == "tfloat32" else None)

    def theirs(params: Any, x: Any, lengths: Any) -> Any:
        return reference.run(cell, params, x, zeros, layers, lengths=lengths)

    def derive(function: Any) -> Any:
        loss = lambda p, x, n: (function(p, x, n)[0].astype("float64") * weights).sum()  # noqa: E731
        return jax.jit(lambda p, x, n: (function(p, x, n), jax.grad(loss, (0, 1))(p, x, n)))

    want, call = derive(theirs)(exact(params), exact(x), lengths), derive(ours)
    for _ in range(4):
        compare(call(params, x, lengths), want, products)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_against_cpu(dtype: str) -> None:
    net, host = (rj.Network("lstm", INPUT, HIDDEN, 2, effort="first", device=d) for d in (None, "cpu"))
    params, x = net.init(jax.random.key(0)), random(1, (STEPS, BATCH, INPUT), dtype)
    lengths, weights = np.array([3, 7, 1, 5]), random(2, (STEPS, BATCH, HIDDEN))

    def loss(net: Any, params: Any, x: Any) -> Any:
        return (net(params, x, lengths=lengths)[0].astype("float32") * weights).sum()

    ours = jax.jit(jax.value_and_grad(lambda p, x: loss(net, p, x), (0, 1)))(params, x)
    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        theirs = jax.value_and_grad(lambda p, x: loss(host, p, x), (0, 1))(*jax.device_put((params, x), cpu))
    compare(ours, theirs, dtype)


def test_where_calls_run() -> None:
    """On the device to which an operand is committed, else on the default device, wherever x was made."""
    cpu, gpu = jax.devices("cpu")[0], jax.devices("cuda")[0]
    net = rj.Network("gru", INPUT, HIDDEN, effort="first")
    params, x = net.init(jax.random.key(0)), random(1, (STEPS, BATCH, INPUT))
    wanted = net(params, x)[0]
    assert platform(wanted) == "gpu"
    for operands in ((jax.device_put(params, cpu), x), (params, jax.device_put(x, cpu))):
        y = net(*operands)[0]
        assert platform(y) == "cpu"
        compare(y, wanted, "float32")
    with jax.default_device(cpu):
        assert platform(net(params, x)[0]) == "cpu"
        assert platform(net(params, jax.device_put(x, gpu))[0]) == "gpu"
        there = random(1, (STEPS, BATCH, INPUT))
    assert platform(there) == "cpu" and platform(net(params, there)[0]) == "gpu"
    host = rj.Network("gru", INPUT, HIDDEN, effort="first", device="cpu")
    compare(jax.jit(lambda p, x: host(p, x)[0])(*jax.device_put((params, x), cpu)), wanted, "float32")


def test_traced_for_the_other_device() -> None:
    params, x = rj.Network("gru", INPUT, HIDDEN).init(jax.random.key(0)), random(1, (STEPS, BATCH, INPUT))
    for device, place in (("cpu", "cuda"), ("cuda", "cpu")):
        net = rj.Network("gru", INPUT, HIDDEN, effort="first", device=device)
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="was traced for"):
            jax.block_until_ready(net(*jax.device_put((params, x), jax.devices(place)[0])))


def test_scan_traced_for_the_cpu() -> None:
    a = jax.device_put(random(1, (STEPS, BATCH, INPUT)), jax.devices("cuda")[0])
    call = jax.jit(lambda a: rj.scan(a, a, lengths=[3, 7, 1, 5]))
    with jax.default_device(jax.devices("cpu")[0]):
        with pytest.raises((ValueError, jax.errors.JaxRuntimeError), match="was traced for the CPU"):
            call(a).block_until_ready()


def make_step(net: rj.Network, x: Any) -> Any:
    def step(params: Any, rate: float = 0.1) -> Any:
        gradient = jax.grad(lambda p: (net(p, x)[0] ** 2).mean())(params)
        return jax.tree.map(lambda a, g: a - rate * g, params, gradient)

    return step


def test_calls_in_a_row() -> None:
    """Calls are enqueued: results are those of calls that are waited for."""
    net = rj.Network("lstm", 64, 128, 2, effort="first")
    params, x = net.init(jax.random.key(0)), random(1, (20, 16, 64))
    step = jax.jit(make_step(net, x))
    at_once, one_by_one = params, params
    for _ in range(50):
        at_once = step(at_once)
    for _ in range(50):
        one_by_one = jax.block_until_ready(step(one_by_one))
    compare(at_once, one_by_one, "float32")
    inside = jax.jit(lambda p: jax.lax.fori_loop(0, 50, lambda _, p: make_step(net, x)(p), p))(params)
    compare(inside, one_by_one, "float32")


CAPTURED = """
import jax, jax.numpy as jnp, numpy as np
import recurve.jax as rj
net = rj.Network("lstm", 64, 128, 2, effort="first")
params = net.init(jax.random.key(0))
x = jax.random.normal(jax.random.key(1), (20, 16, 64))
def step(p):
    y, _ = net(p, jnp.sin(x * 1.5))
    h = rj.scan(jax.nn.sigmoid(y), jnp.tanh(y))
    return (jnp.cos(h @ p["weight_hh_l0"].T) ** 2).mean()
def train(p):
    loss, gradient = jax.value_and_grad(step)(p)
    return loss, jax.tree.map(lambda a, g: a - 1e-2 * g, p, gradient)
call = jax.jit(train)
losses = []
for _ in range(20):
    loss, params = call(params)
    losses.append(float(loss))
assert np.isfinite(losses).all()
print(*losses)
"""


def test_with_graphs_of_xla() -> None:
    """XLA records what surrounds a call in CUDA graphs, and not the call."""
    found = []
    for flags in ("--xla_gpu_enable_command_buffer=", "--xla_gpu_graph_min_graph_size=1"):
        environment = {**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"}
        done = subprocess.run(
            [sys.executable, "-c", CAPTURED], capture_output=True, text=True, timeout=300, env=environment
        )
        assert done.returncode == 0, done.stderr
        found.append([float(loss) for loss in done.stdout.split()])
    assert len(found[0]) == 20
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3)


def test_many_networks_at_once() -> None:
    """More calls in flight than the library keeps plans for, in float32 and bfloat16, from one program."""
    nets = [rj.Network("gru", 16, 16 + 8 * i, effort="first") for i in range(6)]
    params, x = [n.init(jax.random.key(i)) for i, n in enumerate(nets)], random(1, (30, 8, 16))
    call = jax.jit(lambda params, x: [net(p, x)[0] for net, p in zip(nets, params)])
    first = [np.asarray(y) for y in call(params, x)]
    for _ in range(20):
        results = call(params, x)
    for a, b in zip(results, first):
        np.testing.assert_array_equal(np.asarray(a), b)
