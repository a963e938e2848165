"""Muon (Jordan et al. 2024): the matrices of layers learn at one rate in all directions.

The gradient of a matrix is dominated by few directions. Muon goes to the nearest orthogonal matrix
instead, in which all directions have the same length, also those in which the gradient is weak.
Tables, norms and biases learn by Adam.
"""

from collections import defaultdict

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer_lib.training.adam import adam

# Of x ↦ a·x + b·x³ + c·x⁵, which moves all singular values towards 1; the numbers are Jordan's.
POLYNOMIAL = (3.4445, -4.7750, 2.0315)
MOMENTUM = 0.95


def orthogonalized(
    matrices: Float[Tensor, "number rows columns"], dtype: torch.dtype, steps: int = 5
) -> Float[Tensor, "number rows columns"]:
    """About the nearest matrices whose singular values are all 1, by Newton and Schulz's iteration.

    The values come out between 0.7 and 1.2, which is near enough. A matrix of zeros stays one.

    Args:
        matrices: with no more rows than columns.
        dtype: of the products; bfloat16 is enough.
    """
    a, b, c = POLYNOMIAL
    x = matrices.to(dtype)
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Muon for the matrices of ``model``'s layers, Adam for all else.

    A step changes a matrix by rate · √max(1, rows / columns) · the orthogonalized mean of its
    gradients. W^Q, W^K and W^V lie in one matrix, and are three.

    Args:
        rate_ratio: the rate of Muon, as a multiple of Adam's (``param_groups[0]["lr"]``).
        betas, eps: Adam's.
        dtype: of the products of Muon.
        weight_decay: of the tables, as :func:`adam` has it.
    """

    found_inf: Tensor | None = None  # as Adam has it: if it is 1, a step changes nothing

    def __init__(
        self,
        model: nn.Module,
        rate_ratio: float,
        betas: tuple[float, float],
        eps: float,
        dtype: torch.dtype = torch.float32,
        weight_decay: float = 0.0,
    ):
        named = dict(model.named_parameters())
        matrices = {n: p for n, p in named.items() if p.dim() == 2 and ".layers." in n}
        others = [p for n, p in named.items() if n not in matrices]
        super().__init__([{"params": others}, {"params": list(matrices.values())}], {"lr": 0.0})
        self.rate_ratio = rate_ratio
        self.dtype = dtype
        self._adam = adam(others, betas, eps, weight_decay)
        self._adam.state = self.state
        # Matrices of one shape are orthogonalized together: few large products.
        self._alike: dict[tuple[int, ...], list[tuple[nn.Parameter, slice]]] = defaultdict(list)
        for name, matrix in matrices.items():
            rows = len(matrix) // 3 if name.endswith("qkv_proj.weight") else len(matrix)
            for start in range(0, len(matrix), rows):
                shape = tuple(sorted((rows, matrix.size(1))))
                self._alike[shape].append((matrix, slice(start, start + rows)))

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change all parameters that have a gradient, unless ``found_inf`` is 1."""
        rate = self.param_groups[0]["lr"]
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.found_inf = self.found_inf  # type: ignore[attr-defined]
        self._adam.step()
        matrices = [m for m in self.param_groups[1]["params"] if m.grad is not None]
        directions = {matrix: self._direction(matrix) for matrix in matrices}
        for alike in self._alike.values():
            parts = [(m[rows], directions[m][rows]) for m, rows in alike if m in directions]
            if parts:
                self._move(parts, rate * self.rate_ratio)

    def _direction(self, matrix: nn.Parameter) -> Tensor:
        """The running mean of its gradients, with the latest one counted once more (Nesterov)."""
        state = self.state[matrix]
        if not state:
            state["mean"] = torch.zeros_like(matrix)
        mean, gradient = state["mean"], matrix.grad
        assert gradient is not None
        if self.found_inf is not None:  # to ask the device whether, one would wait for it
            gradient = torch.where(self.found_inf == 0, gradient, mean)
        mean.lerp_(gradient, 1 - MOMENTUM)
        return gradient.lerp(mean, MOMENTUM)

    def _move(self, parts: list[tuple[Tensor, Tensor]], rate: float) -> None:
        """Change matrices of one shape, each given with its direction."""
        updates = orthogonalized(
            torch.stack([_wide(direction) for _, direction in parts]), self.dtype
        )
        if self.found_inf is not None:
            updates = torch.where(self.found_inf == 0, updates, 0.0)
        for (matrix, _), update in zip(parts, updates, strict=True):
            rows, columns = matrix.shape
            scale = max(1.0, rows / columns) ** 0.5
            matrix.sub_(update if rows <= columns else update.mT, alpha=rate * scale)


def _wide(matrix: Tensor) -> Tensor:
    return matrix if matrix.size(0) <= matrix.size(1) else matrix.mT
