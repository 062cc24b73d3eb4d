"""Fine-tune the last part of a backbone: windows of pixels to features, with gradients for the stages that learn.

The 41 distinct stacks of a window each go through the network once, as in `batch_encoder`. The early stages keep no
activations; batch norms keep the statistics they were trained with, since a batch of a few windows has no better.
"""

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ballcast.core.errors import InputError
from ballcast.features.backbone import Backbone, pad_frames
from ballcast.features.stack_index import batch_stacks, snippet_count, snippet_stacks, stack_count, stack_frames


class FinetuneEncoder:
    """Callable: windows of pixels (M, 125, H, W) uint8 → features (M, N, D) float32.

    Args:
        backbone: the network, whose last part is set to learn and the rest not to; it is kept in eval mode.
        stages: how many stages of its 2D network learn, counted from the end; all that follows them does.
        at_once: windows through the network at a time.
        recompute: keep no activations of the learning part, but compute them again for the gradients.
        half: bf16 where that is safe.
    """

    def __init__(
        self, backbone: Backbone, *, stages: int, at_once: int = 8, recompute: bool = False, half: bool = False
    ) -> None:
        self.backbone, self.at_once, self.recompute, self.half = backbone, at_once, recompute, half
        encoder = cast(Any, backbone.encoder)
        if not all(hasattr(encoder, name) for name in ("conv_stem", "bn1", "blocks")):
            raise InputError(
                f"{backbone.config.encoder}: has no stages like EfficientNet's, so no stage of it can be fine-tuned"
            )
        if stages > len(encoder.blocks):
            raise InputError(f"finetune.stages={stages}: the 2D network has {len(encoder.blocks)} stages")
        kept = len(encoder.blocks) - stages
        self._early = [encoder.conv_stem, encoder.bn1, *encoder.blocks[:kept]]
        self._late = [*encoder.blocks[kept:], backbone.project2d]
        backbone.requires_grad_(False)
        for module in (*self._late, backbone.blocks, backbone.project3d, backbone.pool):
            module.requires_grad_(True)
        c = backbone.config
        count = snippet_count(c)  # N
        self._stacks = snippet_stacks(c, count, torch.arange)  # (N, J), into a window's stacks
        self._frames = stack_frames(c, stack_count(c, count), torch.arange)  # (S, stack), into a window's frames

    def __call__(self, pixels: Tensor) -> Tensor:
        return torch.cat(list(self._parts(pixels)))

    def _parts(self, pixels: Tensor) -> Iterator[Tensor]:
        with torch.autocast(pixels.device.type, torch.bfloat16, enabled=self.half):
            for some in pixels.split(self.at_once):
                maps = self.early(some)
                if self.recompute and torch.is_grad_enabled():
                    yield checkpoint(self.late, maps, len(some), use_reentrant=False)
                else:
                    yield self.late(maps, len(some))

    @torch.no_grad()
    def early(self, pixels: Tensor) -> Tensor:
        """Windows (M, 125, H, W) uint8 → maps of their distinct stacks before the stages that learn, (M·S, c, h, w)."""
        self.backbone.eval()  # the norms keep their statistics, also if the model is in train mode
        pictures = pad_frames(pixels, self.backbone.config.padding)[:, self._frames.to(pixels.device)]
        x = pictures.flatten(0, 1).to(torch.float32, memory_format=torch.channels_last) / 255  # (M·S, stack, H, W)
        for module in self._early:
            x = module(x)
        return x

    def late(self, maps: Tensor, windows: int) -> Tensor:
        """Those maps of so many windows → features (windows, N, D) float32."""
        for module in self._late:
            maps = module(maps)
        stacks = len(self._frames)
        index = batch_stacks(self._stacks, batch=windows, stacks=stacks, arange=torch.arange)  # (M, N, J)
        features = self.backbone.mix(maps, index.flatten(0, 1).to(maps.device))
        return features.unflatten(0, (windows, -1))


def learning(module: nn.Module) -> list[str]:
    """Names of the weights that learn."""
    return [name for name, parameter in module.named_parameters() if parameter.requires_grad]
