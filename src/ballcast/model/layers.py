"""Attention and the Transformer layers made of it, shared by both models.

Pre-LN: every branch reads a normalised copy of the stream and adds to it, x + f(LN(x)); what leaves the last layer is
not normalised yet, so each stack of layers ends with a LayerNorm of its own. Post-LN, as in the first Transformer: the
sum is normalised, LN(x + f(x)).
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Norm = Literal["pre", "post"]
Activation = Literal["gelu", "relu"]


class DropPath(nn.Module):
    """Stochastic depth: in training a sample's whole branch is left out with chance `rate`; in eval nothing happens.

    Input and output (B, N, d); what stays is scaled by 1 / (1 - rate), so that the expectation is the same.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        keep = 1 - self.rate
        kept = torch.rand(x.shape[0], 1, 1, device=x.device) < keep
        return x * (kept / keep).to(x.dtype)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself. (B, N, d) → (B, N, d); `dropout` acts on the attention weights."""

    def __init__(self, *, dim: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(dim, 3 * dim)  # one product for queries, keys and values
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` (N, N) bool: True where a row may look at a column; None: everywhere."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return self.out(_attend(q, k, v, mask, self.dropout if self.training else 0.0))


class CrossAttention(nn.Module):
    """Multi-head attention of queries (B, K, d) to a memory (B, T, d) → (B, K, d)."""

    def __init__(self, *, dim: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(dim, dim)
        self.memory = nn.Linear(dim, 2 * dim)  # keys and values
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` (B, 1, 1, T) bool: True where the memory may be looked at; None: everywhere."""
        q = self.query(x).unflatten(-1, (self.heads, -1))
        k, v = self.memory(memory).unflatten(-1, (2, self.heads, -1)).unbind(-3)
        return self.out(_attend(q, k, v, mask, self.dropout if self.training else 0.0))


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Scaled dot-product attention of (B, length, heads, d / heads) tensors → (B, length of q, d)."""
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)  # (B, heads, length, d / heads)
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    return out.transpose(1, 2).flatten(-2)


def feed_forward(*, dim: int, hidden: int, dropout: float = 0.0, activation: Activation = "gelu") -> nn.Sequential:
    """The two-layer perceptron of a Transformer layer."""
    between = nn.GELU() if activation == "gelu" else nn.ReLU()
    return nn.Sequential(nn.Linear(dim, hidden), between, nn.Dropout(dropout), nn.Linear(hidden, dim))


def add_branch(x: Tensor, branch: Callable[[Tensor], Tensor], norm: nn.LayerNorm, order: Norm) -> Tensor:
    """x + branch(norm(x)) for pre-LN, norm(x + branch(x)) for post-LN."""
    return x + branch(norm(x)) if order == "pre" else norm(x + branch(x))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward; each branch passes `dropout` and DropPath before it is added."""

    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        ffn: int,
        dropout: float = 0.0,
        drop_path: float = 0.0,
        norm: Norm = "pre",
        activation: Activation = "gelu",
    ) -> None:
        super().__init__()
        self.norm = norm
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim=dim, heads=heads, dropout=dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = feed_forward(dim=dim, hidden=ffn, dropout=dropout, activation=activation)
        self.drop = nn.Sequential(nn.Dropout(dropout), DropPath(drop_path))

    def forward(self, x: Tensor, mask: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """(B, N, d) → (B, N, d); `mask` (N, N) bool as in `SelfAttention`; `positions` (N, d) join what attends."""

        def attend(x: Tensor) -> Tensor:
            return self.drop(self.attention(x if positions is None else x + positions, mask))

        x = add_branch(x, attend, self.attention_norm, self.norm)
        return add_branch(x, lambda x: self.drop(self.ffn(x)), self.ffn_norm, self.norm)


class DecoderLayer(nn.Module):
    """Self-attention among the queries, cross-attention to the memory, feed-forward."""

    def __init__(
        self, *, dim: int, heads: int, ffn: int, dropout: float, norm: Norm = "pre", activation: Activation = "gelu"
    ) -> None:
        super().__init__()
        self.norm = norm
        self.self_norm = nn.LayerNorm(dim)
        self.self_attention = SelfAttention(dim=dim, heads=heads, dropout=dropout)
        self.cross_norm = nn.LayerNorm(dim)
        self.cross_attention = CrossAttention(dim=dim, heads=heads, dropout=dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = feed_forward(dim=dim, hidden=ffn, dropout=dropout, activation=activation)
        self.drop = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """(B, K, d), (B, T, d) → (B, K, d); `mask` (K, K) among the queries, `memory_mask` (B, 1, 1, T), both bool.

        `positions` (K, d) join the queries wherever they attend.
        """

        def placed(x: Tensor) -> Tensor:
            return x if positions is None else x + positions

        def attend(x: Tensor) -> Tensor:
            return self.drop(self.self_attention(placed(x), mask))

        def look(x: Tensor) -> Tensor:
            return self.drop(self.cross_attention(placed(x), memory, memory_mask))

        x = add_branch(x, attend, self.self_norm, self.norm)
        x = add_branch(x, look, self.cross_norm, self.norm)
        return add_branch(x, lambda x: self.drop(self.ffn(x)), self.ffn_norm, self.norm)


def embedding(rows: int, dim: int, *, std: float) -> nn.Embedding:
    """A learnable table (rows, dim), normal at the start.

    An `nn.Embedding` and not a bare parameter so that the optimiser can tell it from a weight and spare it the decay.
    """
    table = nn.Embedding(rows, dim)
    nn.init.normal_(table.weight, std=std)
    return table


def band(length: int, reach: int) -> Tensor | None:
    """(length, length) bool: True where two places are at most `reach` apart; None when that is everywhere."""
    if reach >= length - 1:
        return None
    places = torch.arange(length)
    return (places[:, None] - places[None, :]).abs() <= reach
