"""The models to train, before their first step: weights as the recipe draws or loads them, and their metadata."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ballcast import __version__
from ballcast.core.actions import ACTIONS
from ballcast.core.anticipator_config import Recipe
from ballcast.core.config import to_dict
from ballcast.core.embedded import BACKBONE, FEED_MODEL, MODEL
from ballcast.core.errors import InputError
from ballcast.core.feed_config import FeedRecipe
from ballcast.core.pretrain_config import PretrainRecipe
from ballcast.data.labels.games import Game
from ballcast.features.backbone import Backbone, read_about
from ballcast.features.imagenet import began_with, describe_games, is_backbone, load_imagenet, start_backbone
from ballcast.model.anticipator import Anticipator, read_config
from ballcast.model.end_to_end import EndToEnd, load_end_to_end
from ballcast.model.event_transformer import EventTransformer, load_event_transformer
from ballcast.training.data import TrainingData


def build_anticipator(recipe: Recipe, data: TrainingData, class_weights: Tensor) -> Anticipator:
    """Build an anticipator for stored features.

    Args:
        recipe: of the run; its seed draws the weights, the same in every process.
        data: what the anticipator is going to be trained on.
        class_weights: (C,) of the loss, for the metadata.
    """
    torch.manual_seed(recipe.train.seed)
    model = Anticipator(recipe.model, emit=recipe.emission)
    model.metadata = {
        "backbone": to_dict(data.backbone),
        "class_weights": class_weights.tolist(),
        "pos_weight": recipe.loss.pos_weight,  # raises the objectness; timelines undo it
        "trained_on": list(recipe.data.train),
        "validated_on": list(recipe.data.valid),
        "leaks": data.leaks,
        "samples": len(data.train),
        "seed": recipe.train.seed,
        "ballcast": __version__,
    }
    if data.picture_size:  # other videos are resized to it
        model.metadata["picture_size"] = list(data.picture_size)
    return model


def build_end_to_end(
    recipe: Recipe,
    games: list[Game],
    folder: Path,
    size: tuple[int, int],
    *,
    resumed: bool,
    classes: Sequence[int] = (),
) -> EndToEnd:
    """Build a frame encoder and an anticipator; of a resumed run, the weights are still to be loaded.

    Args:
        recipe: of the run; its seed draws the weights.
        games: to train on, for the metadata.
        folder: the run's folder.
        size: H, W of the frames.
        resumed: take the metadata from the run's last model.
        classes: number of classes of each further label set.
    """
    torch.manual_seed(recipe.train.seed)
    config = recipe.encoder
    backbone = Backbone(config.network, name="ballcast-frames")
    model = Anticipator(recipe.model, emit=recipe.emission, metadata={"pos_weight": recipe.loss.pos_weight})
    if resumed:
        saved = read_about(folder / "last_backbone")
        backbone.metadata = saved.get("metadata", {})
        backbone.note = saved.get("note", "")
        model.metadata = read_config(folder / "last").metadata
        if config.features:  # needed before the state is loaded
            backbone.load_state_dict(Backbone.from_pretrained(folder / "last_backbone").state_dict())
    elif config.start == "imagenet":
        backbone.metadata["start"] = load_imagenet(backbone, "encoder.start")
    elif config.start == "scratch":
        backbone.metadata["start"] = config.start
    else:
        _start_from(config.start, backbone, model, recipe)
    names = [game.name for game in games]
    about = {"trained_on": names, "seed": recipe.train.seed, "ballcast": __version__, "picture_size": list(size)}
    if config.learns:
        backbone.metadata |= {**about, "task": "anticipation", "actions": list(ACTIONS)}
        backbone.note = f"learned end to end on {describe_games(names)}"
    backbone.metadata["picture_size"] = list(size)
    model.metadata |= {**about, "trained_on": list(recipe.games.train), "validated_on": list(recipe.games.valid)}
    backbone.classifier.requires_grad_(False)  # the anticipator spots
    if not config.learns:
        backbone.requires_grad_(False)
    if config.recompute:
        backbone.encoder.network.set_grad_checkpointing(True)  # type: ignore[union-attr, operator]
    return EndToEnd(backbone.train(), model.train(), classes)


def _start_from(start: str, backbone: Backbone, model: Anticipator, recipe: Recipe) -> None:
    """Give both the weights of the end-to-end model `start`, or the backbone those of the frame encoder `start`."""
    encoder, head = load_start(start)
    if encoder.config != recipe.encoder.network or (head and head.config != recipe.model):
        raise InputError(
            f"{start}: its sizes are not those of the recipe; give the recipe it was trained with, or "
            "for a new head the folder of its encoder, such as runs/e2e/best_backbone"
        )
    backbone.load_state_dict(encoder.state_dict())
    if head:
        model.load_state_dict(head.state_dict())
    if not recipe.encoder.learns:
        backbone.metadata = dict(encoder.metadata)
        backbone.note = encoder.note
    backbone.metadata |= began_with(encoder)


def load_start(start: str) -> tuple[Backbone, Anticipator | None]:
    """Load what a training starts from: a frame encoder, and its anticipator if `start` is not the encoder's folder."""
    if start != "embedded" and is_backbone(Path(start)):
        return Backbone.from_pretrained(start), None
    model = load_end_to_end(MODEL, BACKBONE) if start == "embedded" else load_end_to_end(Path(start))
    return model.backbone, model.anticipator


def build_event_transformer(recipe: FeedRecipe) -> EventTransformer:
    """Build an event transformer; the recipe's seed draws the weights, or `train.start` names them."""
    torch.manual_seed(recipe.train.seed)
    model = EventTransformer(recipe.model)
    if recipe.train.start != "scratch":
        start = _load_feed_model(recipe.train.start)
        if replace(start.config, dropout=recipe.model.dropout) != recipe.model:
            raise InputError(f"{recipe.train.start}: its sizes are not those of the recipe; set train.start=scratch")
        model.load_state_dict(start.state_dict())
    return model


def load_teachers(recipe: FeedRecipe) -> list[EventTransformer]:
    """Load the models whose outputs are targets of distillation."""
    teachers = [_load_feed_model(name) for name in recipe.distil.teachers]
    for name, teacher in zip(recipe.distil.teachers, teachers, strict=True):
        if teacher.config.slots != recipe.model.slots or teacher.config.tokens < recipe.model.tokens:
            raise InputError(
                f"{name}: cannot teach this model, since it has {teacher.config.slots} slots and reads "
                f"{teacher.config.tokens} events, and the recipe {recipe.model.slots} and {recipe.model.tokens}"
            )
    return [teacher.requires_grad_(False) for teacher in teachers]


def _load_feed_model(name: str) -> EventTransformer:
    return load_event_transformer(FEED_MODEL if name == "embedded" else Path(name))


def build_backbone(recipe: PretrainRecipe, games: Sequence[Game], folder: Path, *, resumed: bool) -> Backbone:
    """Build a backbone for spotting; of a resumed run, the weights are still to be loaded.

    Args:
        recipe: of the run; its seed draws the weights.
        games: to train on, for the metadata.
        folder: the run's folder.
        resumed: take the metadata from the run's last model.
    """
    torch.manual_seed(recipe.train.seed)
    if resumed:  # where the weights started is in the metadata saved before
        backbone = Backbone(recipe.network, name=recipe.name)
        backbone.metadata = read_about(folder / "last").get("metadata", {})  # its weights may be half replaced
    else:
        backbone = start_backbone(recipe)
    backbone.metadata |= {
        "trained_on": [game.name for game in games],
        "actions": list(ACTIONS),
        "seed": recipe.train.seed,
        "ballcast": __version__,
    }
    backbone.note = f"learned spotting on {describe_games(backbone.metadata['trained_on'])}"
    return backbone
