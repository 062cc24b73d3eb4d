"""Attention and the Transformer layers made of it, shared by both models.

Pre-LN: x + f(LN(x)) in every branch; the output of the last layer is not normalised, so each stack of layers ends with
its own LayerNorm. Post-LN, as in the first Transformer: LN(x + f(x)).
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

Norm = Literal["pre", "post"]
Activation = Literal["gelu", "relu"]


class DropPath(nn.Module):
    """Stochastic depth: in training a sample's whole branch is dropped with probability `drop_prob`.

    Input and output (B, N, d); what stays is scaled by 1 / (1 - drop_prob). Ours and not timm's, whose import takes as
    long as torch's: commands that read features need no timm.
    """

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.drop_prob == 0:
            return x
        keep = 1 - self.drop_prob
        kept = torch.rand(x.shape[0], 1, 1, device=x.device) < keep
        return x * (kept / keep).to(x.dtype)


class SelfAttention(nn.Module):
    """Multi-head self-attention; `dropout` acts on the attention weights."""

    def __init__(self, *, dim: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.qkv = nn.Linear(dim, 3 * dim)  # one product for queries, keys and values
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (B, N, d) → (B, N, d); `mask` (N, N) bool: True where row i may attend to column j; None: everywhere."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return self.out(_attend(q, k, v, mask, self.dropout if self.training else 0.0))


class CrossAttention(nn.Module):
    """Multi-head attention of queries to a memory; `dropout` acts on the attention weights."""

    def __init__(self, *, dim: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.query = nn.Linear(dim, dim)
        self.memory = nn.Linear(dim, 2 * dim)  # keys and values
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """Queries x (B, K, d), memory (B, T, d) → (B, K, d); `mask` (B, 1, 1, T) bool: the steps to read; None: all."""
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
    nonlinearity = nn.GELU() if activation == "gelu" else nn.ReLU()
    return nn.Sequential(nn.Linear(dim, hidden), nonlinearity, nn.Dropout(dropout), nn.Linear(hidden, dim))


def add_branch(x: Tensor, branch: Callable[[Tensor], Tensor], norm: nn.LayerNorm, order: Norm) -> Tensor:
    """x + branch(norm(x)) for pre-LN, norm(x + branch(x)) for post-LN."""
    return x + branch(norm(x)) if order == "pre" else norm(x + branch(x))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward; each branch passes dropout and DropPath (stochastic depth) before the sum."""

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
        """x (B, N, d) → (B, N, d); `mask` as in `SelfAttention`, `positions` (N, d) are added to its input."""

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
        """One decoder layer.

        Args:
            x: queries (B, K, d).
            memory: (B, T, d).
            mask: (K, K) bool, among the queries; None: everywhere.
            memory_mask: (B, 1, 1, T) bool, the steps of the memory to read; None: all.
            positions: (K, d), added to the queries in both attentions.

        Returns:
            (B, K, d).
        """

        def placed(x: Tensor) -> Tensor:
            return x if positions is None else x + positions

        def attend_self(x: Tensor) -> Tensor:
            return self.drop(self.self_attention(placed(x), mask))

        def attend_memory(x: Tensor) -> Tensor:
            return self.drop(self.cross_attention(placed(x), memory, memory_mask))

        x = add_branch(x, attend_self, self.self_norm, self.norm)
        x = add_branch(x, attend_memory, self.cross_norm, self.norm)
        return add_branch(x, lambda x: self.drop(self.ffn(x)), self.ffn_norm, self.norm)


def embedding(rows: int, dim: int, *, std: float) -> nn.Embedding:
    """A learnable table (rows, dim), initialised from a normal distribution.

    An `nn.Embedding` and not a bare parameter, so that the optimiser excludes it from weight decay.
    """
    table = nn.Embedding(rows, dim)
    nn.init.normal_(table.weight, std=std)
    return table


def band(length: int, reach: int) -> Tensor | None:
    """(length, length) bool: True where two positions are at most `reach` apart; None if that is everywhere."""
    if reach >= length - 1:
        return None
    position = torch.arange(length)
    return (position[:, None] - position[None, :]).abs() <= reach
