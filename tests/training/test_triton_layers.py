"""The Triton layers beside timm's own: on a CPU by Triton's interpreter, on a GPU as they are."""

import os
import subprocess
import sys

import pytest
import torch
from timm.layers import BatchNormAct2d
from torch import nn

from ballcast.core.errors import BallcastWarning
from ballcast.training.switches import use_triton

SCRIPT = """
import copy
import torch
from timm.layers import BatchNormAct2d, Conv2dSame
from torch import nn
from ballcast.training.triton_layers import TritonHalving, TritonNormAct, use_triton_layers

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

def compare(layer, x, lenient=1.0):
    '''Outputs, gradients and statistics of the layer and of its copy in Triton.'''

    other = copy.deepcopy(layer)
    assert use_triton_layers(other) == 1 and type(other) is not type(layer)
    results = []
    for one in (layer, other):
        own = x.clone().requires_grad_()
        y = one(own)
        assert y.dtype == x.dtype and y.is_contiguous(memory_format=torch.channels_last)
        y.backward((0.3 + torch.arange(y.numel(), device=device).cos()).view_as(y).to(y.dtype))
        results.append([y, own.grad, *(p.grad for p in one.parameters()), *(b.float() for b in one.buffers())])
    for a, b in zip(*results, strict=True):
        apart = ((a - b).abs().max() / a.abs().max().clamp(min=1e-3)).item()
        assert apart < 2e-5 * lenient, (layer, tuple(x.shape), apart)

for act in (nn.Identity, nn.ReLU, nn.ReLU6, nn.SiLU):
    for shape in ((4, 24, 6, 10), (3, 17, 5, 7), (2, 96, 4, 4), (1, 1, 3, 130)):
        layer = BatchNormAct2d(shape[1], act_layer=act).to(device)
        with torch.no_grad():
            layer.weight.uniform_(0.5, 2)
            layer.bias.uniform_(-1, 1)
            layer.running_mean.uniform_(-1, 1)
        x = (3 * torch.randn(shape, device=device) + 1).to(memory_format=torch.channels_last)
        compare(copy.deepcopy(layer), x)
        compare(layer, x.half(), lenient=200)  # as in autocast: weights in float32
for taps in (3, 5):
    for height, width, channels in ((8, 12, 5), (7, 9, 33), (4, 40, 8), (5, 6, 3), (1, 2, 2)):
        layer = Conv2dSame(channels, channels, taps, stride=2, groups=channels, bias=False).to(device)
        compare(layer, torch.randn(2, channels, height, width, device=device).to(memory_format=torch.channels_last))
for other in (nn.Sequential(Conv2dSame(4, 4, 3, stride=2, dilation=2, groups=4, bias=False)),
              nn.Sequential(BatchNormAct2d(4, affine=False))):
    x = torch.randn(2, 4, 8, 8, device=device).to(memory_format=torch.channels_last)
    expected = copy.deepcopy(other).to(device)(x)
    assert use_triton_layers(other) == 0 and torch.equal(other.to(device)(x), expected)

layer = BatchNormAct2d(8).eval().to(device)
use_triton_layers(layer)
x = torch.randn(2, 8, 4, 4, device=device)
assert torch.equal(layer(x), nn.functional.relu(nn.functional.batch_norm(
    x, layer.running_mean, layer.running_var, layer.weight, layer.bias, False, 0, layer.eps)))
assert use_triton_layers(nn.Sequential(Conv2dSame(4, 8, 3, stride=2), nn.Conv2d(4, 4, 3, stride=2, groups=4))) == 0
print("the same")
"""


def run(**environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.stdout.strip() == "the same", done.stderr[-2000:]


def test_layers_of_a_network_in_triton_give_what_timms_give() -> None:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA")
    run(TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")


def test_where_no_kernel_runs_it_warns_and_goes_on() -> None:
    """As without a C compiler; here since the network is on a CPU."""
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA")
    network = nn.Sequential(BatchNormAct2d(4))
    with pytest.warns(BallcastWarning, match="without Triton"):
        use_triton(network)
    assert type(network[0]) is BatchNormAct2d


@pytest.mark.gpu
def test_layers_in_triton_on_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    run()
