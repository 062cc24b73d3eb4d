"""Attention and the pre-LN layers made of it, shared by both models.

Pre-LN: every branch reads a normalised copy of the stream and adds to it, x + f(LN(x)); what leaves the last layer is
not normalised yet, so each stack of layers ends with a LayerNorm of its own.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


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


def feed_forward(*, dim: int, hidden: int, dropout: float = 0.0) -> nn.Sequential:
    """The two-layer perceptron of a Transformer layer, with GELU."""
    return nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, dim))


class EncoderLayer(nn.Module):
    """Pre-LN self-attention and feed-forward; each branch passes `dropout` and DropPath before it is added."""

    def __init__(self, *, dim: int, heads: int, ffn: int, dropout: float = 0.0, drop_path: float = 0.0) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim=dim, heads=heads, dropout=dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = feed_forward(dim=dim, hidden=ffn, dropout=dropout)
        self.drop = nn.Sequential(nn.Dropout(dropout), DropPath(drop_path))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, N, d) → (B, N, d); `mask` (N, N) bool as in `SelfAttention`."""
        x = x + self.drop(self.attention(self.attention_norm(x), mask))
        return x + self.drop(self.ffn(self.ffn_norm(x)))


class DecoderLayer(nn.Module):
    """Pre-LN self-attention among the queries, cross-attention to the memory, feed-forward."""

    def __init__(self, *, dim: int, heads: int, ffn: int, dropout: float) -> None:
        super().__init__()
        self.self_norm = nn.LayerNorm(dim)
        self.self_attention = SelfAttention(dim=dim, heads=heads, dropout=dropout)
        self.cross_norm = nn.LayerNorm(dim)
        self.cross_attention = CrossAttention(dim=dim, heads=heads, dropout=dropout)
        self.ffn_norm = nn.LayerNorm(dim)
        self.ffn = feed_forward(dim=dim, hidden=ffn, dropout=dropout)
        self.drop = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, memory: Tensor, mask: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        """(B, K, d), (B, T, d) → (B, K, d); `mask` (K, K) among the queries, `memory_mask` (B, 1, 1, T), both bool."""
        x = x + self.drop(self.self_attention(self.self_norm(x), mask))
        x = x + self.drop(self.cross_attention(self.cross_norm(x), memory, memory_mask))
        return x + self.drop(self.ffn(self.ffn_norm(x)))


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
