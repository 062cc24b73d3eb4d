"""The four parts of an export: torch modules and their ONNX graphs."""

import copy
import warnings
from io import BytesIO

import torch
from timm.layers import Conv2dSame
from torch import Tensor, nn

from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.errors import InputError, MissingExtra
from ballcast.features.backbone import Backbone
from ballcast.features.stack_index import snippet_count
from ballcast.inference.export_config import INPUTS, OUTPUTS
from ballcast.model.anticipator import Anticipator

OPSET = 17  # of ONNX: the first with layer norms
STRIDE = 32  # of the networks: sides that are multiples of it stay even in every layer
TRACED = (64, 96)  # H, W of the frames that are traced; a graph takes any multiple of the padding


class StacksPart(nn.Module):
    """Encode stacks of frames (B, stack, H, W) uint8, or I420 (B, 1, 3H/2, W), padded → maps (B, C, h, w).

    With a temporal shift, B is a multiple of the N stacks of a window.
    """

    inputs = INPUTS["stacks"]
    outputs = OUTPUTS["stacks"]

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = _with_fixed_padding(backbone)
        if backbone.config.blocks:
            self.backbone.blocks = nn.ModuleList()  # these weights are in the next part
            self.backbone.project3d = nn.Sequential()

    def forward(self, pictures: Tensor) -> Tensor:
        return self.backbone.encode(self.backbone.scaled(pictures))


class SnippetsPart(nn.Module):
    """Mix the maps of a snippet's J stacks (B, J, C, h, w) → features (B, D)."""

    inputs = INPUTS["clips"]
    outputs = OUTPUTS["clips"]

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(backbone)
        self.backbone.encoder = nn.Identity()
        self.backbone.project2d = nn.Sequential()

    def forward(self, maps: Tensor) -> Tensor:
        return self.backbone.mix(maps.flatten(0, 1))


class WindowPart(nn.Module):
    """Encode a window: features (B, N, D) → tokens (B, N, d)."""

    inputs = INPUTS["window"]
    outputs = OUTPUTS["window"]

    def __init__(self, model: Anticipator) -> None:
        super().__init__()
        self.network = model.network

    def forward(self, features: Tensor) -> Tensor:
        return self.network.encode_window(features)


class SlotsPart(nn.Module):
    """Anticipate: tokens (B, W, N, d) and present (B, W) bool → objectness (B, K), classes (B, K, C), offsets."""

    inputs = INPUTS["slots"]
    outputs = OUTPUTS["slots"]

    def __init__(self, model: Anticipator) -> None:
        super().__init__()
        self.network = model.network

    def forward(self, tokens: Tensor, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        slots = self.network.anticipate(tokens, present)
        return slots.objectness, slots.classes, slots.offsets


Part = StacksPart | SnippetsPart | WindowPart | SlotsPart
Examples = tuple[Tensor, ...]


def make_parts(model: Anticipator, backbone: Backbone | None) -> dict[str, tuple[Part, Examples]]:
    """Split a model and its backbone into the parts of an export; without a backbone, as for feeds, only the model.

    Returns:
        Part name → the part in eval mode on the CPU, and inputs to trace it with, a batch of two.
    """
    model = copy.deepcopy(model).cpu().eval()
    features = torch.zeros(2, model.config.clips, model.config.width)
    with torch.no_grad():
        tokens = model.encode_window(features)[:, None].expand(-1, model.network.lookback, -1, -1).contiguous()
    present = torch.ones(2, model.network.lookback, dtype=torch.bool)
    present[0, :-1] = False
    parts: dict[str, tuple[Part, Examples]] = {} if backbone is None else _backbone_parts(backbone)
    parts["window"] = (WindowPart(model).eval(), (features,))
    parts["slots"] = (SlotsPart(model).eval(), (tokens, present))
    return parts


def _backbone_parts(backbone: Backbone) -> dict[str, tuple[Part, Examples]]:
    backbone = copy.deepcopy(backbone).cpu().eval()
    c = backbone.config
    stacks = StacksPart(backbone).eval()
    height, width = (-(-side // c.padding) * c.padding for side in TRACED)
    rows = height * 3 // 2 if c.colour else height
    pictures = torch.zeros(2 * _group(c), c.stack, rows, width, dtype=torch.uint8)
    with torch.no_grad():
        maps = stacks(pictures)[:, None].expand(-1, c.stacks, -1, -1, -1).contiguous()
    return {"stacks": (stacks, (pictures,)), "clips": (SnippetsPart(backbone).eval(), (maps,))}


def to_onnx(part: Part, examples: Examples, *, folded: bool = True) -> bytes:
    """Write a part as an ONNX graph for any batch size and, for the backbone's parts, any frame size.

    Args:
        part, examples: see `make_parts`.
        folded: fold norms and constants into the weights; otherwise the graph holds the weights as they are in the
            model's file.
    """
    try:
        import onnx  # noqa: F401  (the exporter wants it)
    except ImportError:
        raise MissingExtra("onnx", "train") from None
    axes = {name: {axis: f"{name}_{axis}" for axis in _free(part, name)} for name in (*part.inputs, *part.outputs)}
    file = BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # that sizes are traced as constants, which is intended
        # The tracing exporter, because it keeps the GRU one node; the newer one unrolls it, which takes minutes.
        torch.onnx.export(
            part,
            examples,
            file,  # type: ignore[arg-type]  # this exporter takes one
            dynamo=False,
            input_names=list(part.inputs),
            output_names=list(part.outputs),
            dynamic_axes=axes,
            opset_version=OPSET,
            do_constant_folding=folded,
            training=torch.onnx.TrainingMode.EVAL if folded else torch.onnx.TrainingMode.PRESERVE,
        )
    return file.getvalue()


def _free(part: Part, name: str) -> list[int]:
    """List the axes of an input or output that may have any size: the batch, and the sides of a frame or map."""
    if isinstance(part, StacksPart):
        return [0, 2, 3]
    sides = isinstance(part, SnippetsPart) and part.backbone.config.blocks  # a frame encoder's maps are 1×1
    return [0, 3, 4] if name == "maps" and sides else [0]


def _group(config: BackboneConfig) -> int:
    """Stacks that the 2D network takes together: 1, or with a temporal shift those of a window."""
    return 1 if config.shift == "none" else snippet_count(config)


def _with_fixed_padding(backbone: Backbone) -> Backbone:
    """Replace TensorFlow's size-dependent padding by the fixed one of sizes that are multiples of the stride.

    All sizes are, since frames are padded. A graph then holds no arithmetic on sizes, and the padding fuses with the
    convolution.
    """
    fixed = copy.deepcopy(backbone)
    for module in list(fixed.modules()):
        for name, conv in module.named_children():
            if isinstance(conv, Conv2dSame):
                if backbone.config.padding % STRIDE:
                    raise InputError(
                        f"{backbone.config.encoder} pads by the size of its input, which a graph for all sizes cannot: "
                        f"train it with encoder.network.padding={STRIDE} to export it"
                    )
                sides: list[int] = []
                for axis in (1, 0):  # left, right, above, below
                    total = max(conv.dilation[axis] * (conv.kernel_size[axis] - 1) + 1 - conv.stride[axis], 0)
                    sides += [total // 2, total - total // 2]
                plain = nn.Conv2d(
                    conv.in_channels,
                    conv.out_channels,
                    conv.kernel_size,
                    conv.stride,
                    dilation=conv.dilation,
                    groups=conv.groups,
                    bias=conv.bias is not None,
                )
                plain.load_state_dict(conv.state_dict())
                setattr(module, name, nn.Sequential(nn.ZeroPad2d(tuple(sides)), plain))  # type: ignore[arg-type]
    return fixed.eval()
