"""The modules on a GPU: streams, graphs, types, lengths on the device. Skipped where there is none."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import recurve  # noqa: E402
import recurve.nn  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-5, torch.bfloat16: 3e-2, torch.float16: 5e-3}


@pytest.fixture(autouse=True)
def exact_float32():
    """Products in float32, not in TF32, which is PyTorch's default for its RNNs."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    yield
    torch.backends.cudnn.allow_tf32 = before


def both(name, dtype, *sizes, **options):
    """torch's module in float64 on the CPU, and ours on the GPU, with the same parameters."""
    theirs = getattr(torch.nn, name)(*sizes, **options).double()
    ours = getattr(recurve.nn, name)(*sizes, **options)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours.to("cuda", dtype)


def first(states):
    return states[0] if isinstance(states, tuple) else states


def compare(ours, theirs, dtype):
    scale = max(1.0, theirs.abs().max().item())
    torch.testing.assert_close(ours.double().cpu() / scale, theirs / scale, rtol=0, atol=TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True, "bias": False}], ids=str)
def test_against_torch(name, dtype, options):
    theirs, ours = both(name, dtype, 24, 32, **options)
    x = torch.randn(6, 5, 24)
    results = []
    for module, place in ((theirs, ("cpu", torch.float64)), (ours, ("cuda", dtype))):
        given = x.to(*place).requires_grad_()
        for _ in range(5):  # the plan may be replaced after the first calls
            y, final = module(given)
            gradients = torch.autograd.grad(y.sum() + first(final).sum(), [given, *module.parameters()])
        with torch.no_grad():
            quick = module(given)[0]
        results.append([y.detach(), first(final).detach(), quick, *gradients])
    for a, b in zip(results[1], results[0]):
        compare(a, b, dtype)


def test_packed_and_lengths():
    theirs, ours = both("LSTM", torch.float32, 24, 32, 2, bidirectional=True)
    lengths = [7, 2, 5, 1]
    x = torch.randn(7, 4, 24, dtype=torch.float64)
    pack = torch.nn.utils.rnn.pack_padded_sequence
    want, (h, _) = theirs(pack(x, torch.tensor(lengths), enforce_sorted=False))
    want = torch.nn.utils.rnn.pad_packed_sequence(want)[0]
    x = x.float().cuda()
    y, (ours_h, _) = ours(pack(x, torch.tensor(lengths), enforce_sorted=False))
    compare(torch.nn.utils.rnn.pad_packed_sequence(y)[0], want, torch.float32)
    compare(ours_h, h, torch.float32)
    for given in (lengths, torch.tensor(lengths), torch.tensor(lengths, device="cuda")):
        y, (ours_h, _) = ours(x, lengths=given)
        compare(y, want, torch.float32)
        compare(ours_h, h, torch.float32)


def test_resets():
    _, ours = both("GRU", torch.float32, 24, 32)
    x, hx = torch.randn(9, 3, 24, device="cuda"), torch.randn(1, 3, 32, device="cuda")
    resets = torch.rand(9, 3, device="cuda") < 0.3
    h, outputs = hx, []
    for t in range(9):
        h = h * (~resets[t]).unsqueeze(-1)
        y, h = ours(x[t : t + 1], h)
        outputs.append(y)
    torch.testing.assert_close(ours(x, hx, resets=resets)[0], torch.cat(outputs), rtol=1e-5, atol=1e-5)


def test_streams():
    """Work of a call is ordered with the work of its stream alone, and runs of two streams do not disturb each other."""
    _, ours = both("LSTM", torch.float32, 64, 128, 2)
    inputs = [torch.randn(50, 8, 64, device="cuda") for _ in range(4)]
    with torch.no_grad():
        want = [ours(x)[0].clone() for x in inputs]
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in inputs]
        found = []
        for _ in range(5):
            for x, stream in zip(inputs, streams):
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(200_000)
                    found.append(ours(x * 1.0)[0])
        torch.cuda.synchronize()
    for i, y in enumerate(found):
        torch.testing.assert_close(y, want[i % 4], rtol=1e-5, atol=1e-5)


def test_backward_on_another_stream():
    _, ours = both("GRU", torch.float32, 32, 64)
    x = torch.randn(20, 4, 32, device="cuda")
    (want,) = torch.autograd.grad(ours(x)[0].pow(2).sum(), ours.weight_hh_l0)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = ours(x)[0]
    torch.cuda.current_stream().wait_stream(stream)
    (found,) = torch.autograd.grad(y.pow(2).sum(), ours.weight_hh_l0)
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5)


def warm_up(step):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(stream)


def test_graph_of_a_training_step():
    _, ours = both("LSTM", torch.float32, 32, 64, 2)
    x = torch.randn(20, 4, 32, device="cuda", requires_grad=True)
    optimiser = torch.optim.SGD(ours.parameters(), lr=0.1)

    def step():
        optimiser.zero_grad(set_to_none=False)
        loss = ours(x)[0].pow(2).mean()
        loss.backward()
        optimiser.step()
        return loss

    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    start = {name: value.clone() for name, value in ours.state_dict().items()}
    batches = [torch.randn_like(x) for _ in range(5)]
    replayed = []
    for batch in batches:
        with torch.no_grad():
            x.copy_(batch)
        graph.replay()
        replayed.append(loss.item())
    end = {name: value.clone() for name, value in ours.state_dict().items()}
    ours.load_state_dict(start)
    for batch, seen in zip(batches, replayed):  # eager calls after the capture, with runs of their own
        with torch.no_grad():
            x.copy_(batch)
        assert step().item() == pytest.approx(seen, rel=1e-4)
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, end[name], rtol=1e-4, atol=1e-5)


def test_graph_with_dropout_and_device_lengths():
    """Masks differ from replay to replay, and lengths are read when the graph runs."""
    ours = recurve.nn.LSTM(16, 32, 2, dropout=0.5, device="cuda")
    x = torch.randn(10, 4, 16, device="cuda")
    lengths = torch.tensor([10, 10, 10, 10], device="cuda")

    def step():
        return ours(x, lengths=lengths)[0]

    warm_up(step)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = step()
    graph.replay()
    one = y.clone()
    graph.replay()
    assert not torch.equal(one, y)
    lengths.copy_(torch.tensor([3, 10, 1, 10], device="cuda"))
    graph.replay()
    assert y[3:, 0].abs().sum() == 0 and y[1:, 2].abs().sum() == 0 and y[9, 1].abs().sum() > 0


def test_graphed_callables():
    _, ours = both("GRU", torch.float32, 32, 64)
    x = torch.randn(12, 4, 32, device="cuda", requires_grad=True)
    want = ours(x)[0]
    (gradient,) = torch.autograd.grad(want.pow(2).sum(), x)
    want = want.detach()  # a graph of before would tie the parameters to its stream

    class Only(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = ours

        def forward(self, x):
            return self.inner(x)[0]

    graphed = torch.cuda.make_graphed_callables(Only(), (torch.randn_like(x).requires_grad_(),))
    y = graphed(x)
    torch.testing.assert_close(y, want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.autograd.grad(y.pow(2).sum(), x)[0], gradient, rtol=1e-4, atol=1e-5)


def test_first_call_in_a_capture():
    ours = recurve.nn.LSTM(7, 9, device="cuda")
    x = torch.randn(3, 2, 7, device="cuda")
    with torch.no_grad(), pytest.raises(RuntimeError, match="before the capture"):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            ours(x)
    torch.cuda.synchronize()
    with torch.no_grad():
        assert torch.isfinite(ours(x)[0]).all()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled(mode):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.network, self.last = torch.nn.Linear(16, 32), recurve.nn.LSTM(32, 32, 2), torch.nn.Linear(32, 4)

        def forward(self, x):
            return self.last(self.network(self.first(x))[0]).tanh()

    model = Model().cuda()
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    for _ in range(6):
        x = torch.randn(10, 4, 16, device="cuda")
        want = torch.autograd.grad(model(x).pow(2).sum(), list(model.parameters()))
        found = torch.autograd.grad(compiled(x).pow(2).sum(), list(model.parameters()))
        for a, b in zip(found, want):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype):
    theirs, ours = both("LSTM", torch.float32, 24, 32)
    plain = theirs.float().cuda()
    x = torch.randn(6, 5, 24, device="cuda", requires_grad=True)
    with torch.autocast("cuda", dtype):
        (a, (h, c)), (b, _) = ours(x), plain(x)
    assert (a.dtype, h.dtype, c.dtype) == (dtype,) * 3  # torch's, by cuDNN, is float16 in either case
    torch.testing.assert_close(a.float(), b.float(), rtol=2e-2, atol=2e-2)
    gradients = torch.autograd.grad(a.float().sum(), [x, *ours.parameters()])
    assert all(g.dtype == torch.float32 for g in gradients)


def test_opcheck():
    ours = recurve.nn.LSTM(4, 3, 2, device="cuda")
    parameters = [p.detach().requires_grad_() for p in ours.parameters()]
    x = torch.randn(5, 2, 4, device="cuda", requires_grad=True)
    torch.library.opcheck(torch.ops.recurve.network.default, (ours._net, x, parameters, [], [], [], [], [], 16 | 3 << 8, 0))


def test_long_sequence_and_empty_batch():
    ours = recurve.nn.GRU(4, 8, device="cuda")
    with torch.no_grad():
        y, h = ours(torch.randn(70_000, 1, 4, device="cuda"))
    torch.testing.assert_close(y[-1], h[0])
    y, h = ours(torch.randn(5, 0, 4, device="cuda"))
    assert y.shape == (5, 0, 8) and h.shape == (1, 0, 8)
    y.sum().backward()
    assert ours.weight_hh_l0.grad.abs().sum() == 0


def test_own_cell_stream_and_frozen():
    cell = recurve.nn.Cell("lstm_layernorm", 12, 16, 2, device="cuda")
    reference = cell.as_torch()
    x = torch.randn(7, 3, 12, device="cuda")
    torch.testing.assert_close(cell(x)[0], reference(x)[0], rtol=1e-4, atol=1e-4)
    cell.eval().freeze()
    stream = cell.stream(3)
    with torch.no_grad():
        steps = torch.stack([stream.step(x[t]) for t in range(7)])
        torch.testing.assert_close(steps, cell(x)[0], rtol=1e-4, atol=1e-4)
        for p in cell.parameters():
            p.mul_(0.5)
        cell.freeze()
        torch.testing.assert_close(cell(x)[0], reference(x)[0], rtol=1e-4, atol=1e-4)
        assert not torch.allclose(steps, cell(x)[0])


def test_scan():
    a, b = torch.rand(1000, 4, 64, device="cuda").requires_grad_(), torch.rand(1000, 4, 64, device="cuda")
    h = recurve.scan(a, b)
    want = recurve.scan(a.detach().cpu(), b.cpu())
    torch.testing.assert_close(h.cpu(), want, rtol=1e-4, atol=1e-4)
    assert torch.isfinite(torch.autograd.grad(h.sum(), a)[0]).all()


def test_other_devices_are_refused():
    ours = recurve.nn.LSTM(4, 8, device="cuda")
    with pytest.raises(RuntimeError):
        ours(torch.randn(3, 2, 4))
    with pytest.raises(RuntimeError):
        ours(torch.randn(3, 2, 4, device="cuda"), lengths=[1, 4])
    with pytest.raises(RuntimeError):
        ours(torch.randn(3, 2, 4, device="cuda"), (torch.zeros(1, 2, 8), torch.zeros(1, 2, 8)))


def test_takeover():
    theirs = torch.nn.LSTM(8, 16, 2, device="cuda")
    x = torch.randn(5, 3, 8, device="cuda")
    want = theirs(x)[0]
    with recurve.takeover():
        y = theirs(x)[0]
        gradients = torch.autograd.grad(y.sum(), list(theirs.parameters()))
    torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-4)
    for p, q in zip(gradients, torch.autograd.grad(want.sum(), list(theirs.parameters()))):
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-3)
