"""torch.compile, layer by layer: one graph for all encoder layers and one for all decoder layers.

To compile a whole model takes several times as long and makes it no faster; layers of one kind
share their code. Sentences come in many lengths, which must not be compiled one by one.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from transformer_lib.errors import UserError
from transformer_lib.model.decoder import DecoderLayer
from transformer_lib.model.encoder import EncoderLayer

OPTIONS = {
    # A fusion that makes code for many tokens and again for few, when they first occur. And where a
    # buffer has two names, it gives wrong gradients without an error (pytorch/pytorch#193061).
    "triton.mix_order_reduction": False,
    # The compiler's assertions about its own code: a tenth of what a step costs the processor.
    "size_asserts": False,
    "alignment_asserts": False,
}


@cache
def has_fast_compiler(device: torch.device) -> bool:
    """Whether small functions compile within seconds there: on a GPU with Triton.

    It is tried out, because Triton also needs a C compiler and Python's headers.
    """
    from torch.utils._triton import has_triton

    return device.type == "cuda" and has_triton() and _compiles(device)


def _compiles(device: torch.device) -> bool:
    try:
        torch.compile(_doubled)(torch.ones(8, device=device))
    except RuntimeError as error:
        tqdm.write(f"torch.compile does not work here, so training is slower: {_last_line(error)}")
        return False
    return True


def _last_line(error: Exception) -> str:
    inner = getattr(error, "inner_exception", error)  # without advice on how to debug PyTorch
    return (str(inner).strip().splitlines() or [type(inner).__name__])[-1]


def _doubled(x: Tensor) -> Tensor:
    return x + x


def forget_compiled() -> None:
    """Compile whatever is called next as if nothing had been compiled before."""
    import torch._dynamo

    torch._dynamo.reset()


@contextmanager
def compiled_layers(model: nn.Module) -> Iterator[None]:
    """Within this context, the model's encoder and decoder layers are compiled when called first.

    Raises:
        UserError: as in :func:`compiling`.
    """
    layers = [m for m in model.modules() if isinstance(m, EncoderLayer | DecoderLayer)]
    for layer in layers:
        layer.compile(dynamic=True, options=OPTIONS)
    try:
        with compiling():
            yield
    finally:
        for layer in layers:
            layer._compiled_call_impl = None


@contextmanager
def compiling() -> Iterator[None]:
    """Within this context, lengths that happen to be equal are no reason to compile anew.

    And code that has been compiled too often is an error: PyTorch would go on without compiling it,
    with a warning, at half the speed.

    Raises:
        UserError: that happened, or there is nothing to compile with.
    """
    import torch._dynamo
    import torch.fx.experimental._config as shapes

    try:
        with (
            # A layer's eps and dropout are constants, and no tensors made at each call.
            torch._dynamo.config.patch(fail_on_recompile_limit_hit=True, specialize_float=True),
            shapes.patch(use_duck_shape=False),  # type: ignore[attr-defined]
        ):
            yield
    except torch._dynamo.exc.FailOnRecompileLimitHit as error:
        raise UserError(
            "the model was compiled anew too often; train it with training.compile=false "
            f"({str(error).strip().splitlines()[0]})"
        ) from error
    except torch._dynamo.exc.BackendCompilerFailed as error:
        raise UserError(
            "torch.compile does not work here; train with training.compile=false "
            f"({_last_line(error)})"
        ) from error
