"""What training a backbone starts from: ImageNet's weights for the 2D network, another backbone, or nothing."""

import urllib.error
import urllib.request
import warnings
from collections.abc import Sequence
from typing import Any, cast

import timm
import torch

from ballcast.core.errors import BallcastWarning, InputError
from ballcast.core.pretrain import PretrainConfig
from ballcast.features.backbone import Backbone

# What timm's networks subtract and divide by, over all colours: here they see gray pictures in [0, 1] as they are.
MEAN, DEVIATION = 0.449, 0.226


def start_backbone(config: PretrainConfig) -> Backbone:
    """The backbone that `config.train.start` names, in train mode; its metadata say what it really started from."""
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


def told_games(games: Sequence[str]) -> str:
    """The first few names, for a note: "match_001, match_002, match_003 and 4 more"."""
    more = len(games) - 3
    return ", ".join(games[:3]) + (f" and {more} more" if more > 0 else "")


def start_from_imagenet(backbone: Backbone) -> bool:
    """Fill the 2D network with timm's ImageNet weights; False, and a sentence, where these cannot be fetched.

    Its three colours become the three pictures of a stack. The scaling of its inputs is taken into the first
    convolution and the norm after it, so that it starts out seeing what it is used to.
    """
    name = backbone.config.encoder
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
    take_raw_pictures(cast(Any, backbone.encoder))
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
        pass  # it answers
    except OSError as error:
        raise InputError(f"{constants.ENDPOINT} is out of reach: {getattr(error, 'reason', error)}") from None


@torch.no_grad()
def take_raw_pictures(encoder: Any) -> None:
    """Make a network that expects (x − mean) / deviation give the same for x itself."""
    weight = encoder.conv_stem.weight  # (out, in, 3, 3), no bias
    weight /= DEVIATION
    encoder.bn1.running_mean += weight.sum((1, 2, 3)) * MEAN
