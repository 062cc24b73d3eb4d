"""The input-conditioned slot decoder: K learnable slots, seeded with a summary of the memory, then decoded from it."""

from torch import Tensor, nn

from ballcast.model.attention import DecoderLayer


class SlotDecoder(nn.Module):
    """Memory H (B, T, d) → slots z (B, K, d).

    `slots` is the table of e_k (K, d); `context` is W_ctx, or None for static queries q_k = e_k.
    """

    def __init__(
        self, *, slots: nn.Embedding, context: nn.Linear | None, layers: list[DecoderLayer], norm: nn.LayerNorm
    ) -> None:
        super().__init__()
        self.slots = slots
        self.context = context
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, memory: Tensor, counts: Tensor | None = None) -> Tensor:
        """`counts` (B, T) bool: the steps of H that count, at least one a sample; None: all."""
        return self.every_layer(memory, counts)[-1]

    def every_layer(self, memory: Tensor, counts: Tensor | None = None) -> list[Tensor]:
        """The slots as each layer leaves them, L × (B, K, d); without layers the queries."""
        z = self.queries(memory, counts)
        mask = None if counts is None else counts[:, None, None, :]
        states = []
        for layer in self.layers:
            z = layer(z, memory, memory_mask=mask)
            states.append(self.norm(z))
        return states or [self.norm(z)]

    def queries(self, memory: Tensor, counts: Tensor | None = None) -> Tensor:
        """(B, K, d): equation 1, q_k = e_k + W_ctx · mean of the h_t that count."""
        slots = self.slots.weight.expand(memory.shape[0], -1, -1)
        if self.context is None:
            return slots
        if counts is None:
            mean = memory.mean(dim=1)
        else:
            share = counts / counts.sum(dim=1, keepdim=True)  # (B, T), sums to 1
            mean = (memory * share.unsqueeze(-1)).sum(dim=1)
        return slots + self.context(mean).unsqueeze(1)
