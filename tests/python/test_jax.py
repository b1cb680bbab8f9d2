"""recurve.jax.Network against networks of jax.lax.scan, and with JAX's transformations, on the CPU and on a GPU where JAX has one."""

import os
import subprocess
import sys
import threading
from typing import Any

import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import jax_reference as reference  # noqa: E402
import numpy as np  # noqa: E402
import recurve.jax as rj  # noqa: E402

jax.config.update("jax_enable_x64", True)

STEPS, BATCH, INPUT, HIDDEN = 7, 4, 5, 6
CELLS = {"lstm": "lstm", "gru": "gru", "leaky": reference.LEAKY}
TOLERANCE = {"float64": 1e-11, "float32": 2e-5, "bfloat16": 0.1, "float16": 0.02}
HAS_CUDA = any(device.platform == "gpu" for device in jax.devices())

pytestmark = pytest.mark.usefixtures("place")


def random(number: int, shape: Any, dtype: Any = "float64") -> Any:
    return jnp.asarray(np.random.default_rng(number).standard_normal(shape)).astype(dtype)


def random_states(net: rj.Network, number: int, batch: int = BATCH, dtype: Any = "float64") -> dict[str, Any]:
    return {name: random(number + i, v.shape, dtype) for i, (name, v) in enumerate(net.zeros(batch).items())}


def network(cell: str, layers: int = 1, **options: Any) -> rj.Network:
    return rj.Network(CELLS[cell], INPUT, HIDDEN, layers, effort="first", **options)


def close(ours: Any, theirs: Any, dtype: str = "float64") -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs)):
        np.testing.assert_allclose(
            np.asarray(a, "float64"), np.asarray(b, "float64"), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
        )


def weigh(result: Any, number: int = 90) -> Any:
    """A loss that depends on every output."""
    return sum(
        (leaf.astype("float64") * random(number + i, leaf.shape)).sum()
        for i, leaf in enumerate(jax.tree.leaves(result))
    )


def check(net: rj.Network, cell: str, layers: int, dtype: str = "float64", jit: bool = True, **options: Any) -> None:
    """Results and all gradients against the reference, which computes in float64."""
    params = net.init(jax.random.key(1), dtype)
    x, states = random(2, (STEPS, BATCH, INPUT), dtype), random_states(net, 3, dtype=dtype)
    restart = random_states(net, 5, dtype=dtype) if "resets" in options else None
    given, theirs = dict(options), dict(options)
    zoneout = given.pop("zoneout", 0.0)
    given.pop("bidirectional", None)

    def ours(params: Any, x: Any, states: Any, restart: Any) -> Any:
        return net(params, x, states, restart=restart, **given)

    def wanted(params: Any, x: Any, states: Any, restart: Any) -> Any:
        theirs["zoneout"] = zoneout
        return reference.run(cell, params, x, states, layers, restart=restart, **theirs)

    operands = (params, x, states, restart)
    exact = jax.tree.map(lambda a: a.astype("float64"), operands)
    which = (0, 1, 2) if restart is None else (0, 1, 2, 3)
    gradient = jax.grad(lambda *a: weigh(ours(*a)), which)
    want = jax.jit(lambda *a: (wanted(*a), jax.grad(lambda *b: weigh(wanted(*b)), which)(*a)))(*exact)
    found = (jax.jit(ours), jax.jit(gradient)) if jit else (ours, gradient)
    close(tuple(f(*operands) for f in found), want, dtype)


# ---- results and gradients ----


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("cell", CELLS)
def test_cell(cell: str, dtype: str) -> None:
    check(network(cell), cell, 1, dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_types(dtype: str) -> None:
    check(network("gru"), "gru", 1, dtype)


@pytest.mark.parametrize("cell", ["lstm", "leaky"])
def test_layers_and_directions(cell: str) -> None:
    check(network(cell, 2, bidirectional=True), cell, 2, bidirectional=True)


def test_lengths() -> None:
    check(network("lstm", 2, bidirectional=True), "lstm", 2, bidirectional=True, lengths=np.array([3, 7, 1, 5]))


def test_lengths_and_resets() -> None:
    resets = np.asarray(random(8, (STEPS, BATCH)) > 0.5)
    check(network("gru", 2), "gru", 2, lengths=jnp.array([3, 7, 1, 5]), resets=resets)


def test_resets_of_both_directions() -> None:
    resets = np.asarray(random(8, (STEPS, BATCH)) > 0.5)
    check(network("lstm", bidirectional=True), "lstm", 1, bidirectional=True, resets=resets)


def test_without_jit() -> None:
    check(network("lstm", 2), "lstm", 2, jit=False)


def test_expected_zoneout() -> None:
    check(network("lstm", 2, zoneout=0.3), "lstm", 2, zoneout=0.3)


def test_without_bias() -> None:
    net = network("lstm", bias=False)
    assert set(net.parameter_shapes) == {"weight_ih_l0", "weight_hh_l0"}
    check(net, "lstm", 1)


def test_planned_by_measuring() -> None:
    check(rj.Network("lstm", INPUT, HIDDEN), "lstm", 1, "float32")


@pytest.mark.parametrize("schedule", ["naive", "combine(steps=3)+fuse+pack"])
def test_schedule(schedule: str) -> None:
    check(network("lstm", 2, schedule=schedule), "lstm", 2)


def test_batch_first() -> None:
    net, other = network("gru"), network("gru", batch_first=True)
    params, x = net.init(jax.random.key(0)), random(1, (STEPS, BATCH, INPUT), "float32")
    y, states = net(params, x)
    y_first, states_first = other(params, x.swapaxes(0, 1))
    close((y_first.swapaxes(0, 1), states_first), (y, states), "float32")


def test_parameters_of_another_type() -> None:
    net = network("lstm")
    params, x = net.init(jax.random.key(0)), random(1, (STEPS, BATCH, INPUT), "bfloat16")
    gradient = jax.grad(lambda p: weigh(net(p, x)))(params)
    assert {g.dtype.name for g in gradient.values()} == {"float32"}
    zeros = {"h": jnp.zeros((1, BATCH, HIDDEN)), "c": jnp.zeros((1, BATCH, HIDDEN))}
    exact = jax.grad(lambda p: weigh(reference.run("lstm", p, x.astype("float64"), zeros)))(params)
    close(gradient, exact, "bfloat16")


def test_only_the_final_state_counts() -> None:
    """A gradient of y that is zero is not an array."""
    net = network("lstm")
    params, x, states = (
        net.init(jax.random.key(0), "float64"),
        random(1, (STEPS, BATCH, INPUT)),
        net.zeros(BATCH, "float64"),
    )
    ours = jax.grad(lambda p: net(p, x)[1]["c"].sum())(params)
    close(ours, jax.grad(lambda p: reference.run("lstm", p, x, states)[1]["c"].sum())(params))


def test_empty_batch() -> None:
    net = network("lstm", 2)
    params, x = net.init(jax.random.key(0)), jnp.zeros((STEPS, 0, INPUT))
    y, states = net(params, x)
    assert y.shape == (STEPS, 0, HIDDEN) and states["c"].shape == (2, 0, HIDDEN)
    assert all(not g.any() for g in jax.grad(lambda p: net(p, x)[0].sum())(params).values())


def test_states_of_different_sizes() -> None:
    net = rj.Network("lstm_proj", INPUT, HIDDEN, 2, sizes={"proj": 3}, effort="first")
    params, x = net.init(jax.random.key(0), "float64"), random(1, (STEPS, BATCH, INPUT))
    y, states = net(params, x)
    assert {name: s.shape for name, s in states.items()} == {"h": (2, BATCH, 3), "c": (2, BATCH, HIDDEN)}
    first, middle = net(params, x[:3])
    second, final = net(params, x[3:], middle)
    close((jnp.concatenate([first, second]), final), (y, states))


# ---- random numbers ----


def test_initial_parameters() -> None:
    net = rj.Network("lstm_layernorm", INPUT, 64, effort="first")
    params = jax.jit(net.init)(jax.random.key(0))
    assert {k: v.shape for k, v in params.items()} == net.parameter_shapes
    ones = [k for k, v in params.items() if (v == 1).all()]
    assert ones and all((v == v[0]).all() for k, v in params.items() if k in ones)
    weight = params["weight_hh_l0"]
    assert abs(weight).max() <= 1 / 8 and abs(weight).max() > 0.12 and len(np.unique(weight)) > 1000
    assert (net.init(jax.random.key(0))["weight_hh_l0"] == weight).all()
    assert (net.init(jax.random.key(1))["weight_hh_l0"] != weight).any()


def test_all_is_dropped() -> None:
    """With dropout 1 the second layer reads zeros."""
    net = network("gru", 2, dropout=1.0)
    params, x = net.init(jax.random.key(0), "float64"), random(1, (STEPS, BATCH, INPUT))
    zeros = {"h": jnp.zeros((1, BATCH, HIDDEN))}
    second = {k.replace("_l1", "_l0"): v for k, v in params.items() if "_l1" in k}
    wanted, _ = reference.run("gru", second, jnp.zeros((STEPS, BATCH, HIDDEN)), zeros)
    close(net(params, x, training=True, key=jax.random.key(1))[0], wanted)


@pytest.mark.parametrize("options", [{"dropout": 0.5}, {"dropout": 0.5, "variational": True}, {"zoneout": 0.4}])
def test_keys(options: dict[str, Any]) -> None:
    net = network("lstm", 2, **options)
    params, x = net.init(jax.random.key(0), "float64"), random(1, (STEPS, BATCH, INPUT))

    @jax.jit
    def loss(params: Any, key: Any) -> Any:
        return weigh(net(params, x, training=True, key=key))

    first, second = jax.random.split(jax.random.key(5))
    assert loss(params, first) == loss(params, first) != loss(params, second)
    assert loss(params, jax.random.PRNGKey(3)) == loss(params, jax.random.PRNGKey(3))
    # The backward call uses the numbers of its forward call.
    gradient, direction = jax.grad(loss)(params, first), {k: random(7, v.shape) for k, v in params.items()}
    moved = [{k: v + s * 1e-6 * direction[k] for k, v in params.items()} for s in (1, -1)]
    numeric = (loss(moved[0], first) - loss(moved[1], first)) / 2e-6
    assert abs(numeric - sum((gradient[k] * direction[k]).sum() for k in params)) < 1e-6 * abs(numeric) + 1e-6


# ---- transformations ----


def carry(net: Any, params: Any, x: Any) -> Any:
    """A call for each chunk of two steps, by lax.scan."""

    def body(states: Any, chunk: Any) -> Any:
        y, states = net(params, chunk, states)
        return states, y

    return jax.lax.scan(body, net.zeros(BATCH, "float64"), x.reshape(3, 2, BATCH, INPUT))


def test_in_scan() -> None:
    net = network("lstm", 2)
    params, x = net.init(jax.random.key(0), "float64"), random(1, (6, BATCH, INPUT))
    final, y = jax.jit(lambda p, x: carry(net, p, x))(params, x)
    whole, whole_final = net(params, x)
    close((y.reshape(whole.shape), final), (whole, whole_final))
    ours = jax.jit(jax.grad(lambda p, x: weigh(carry(net, p, x)[1].reshape(whole.shape)), (0, 1)))(params, x)
    close(ours, jax.grad(lambda p, x: weigh(net(p, x)[0]), (0, 1))(params, x))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_checkpoint(checkpoint: bool) -> None:
    net = network("lstm")
    params, x, states = (
        net.init(jax.random.key(0), "float64"),
        random(1, (STEPS, BATCH, INPUT)),
        net.zeros(BATCH, "float64"),
    )

    def loss(params: Any) -> Any:
        def call(p: Any, x: Any) -> Any:
            return jnp.sin(net(p, x)[0])

        return weigh((jax.checkpoint(call) if checkpoint else call)(params, x))

    wanted = jax.grad(lambda p: weigh(jnp.sin(reference.run("lstm", p, x, states)[0])))(params)
    close(jax.jit(jax.grad(loss))(params), wanted)


@pytest.mark.parametrize("batch_first", [False, True])
def test_vmap_of_inference(batch_first: bool) -> None:
    """Sequences of all elements are one batch, unless parameters differ."""
    net = network("lstm", 2, batch_first=batch_first)
    params, xs = net.init(jax.random.key(0), "float64"), random(1, (3, STEPS, STEPS, INPUT))
    lengths, resets = jnp.arange(1, 1 + STEPS), random(2, (3, STEPS, STEPS)) > 0.5
    states, restart = [
        jax.tree.map(lambda *a: jnp.stack(a), *(random_states(net, k + i, STEPS) for i in range(3))) for k in (5, 20)
    ]

    def call(params: Any, x: Any, states: Any, resets: Any, restart: Any) -> Any:
        return net(params, x, states, lengths, resets, restart)

    arguments = (xs, states, resets, restart)
    apart = [call(params, *jax.tree.map(lambda a, i=i: a[i], arguments)) for i in range(3)]
    wanted = jax.tree.map(lambda *a: jnp.stack(a), *apart)
    mapped = jax.vmap(call, (None, 0, 0, 0, 0))
    close(mapped(params, *arguments), wanted)
    assert ("f64[21,7,5]" if batch_first else "f64[7,21,5]") in str(jax.make_jaxpr(mapped)(params, *arguments))
    several = jax.tree.map(lambda a: jnp.stack([a, a, a]), params)
    close(jax.vmap(call)(several, *arguments), wanted)


def test_vmap() -> None:
    net = network("lstm", 2)
    params, xs = net.init(jax.random.key(0), "float64"), random(1, (3, STEPS, BATCH, INPUT))
    close(jax.vmap(lambda x: net(params, x))(xs), jax.tree.map(lambda *a: jnp.stack(a), *(net(params, x) for x in xs)))
    apart = [jax.grad(lambda p, x: weigh(net(p, x)))(params, x) for x in xs]
    each = jax.vmap(jax.grad(lambda p, x: weigh(net(p, x))), (None, 0))(params, xs)
    close(each, jax.tree.map(lambda *a: jnp.stack(a), *apart))
    total = jax.grad(lambda p: jax.vmap(lambda x: weigh(net(p, x)))(xs).sum())(params)
    close(total, jax.tree.map(lambda *a: sum(a), *apart))


def test_donated_parameters() -> None:
    net = network("gru")
    x = random(1, (STEPS, BATCH, INPUT))

    def step(params: Any, rate: float = 0.1) -> Any:
        gradient = jax.grad(lambda p: weigh(net(p, x)))(params)
        return jax.tree.map(lambda p, g: p - rate * g, params, gradient)

    params = net.init(jax.random.key(0), "float64")
    wanted = step(step(params))
    donating = jax.jit(step, donate_argnums=0)
    close(donating(donating(params)), wanted)


def test_many_threads() -> None:
    net = network("lstm", 2)
    params, x = net.init(jax.random.key(0), "float64"), random(1, (STEPS, BATCH, INPUT))
    call = jax.jit(jax.grad(lambda p, x: weigh(net(p, x))))
    wanted, wrong = call(params, x), []

    def work() -> None:
        for _ in range(20):
            found = call(params, x)
            wrong.extend(k for k, v in found.items() if not (v == wanted[k]).all())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_many_shapes() -> None:
    """More plans than are kept: those that were freed are made again."""
    net, count = network("gru"), 110
    params, x, weights = (
        net.init(jax.random.key(0), "float64"),
        random(1, (count, 2, INPUT)),
        random(2, (count, 2, HIDDEN)),
    )

    def ours(params: Any) -> Any:
        return sum((net(params, x[:n])[0] * weights[:n]).sum() for n in range(1, count + 1))

    def wanted(params: Any) -> Any:
        y, _ = reference.run("gru", params, x, net.zeros(2, "float64"))
        calls = count - jnp.arange(count)  # that compute a step
        return (y * weights * calls[:, None, None]).sum()

    close(jax.jit(jax.value_and_grad(ours))(params), jax.jit(jax.value_and_grad(wanted))(params))


def test_static_and_equal() -> None:
    a, b = network("leaky", 2), network("leaky", 2)
    assert a == b and hash(a) == hash(b) and a != network("leaky", 2, zoneout=0.1)
    assert jax.tree.leaves(a) == [] and "leaky" in repr(a)


CACHED = """
import jax, jax.numpy as jnp, logging, sys
sys.path.insert(0, {tests!r})
import recurve.jax as rj
jax.config.update("jax_compilation_cache_dir", {folder!r})
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
events = []
jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
net = rj.Network("lstm", 5, 6, 2, dropout=0.5)
params = net.init(jax.random.key(0))
x = jax.random.normal(jax.random.key(1), (7, 4, 5))
step = jax.jit(jax.value_and_grad(lambda p: net(p, x, training=True, key=jax.random.key(2))[0].sum()))
events.clear()
loss, gradient = step(params)
print(events.count("/jax/compilation_cache/cache_hits"), float(loss), float(sum(abs(g).sum() for g in gradient.values())))
"""


def test_compiled_in_another_process(tmp_path: Any, place: str) -> None:
    """An executable of JAX's persistent cache, in a process that has made no plan."""
    code = CACHED.format(tests=os.path.dirname(__file__), folder=str(tmp_path / "jax"))
    said = []
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"} if place == "cpu" else None
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.split())
    assert said[0][0] == "0" and int(said[1][0]) > 0
    assert said[0][1:] == said[1][1:]


# ---- what is refused ----

NET = network("lstm", 2, dropout=0.5)
PARAMS = NET.init(jax.random.key(0))
X = jnp.zeros((STEPS, BATCH, INPUT), "float32")
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"x": X[0]}, ValueError, r"x has shape \[4, 5\]; it must be \[steps, batch, 5\]"),
    ({"x": X[..., :2]}, ValueError, r"it must be \[steps, batch, 5\]"),
    ({"x": X[:0]}, ValueError, "no time steps"),
    ({"x": X.astype("int32")}, TypeError, "x is an array of int32"),
    ({"params": [1]}, TypeError, "params must map names"),
    ({"params": {"weight_ih_l0": PARAMS["weight_ih_l0"]}}, ValueError, "params has no 'weight_hh_l0'"),
    ({"params": {**PARAMS, "extra": X}}, ValueError, "params has 'extra'"),
    ({"params": {**PARAMS, "weight_ih_l0": X}}, ValueError, r"params\['weight_ih_l0'\] has shape"),
    ({"params": {**PARAMS, "bias_ih_l1": jnp.zeros(24)}}, TypeError, r"params\['bias_ih_l1'\] is an array of float64"),
    ({"states": {"k": X}}, ValueError, "states has 'k', which is no state of the cell: its states are h, c"),
    ({"states": (X, X)}, TypeError, "states must map names of states"),
    ({"states": {"h": X}}, ValueError, r"states\['h'\] has shape"),
    (
        {"states": {"h": jnp.zeros((2, BATCH, HIDDEN))}},
        TypeError,
        r"states\['h'\] is an array of float64; it must be of",
    ),
    ({"lengths": [1, 2]}, ValueError, r"lengths has shape \[2\]; it must be \[4\]"),
    ({"lengths": [1, 2, 0, 3]}, ValueError, r"lengths\[2\] is 0; it must be in 1..7"),
    ({"lengths": [1.0, 2, 2, 3]}, TypeError, "whole numbers"),
    ({"resets": X[..., 0]}, TypeError, "resets is an array of float32; it must be of bool"),
    ({"resets": jnp.zeros((3, 3), bool)}, ValueError, "resets has shape"),
    ({"restart": {}}, ValueError, "restart states are given, but no resets"),
    ({"training": True}, ValueError, "needs a key"),
    ({"training": True, "key": 3}, TypeError, "key is int; it must be one key"),
    ({"training": True, "key": jax.random.split(jax.random.key(0))}, TypeError, r"of shape \[2\]; it must be one key"),
    ({"dtype": "int32"}, TypeError, "no products in int32"),
]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("change", "kind", "said"), WRONG)
def test_wrong_call(change: dict[str, Any], kind: type[Exception], said: str, jit: bool) -> None:
    arguments = {"params": PARAMS, "x": X, **change}

    def call() -> Any:
        return NET(**arguments)

    with pytest.raises(kind, match=said) as error:
        (jax.jit(call) if jit else call)()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "kind", "said"),
    [
        (("nonsense", 5, 6), ValueError, "nonsense"),
        (("cell c(x) {\nstate h\nh' = tanh(W x + u * h)\nreturn h'\n}", 5, 6), SyntaxError, "'u'"),
        (("lstm", 0, 6), ValueError, "input"),
        (("lstm", 5, 6, -1), ValueError, "layers"),
    ],
)
def test_wrong_network(arguments: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        rj.Network(*arguments)


def test_wrong_options() -> None:
    for options, said in [
        ({"effort": "none"}, "no effort 'none'"),
        ({"device": "tpu"}, "no device 'tpu'"),
        ({"dropout": 2.0}, "dropout"),
        ({"sizes": {"proj": 3}}, "proj"),
    ]:
        with pytest.raises(ValueError, match=said):
            rj.Network("lstm", 5, 6, 2, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nothing"):
        network("lstm", schedule="nothing")(network("lstm").init(jax.random.key(0)), X)


def test_lengths_that_only_the_device_knows(place: str) -> None:
    """On the CPU the call fails; on a GPU the nearest length counts."""
    net = network("gru")
    params, call = net.init(jax.random.key(0)), jax.jit(lambda p, n: net(p, X, lengths=n)[0])
    if place == "cpu":
        with pytest.raises(jax.errors.JaxRuntimeError, match="length 9 of sequence 2 is not in 1 to 7"):
            call(params, jnp.array([1, 2, 9, 3])).block_until_ready()
    else:
        close(call(params, jnp.array([0, 2, 9, 3])), call(params, jnp.array([1, 2, 7, 3])), "float32")
    close(call(params, jnp.array([1, 2, 7, 3])), net(params, X, lengths=[1, 2, 7, 3])[0], "float32")


def test_second_derivatives() -> None:
    net = network("gru")
    params = net.init(jax.random.key(0))

    def loss(x: Any) -> Any:
        return net(params, x)[0].sum()

    for twice in (jax.grad(lambda x: jax.grad(loss)(x).sum()), jax.hessian(loss)):
        with pytest.raises(NotImplementedError, match="no second derivatives"):
            twice(X)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(loss, (X,), (X,))


def test_traced_for_another_device() -> None:
    net = rj.Network("gru", INPUT, HIDDEN, effort="first", device="cuda", schedule="naive")
    if HAS_CUDA:
        pytest.skip("there is a GPU")
    with pytest.raises((ValueError, NotImplementedError, jax.errors.JaxRuntimeError)):
        jax.block_until_ready(net(net.init(jax.random.key(0)), X))
