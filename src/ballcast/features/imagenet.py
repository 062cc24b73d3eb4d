"""Initial weights of a backbone to train: ImageNet's for the 2D network, another backbone's, or random ones."""

import urllib.error
import urllib.request
import warnings
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import timm
import torch
from torch import nn

from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.pretrain_config import PretrainConfig
from ballcast.features.backbone import Backbone


def start_backbone(config: PretrainConfig) -> Backbone:
    """The backbone that `config.train.start` names, in train mode; its metadata record what it started from."""
    fresh, start = Backbone(config.network, name=config.name), config.train.start
    if start == "imagenet":
        fresh.metadata["start"] = start if start_from_imagenet(fresh) else "scratch"
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


def began_with(given: Backbone) -> dict[str, Any]:
    """What a backbone that goes on from the weights of `given` records of it: its name, hash and all its games."""
    return {"start": given.name, "start_hash": given.hash, "started_on": list(given.identity.trained_on)}


def describe_games(games: Sequence[str]) -> str:
    """The first few names, for a note: "match_001, match_002, match_003 and 4 more"."""
    more = len(games) - 3
    return ", ".join(games[:3]) + (f" and {more} more" if more > 0 else "")


def start_from_imagenet(backbone: Backbone) -> bool:
    """Fill the 2D network with timm's ImageNet weights; False, and a sentence, where these cannot be fetched.

    Its three colours become the three pictures of a stack. The scaling of its inputs is taken into the first
    convolution and the norm after it, so that it starts out seeing what it is used to. A network in which the two do
    not lie one after the other is an InputError.
    """
    name = backbone.config.encoder
    first_layers(backbone.encoder, name)
    try:
        _require_weights(name)
        trained = timm.create_model(
            name, pretrained=True, features_only=True, out_indices=(4,), in_chans=backbone.config.stack
        )
    except Exception as error:  # no network, no such weights, a broken cache: timm and the hub have one for each
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        warnings.warn(
            f"the ImageNet weights of {name} cannot be fetched ({reason[:160]}); the backbone starts from scratch",
            BallcastWarning,
            stacklevel=2,
        )
        return False
    backbone.encoder.load_state_dict(trained.state_dict())
    take_raw_pictures(backbone.encoder, name)
    return True


def _require_weights(name: str) -> None:
    """An error at once where the weights are neither kept here nor within reach: the hub would try for a minute."""
    from huggingface_hub import constants, try_to_load_from_cache

    cfg = timm.get_pretrained_cfg(name)
    if cfg is None or isinstance(try_to_load_from_cache(cfg.hf_hub_id, "model.safetensors"), str):
        return  # an unknown name is timm's to complain about
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=10).close()
    except urllib.error.HTTPError:
        pass  # reachable
    except OSError as error:
        raise InputError(f"{constants.ENDPOINT} is out of reach: {getattr(error, 'reason', error)}") from None


def first_layers(encoder: nn.Module, name: str) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    """The first convolution of timm's network `name` and the norm that follows it."""
    conv, norm = getattr(encoder, "conv_stem", getattr(encoder, "conv1", None)), getattr(encoder, "bn1", None)
    if isinstance(conv, nn.Conv2d) and conv.bias is None and isinstance(norm, nn.BatchNorm2d):
        return conv, norm
    raise InputError(
        f"{name}: does not begin with a convolution and a batch norm as EfficientNets and ResNets do, so ImageNet "
        "weights cannot be fitted to gray pictures; set backbone.encoder to one that does, or train.start=scratch"
    )


@torch.no_grad()
def take_raw_pictures(encoder: nn.Module, name: str) -> None:
    """Make timm's network `name`, which expects (x − mean) / deviation, give the same for x itself.

    Mean and deviation are timm's for these weights, averaged over the colours: pictures here are gray, in [0, 1].
    """
    scaling = timm.get_pretrained_cfg(name)
    if scaling is None:
        raise InputError(f"{name}: timm has no weights of this name, so their mean and deviation are not known")
    conv, norm = first_layers(encoder, name)
    conv.weight /= fmean(scaling.std)  # (out, in, k, k)
    assert norm.running_mean is not None
    norm.running_mean += conv.weight.sum((1, 2, 3)) * fmean(scaling.mean)
