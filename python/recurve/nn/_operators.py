"""The operators of PyTorch that run networks: torch.ops.recurve.network, which has derivatives, and forward and backward, which have none.

Their kernels are in C (bindings/torch/operators.c). Here are their shapes for torch.compile, and the derivatives. In graphs of torch.compile there
are forward and backward, since each call of an operator whose derivative is in Python costs some 50 us. In eager mode, too, what a module calls is a
torch.autograd.Function around these two, or around functions of bindings/torch/quick.c that do the same without PyTorch's dispatcher.
"""

# mypy: disable-error-code=no-untyped-call

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from recurve._native import loader
from recurve.nn._packed import Packing
from recurve._native.bindings import bindings as bindings, find_net, message

# The argument `flags`: the type of products, and these bits (bindings/torch/operators.h).
TRAINING = 16
BATCH_FIRST = 32
ALLOW_TF32 = 64  # of `infer_quickly` alone
EFFORT_SHIFT = 8

INPUT_PLACE, QUICK_PLACE = 7, 4  # of x among the arguments of the functions with derivatives; of _QuickRun

# rcv_effort
ESTIMATED, IN_BACKGROUND = 1, 3

# rcv_dtype
FLOAT32, FLOAT64, FLOAT16, BFLOAT16, TFLOAT32 = 0, 1, 2, 3, 8

_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_is_function_mode_enabled = torch._C._is_torch_function_mode_enabled
_transforms_active = torch._C._are_functorch_transforms_active
_is_tracing = torch._C._is_tracing
_is_profiled = torch._C._autograd._profiler_enabled

DOUBLE_BACKWARD = (
    "recurve has no second derivatives: the gradient of a gradient was asked for; call as_torch() on the module, which "
    "gives a module of PyTorch's own operations with the same parameters"
)
FORWARD_MODE = (
    "recurve has no derivatives in forward mode, as torch.func.jvp and jacfwd take them: use reverse mode (vjp, grad), or call as_torch() "
    "on the module"
)
NO_VMAP = "recurve's networks cannot be mapped by torch.vmap: give the sequences as one batch, or call as_torch() on the module"


class Shapes:
    """What a description says about the tensors of a call."""

    def __init__(self, net: str) -> None:
        core = loader.native()
        self.pointer = pointer = find_net(net)
        self.output = int(core.rcv_net_output(pointer))
        states = [core.rcv_net_state(pointer, i).contents for i in range(core.rcv_net_state_count(pointer))]
        self.states = [(s.name.decode(), int(s.size), int(s.total)) for s in states]
        parameters = [core.rcv_net_parameter(pointer, i).contents for i in range(core.rcv_net_parameter_count(pointer))]
        self.parameters = [(p.name.decode(), tuple(p.shape[: p.dims]), int(p.offset)) for p in parameters]
        options = net.split("\n", 1)[0]
        #: a sequence may be run in several calls: one direction, random numbers for each step, states that can be cut
        self.may_be_cut = not ("bidirectional=" in options or "variational=" in options) and all(size for _, size, _ in self.states)

    def state_shape(self, index: int, batch: Any) -> tuple[Any, ...]:
        """Of a state: [layers * directions, batch, size], or flat where its size differs between layers."""
        _, size, total = self.states[index]
        return (total // size, batch, size) if size else (total * batch,)


@functools.cache
def shapes(net: str) -> Shapes:
    return Shapes(net)


def _check_devices(x: Tensor, **lists: list[Tensor]) -> None:
    """Where one tensor is on the meta device, and another is not, the kernels' own check is not reached."""
    for name, tensors in lists.items():
        for t in tensors:
            if t.device != x.device:
                raise RuntimeError(
                    f"Input and {name} tensors are not at the same device, found input tensor at {x.device} and {name} tensor at {t.device}"
                )


def _forward_shapes(
    net: str,
    x: Tensor,
    parameters: list[Tensor],
    initial: list[Tensor],
    restart: list[Tensor],
    lengths: list[Tensor],
    resets: list[Tensor],
    seed: list[Tensor],
    flags: int,
    frozen: int,
) -> list[Tensor]:
    _check_devices(x, parameter=parameters, hidden=[*initial, *restart])
    known = shapes(net)
    batch = x.shape[0] if flags & BATCH_FIRST else x.shape[1]
    out = [x.new_empty((x.shape[0], x.shape[1], known.output))]
    out += [x.new_empty(known.state_shape(i, batch)) for i in range(len(known.states))]
    if flags & TRAINING:
        out.append(x.new_empty((1,), dtype=torch.uint8))
    return out


def _backward_shapes(
    net: str,
    dy: list[Tensor],
    dfinal: list[Tensor],
    x: Tensor,
    parameters: list[Tensor],
    initial: list[Tensor],
    restart: list[Tensor],
    lengths: list[Tensor],
    resets: list[Tensor],
    seed: list[Tensor],
    reserve: Tensor,
    flags: int,
    wanted: str,
) -> list[Tensor]:
    tensors = [x] if wanted[0] == "1" else []
    tensors += [p for p, w in zip(parameters, wanted[3:]) if w == "1"]
    tensors += initial if wanted[1] == "1" else []
    tensors += restart if wanted[2] == "1" else []
    return [torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in tensors]


def _is_intercepted() -> bool:
    """Whether something sees or changes calls of operators: a mode, a transform, a trace, a profiler."""
    return (
        _is_compiling()
        or _dispatch_modes() > 0
        or _is_function_mode_enabled()
        or _transforms_active()
        or _is_tracing()
        or _is_profiled()
    )


def _make_contiguous(t: Tensor | None) -> Tensor | None:
    """A contiguous copy, as an operator makes it; None: the tensor is contiguous, or more is the matter."""
    can = type(t) is Tensor and t.layout is torch.strided and not t.is_contiguous()
    return t.detach().contiguous() if t is not None and can else None


def _run_forward_quickly(
    net: str,
    flags: int,
    parameter_count: int,
    initial_count: int,
    lengths: list[Tensor],
    resets: list[Tensor],
    seed: list[Tensor],
    x: Tensor,
    tensors: tuple[Tensor, ...],
) -> tuple[Tensor, ...] | None:
    """A call in training without derivatives: y, the final states and the reserve; None: the operator is to be called."""
    if _forward_quickly is None or _is_intercepted():
        return None
    call = shapes(net).pointer, flags, parameter_count, initial_count, lengths, resets, seed
    found: tuple[Tensor, ...] | None = _forward_quickly(*call, x, tensors)
    if found is None and (copy := _make_contiguous(x)) is not None:
        found = _forward_quickly(*call, copy, tensors)
    return found


def _run_forward(
    net: str,
    flags: int,
    parameter_count: int,
    initial_count: int,
    lengths: list[Tensor],
    resets: list[Tensor],
    seed: list[Tensor],
    x: Tensor,
    tensors: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    """The same by the operator."""
    after = parameter_count + initial_count
    with _below_autograd():
        return tuple(
            _forward(net, x, tensors[:parameter_count], tensors[parameter_count:after], tensors[after:], lengths, resets, seed, flags, 0)
        )


def _run_backward_quickly(call: tuple[Any, ...], saved: tuple[Tensor, ...], needs: tuple[bool, ...], grads: tuple[Tensor | None, ...]) -> Any:
    """The gradients of all arguments of a function below; None: the operator is to be called. call: ctx.call of _keep."""
    if _backward_quickly is None or _is_intercepted():
        return None
    found = _backward_quickly(*call, saved, needs, grads)
    if found is not None:
        return found
    x, dy = _make_contiguous(saved[0]), _make_contiguous(grads[0])
    if x is None and dy is None:
        return None
    saved = saved if x is None else (x, *saved[1:])
    grads = grads if dy is None else (dy, *grads[1:])
    return _backward_quickly(*call, saved, needs, grads)


def _run_backward(
    net: str, call: tuple[Any, ...], saved: tuple[Tensor, ...], needs: tuple[bool, ...], grads: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, ...]:
    """The same by the operator."""
    _, flags, parameter_count, initial_count, count, length_count, reset_count, place = call
    x, *rest, reserve = saved
    tensors, others = rest[:count], rest[count:]
    after = parameter_count + initial_count
    parameters, initial, restart = tensors[:parameter_count], tensors[parameter_count:after], tensors[after:]
    lengths, others = others[:length_count], others[length_count:]
    resets, seed = others[:reset_count], others[reset_count:]
    needs_x, *needs_tensors = needs[place:]
    needs_parameters = needs_tensors[:parameter_count]
    needs_initial, needs_restart = any(needs_tensors[parameter_count:after]), any(needs_tensors[after:])
    wanted = "".join("1" if n else "0" for n in (needs_x, needs_initial, needs_restart, *needs_parameters))
    dy = [] if grads[0] is None else [grads[0]]
    final = grads[1 : 1 + len(shapes(net).states)]
    none = x.new_empty(0)
    dfinal = [none if g is None else g for g in final] if any(g is not None for g in final) else []
    with _below_autograd():
        flat = _backward(net, dy, dfinal, x, parameters, initial, restart, lengths, resets, seed, reserve, flags, wanted)
    found = iter(flat)
    each = (needs_x, *needs_parameters, *[needs_initial] * len(initial), *[needs_restart] * len(restart))
    return (*[None] * place, *(next(found) if n else None for n in each))


class _Refuse(torch.autograd.Function):
    """The first `count` tensors, which depend on all of them; the derivative is refused."""

    @staticmethod
    def forward(count: int, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        return tuple(None if t is None else t.view_as(t) for t in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor | None, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        raise RuntimeError(DOUBLE_BACKWARD)


def _derive_call(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    saved = ctx.saved_tensors
    if _is_grad_enabled():  # create_graph: a second derivative may be asked for
        return _derive_call_again(ctx, saved, grads)
    found: tuple[Any, ...] | None = _run_backward_quickly(ctx.call, saved, ctx.needs_input_grad, grads)
    return _run_backward(ctx.net, ctx.call, saved, ctx.needs_input_grad, grads) if found is None else found


def _derive_call_again(ctx: Any, saved: tuple[Tensor, ...], grads: tuple[Tensor | None, ...]) -> tuple[Any, ...]:
    count, place = ctx.call[4], ctx.call[-1]
    with torch.no_grad():
        found = _run_backward(ctx.net, ctx.call, saved, ctx.needs_input_grad, grads)[place:]
    refused: tuple[Tensor | None, ...] = _Refuse.apply(len(found), *found, *saved[: 1 + count], *grads)
    return (*[None] * place, *refused)


class _Derived(torch.autograd.Function):
    """What the functions below share: derivatives in reverse mode, and the refusal of those in forward mode."""

    backward = staticmethod(_derive_call)

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Any:
        raise RuntimeError(FORWARD_MODE)


class _Run(_Derived):
    """A call in eager mode. Tensors: x, the parameters, the initial and the restart states."""

    @staticmethod
    def forward(
        ctx: Any,
        net: str,
        flags: int,
        parameter_count: int,
        initial_count: int,
        lengths: list[Tensor],
        resets: list[Tensor],
        seed: list[Tensor],
        x: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        out = _run_forward(net, flags, parameter_count, initial_count, lengths, resets, seed, x, tensors)
        _keep(ctx, (net, flags, parameter_count, initial_count), lengths, resets, seed, x, tensors, out[-1])
        return out


class _QuickRun(_Derived):
    """The same for a call that has been made without the dispatcher. results: y, the final states and the reserve; others: lengths, resets, seed."""

    @staticmethod
    def forward(
        ctx: Any, net: str, call: tuple[Any, ...], results: tuple[Tensor, ...], others: tuple[Tensor, ...], x: Tensor, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.net, ctx.call = net, call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, *tensors, *others, results[-1])
        return results[:-1]


class _PackedRun(_Derived):
    """The same for a packed sequence, in one function with padding and packing. The leading arguments are as many as those of _Run."""

    @staticmethod
    def forward(
        ctx: Any,
        packing: Packing,
        net: str,
        flags: int,
        parameter_count: int,
        initial_count: int,
        seed: list[Tensor],
        _: None,
        rows: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        x, lengths = packing.pad_rows(rows), [packing.lengths]
        resets: list[Tensor] = []
        arguments = net, flags, parameter_count, initial_count, lengths, resets, seed, x, tensors
        y, *others = _run_forward_quickly(*arguments) or _run_forward(*arguments)
        ctx.packing = packing
        _keep(ctx, (net, flags, parameter_count, initial_count), lengths, [], seed, x, tensors, others[-1])
        return packing.pack_rows(y), *others

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        dy = None if grads[0] is None else ctx.packing.pad_rows(grads[0])
        found = list(_derive_call(ctx, dy, *grads[1:]))
        if found[INPUT_PLACE] is not None:
            found[INPUT_PLACE] = ctx.packing.pack_rows(found[INPUT_PLACE])
        return tuple(found)


class _TransformedRun(_Derived):
    """The same for transforms of torch.func, which need a separate setup_context."""

    @staticmethod
    def forward(
        net: str,
        flags: int,
        parameter_count: int,
        initial_count: int,
        lengths: list[Tensor],
        resets: list[Tensor],
        seed: list[Tensor],
        x: Tensor,
        *tensors: Tensor,
    ) -> tuple[Tensor, ...]:
        after = parameter_count + initial_count
        return tuple(
            _forward(
                net, x, tensors[:parameter_count], tensors[parameter_count:after], tensors[after:], lengths, resets, seed, flags, 0
            )
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        net, flags, parameter_count, initial_count, lengths, resets, seed, x, *tensors = inputs
        _keep(ctx, (net, flags, parameter_count, initial_count), lengths, resets, seed, x, tensors, output[-1])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise RuntimeError(NO_VMAP)


def _keep(
    ctx: Any,
    call: tuple[str, int, int, int],
    lengths: list[Tensor],
    resets: list[Tensor],
    seed: list[Tensor],
    x: Tensor,
    tensors: Sequence[Tensor],
    reserve: Tensor,
) -> None:
    """Keeps what the backward call reads."""
    ctx.net = call[0]
    ctx.call = shapes(call[0]).pointer, *call[1:], len(tensors), len(lengths), len(resets), INPUT_PLACE
    ctx.mark_non_differentiable(reserve)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, *tensors, *lengths, *resets, *seed, reserve)


def needs_grad(x: Tensor, *lists: Sequence[Tensor]) -> bool:
    if not _is_grad_enabled():
        return False
    if x.requires_grad:
        return True
    for tensors in lists:
        for t in tensors:
            if t.requires_grad:
                return True
    return False


def _train(
    net: str,
    x: Tensor,
    parameters: list[Tensor],
    initial: list[Tensor],
    restart: list[Tensor],
    lengths: list[Tensor],
    resets: list[Tensor],
    seed: list[Tensor],
    flags: int,
) -> tuple[Tensor, ...]:
    """A call with derivatives: y and the final states."""
    arguments = net, flags, len(parameters), len(initial), lengths, resets, seed, x
    tensors = (*parameters, *initial, *restart)
    found = _run_forward_quickly(*arguments, tensors)
    if found is None:
        function = _TransformedRun if _transforms_active() else _Run
        out: tuple[Tensor, ...] = function.apply(*arguments, *tensors)
        return out[:-1]
    call = shapes(net).pointer, flags, len(parameters), len(initial), len(tensors), len(lengths), len(resets), QUICK_PLACE
    derived: tuple[Tensor, ...] = apply_quick_run(net, call, found, (*lengths, *resets, *seed), x, *tensors)
    return derived


def _run_network(
    net: str,
    x: Tensor,
    parameters: list[Tensor],
    initial: list[Tensor],
    restart: list[Tensor],
    lengths: list[Tensor],
    resets: list[Tensor],
    seed: list[Tensor],
    flags: int,
    frozen: int,
) -> list[Tensor]:
    """The operator `network` where derivatives may be wanted. Also without TRAINING, as in a trace: then the reserve is not among the outputs."""
    if not needs_grad(x, parameters, initial, restart):
        with _below_autograd():
            found: list[Tensor] = _forward(net, x, parameters, initial, restart, lengths, resets, seed, flags, frozen)
        return found
    function = _TransformedRun if _transforms_active() else _Run
    out = function.apply(net, flags | TRAINING, len(parameters), len(initial), lengths, resets, seed, x, *parameters, *initial, *restart)
    return list(out if flags & TRAINING else out[:-1])


def refuse_derivative(ctx: Any, *grads: Any) -> Any:
    raise RuntimeError(DOUBLE_BACKWARD)


def refuse_vmap(info: Any, in_dims: Any, *args: Any) -> Any:
    raise RuntimeError(NO_VMAP)


def register() -> None:
    """Registers the operators. Once."""
    if bindings().rcvb_torch_register():
        raise ImportError(message())
    for name in ("network", "forward"):
        torch.library.register_fake(f"recurve::{name}")(_forward_shapes)
    torch.library.register_fake("recurve::backward")(_backward_shapes)
    _derivatives.impl("network", _run_network, "Autograd")
    for name in ("network", "forward", "backward"):
        torch.library.register_vmap(f"recurve::{name}", refuse_vmap)


def _find_quick() -> Any:
    """The functions of bindings/torch/quick.h; None for each where they cannot be had."""
    capsule = getattr(Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None, None, None
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.argtypes, address.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    holding = ctypes.PyDLL(loader.path(loader.BINDINGS))  # calls with the interpreter's lock held
    functions = ctypes.py_object()
    holding.rcvb_torch_quick.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.py_object)]
    failed = holding.rcvb_torch_quick(address(capsule, b"dlpack_exchange_api"), ctypes.byref(functions))
    return (None, None, None) if failed else functions.value


_derivatives = torch.library.Library("recurve", "FRAGMENT")
register()
infer_quickly, _forward_quickly, _backward_quickly = _find_quick()
_network = torch.ops.recurve.network.default
_forward = torch.ops.recurve.forward.default
_backward = torch.ops.recurve.backward.default
_below_autograd = torch._C._AutoDispatchBelowAutograd
apply_quick_run = super(torch.autograd.Function, _QuickRun).apply  # none of its arguments is a wrapper that a transform has left


def run(
    net: str,
    x: Tensor,
    parameters: list[Tensor],
    initial: list[Tensor],
    restart: list[Tensor],
    lengths: list[Tensor],
    resets: list[Tensor],
    seed: list[Tensor],
    flags: int,
    frozen: int = 0,
) -> list[Tensor]:
    """Runs a network: y and the final states."""
    grad = needs_grad(x, parameters, initial, restart)
    grad = grad or forward_ad._current_level >= 0  # the function refuses tangents, which the operator would drop
    is_compiling = torch.compiler.is_compiling()
    if not is_compiling and torch._C._is_tracing():  # one graph for calls with gradients and without
        traced: list[Tensor] = _network(net, x, parameters, initial, restart, lengths, resets, seed, flags, 0)
        return traced[: 1 + len(shapes(net).states)]
    if grad:
        flags |= TRAINING
        frozen = 0
    if is_compiling:
        out: list[Tensor] = _network(net, x, parameters, initial, restart, lengths, resets, seed, flags, frozen)
    elif grad:
        return list(_train(net, x, parameters, initial, restart, lengths, resets, seed, flags))
    else:
        with _below_autograd():
            out = _forward(net, x, parameters, initial, restart, lengths, resets, seed, flags, frozen)
    return out[:-1] if flags & TRAINING else out


def run_packed(
    net: str, packing: Packing, rows: Tensor, parameters: list[Tensor], initial: list[Tensor], seed: list[Tensor], flags: int, frozen: int = 0
) -> list[Tensor]:
    """Runs a network on a packed sequence: the rows of y and the final states."""
    plain = not (torch.compiler.is_compiling() or torch._C._is_tracing() or torch._C._are_functorch_transforms_active())
    if plain and rows.device.type == "cpu" and shapes(net).may_be_cut:
        parts = packing.cut(sum(p.numel() for p in parameters))
        if len(parts) > 1:
            return _run_parts(net, parts, rows, parameters, initial, seed, flags, frozen)
    return _run_packed(net, packing, rows, parameters, initial, seed, flags, frozen, plain)


def _run_parts(
    net: str, parts: list[Tensor], rows: Tensor, parameters: list[Tensor], states: list[Tensor], seed: list[Tensor], flags: int, frozen: int
) -> list[Tensor]:
    """A packed sequence in calls of fewer and fewer sequences: these are the first ones, and begin with the states of the call before."""
    outputs: list[Tensor] = []
    final: list[list[Tensor]] = []
    for sizes in parts:
        batch, count = int(sizes[0]), int(sizes.sum())
        if final:
            states, final[-1] = [s[:, :batch] for s in final[-1]], [s[:, batch:] for s in final[-1]]
        now, rows = rows[:count], rows[count:]
        if count == batch * len(sizes):
            y, *after = run(net, now.reshape(len(sizes), batch, -1), parameters, states, [], [], [], seed, flags & ~BATCH_FIRST, frozen)
            y = y.view(count, -1)
        else:
            packing = Packing(sizes, rows.device)
            y, *after = _run_packed(net, packing, now, parameters, states, seed, flags, frozen, True)
        outputs.append(y)
        final.append(after)
        seed = [s + 1 for s in seed]
    return [torch.cat(outputs), *(torch.cat(ended, 1) for ended in zip(*reversed(final)))]


def _run_packed(
    net: str,
    packing: Packing,
    rows: Tensor,
    parameters: list[Tensor],
    initial: list[Tensor],
    seed: list[Tensor],
    flags: int,
    frozen: int,
    plain: bool,
) -> list[Tensor]:
    grad = torch.is_grad_enabled() and any(t.requires_grad for t in (rows, *parameters, *initial))
    if grad and plain:
        flags |= TRAINING
        return list(_PackedRun.apply(packing, net, flags, len(parameters), len(initial), seed, None, rows, *parameters, *initial))[:-1]
    y, *final = run(net, packing.pad(rows), parameters, initial, [], [packing.lengths], [], seed, flags, frozen)
    return [packing.pack(y), *final]


def array_type(dtype: torch.dtype) -> int:
    """rcv_array_type."""
    return 1 + {torch.float32: FLOAT32, torch.float64: FLOAT64, torch.float16: FLOAT16, torch.bfloat16: BFLOAT16}[dtype]


def effort() -> int:
    """The planner's effort as flags: the best plan is looked for beside the caller, or, for the same results in every process, estimated."""
    return (ESTIMATED if torch.are_deterministic_algorithms_enabled() else IN_BACKGROUND) << EFFORT_SHIFT


def products(dtype: torch.dtype, is_cuda: bool) -> int:
    """The type in which products of tensors of this dtype are computed."""
    if dtype == torch.float32:
        return TFLOAT32 if is_cuda and torch.backends.cudnn.allow_tf32 else FLOAT32
    if dtype == torch.bfloat16:
        return BFLOAT16
    if dtype == torch.float16:
        return FLOAT16 if is_cuda else FLOAT32
    return FLOAT64
