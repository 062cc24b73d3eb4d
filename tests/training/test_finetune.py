"""Training end to end: gradients reach the backbone's last part and no more, and what is saved gives the score."""

from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from games import HEIGHT, WIDTH, make_clips
from synthetic import SMALL

from ballcast.core.anticipator_config import Recipe
from ballcast.core.backbone_config import BackboneConfig, trained_size
from ballcast.core.config import load
from ballcast.core.errors import InputError
from ballcast.data.samples.window_pixels import PixelBatch, WindowPixels
from ballcast.features.backbone import Backbone
from ballcast.features.batch_encoder import BatchEncoder
from ballcast.features.extract import extract
from ballcast.features.finetune import FinetuneEncoder, learning
from ballcast.features.stack_index import snippet_count
from ballcast.model.anticipator import Anticipator
from ballcast.publish.cards import backbone_card
from ballcast.training.engine import evaluate
from ballcast.training.finetune import FinetuneTask
from ballcast.training.progress import ProgressUpdate
from ballcast.training.run import open_trainer, train

CPU = torch.device("cpu")
TINY = BackboneConfig(encoder="test_efficientnet", channels=16, blocks=1, projected=8, se_ratio=4, classes=10)


def tiny_backbone() -> Backbone:
    torch.manual_seed(0)
    about = {"trained_on": ["match_001"], "validation": {"mean_ap": 0.5}, "actions": ["PASS"]}
    backbone = Backbone(TINY, name="tiny", note="a note", metadata=about).train()
    with torch.no_grad():
        for _ in range(20):  # norms that know their inputs
            backbone.features(torch.randint(40, 80, (4, 15, 32, 64), dtype=torch.uint8))
    return backbone.eval()


@dataclass(frozen=True)
class Data:
    videos: Path
    features: Path
    backbone: Path

    def recipe(self, *overrides: str) -> Recipe:
        base = [
            *SMALL,
            *(f"model.clips={snippet_count(TINY)}", f"model.width={TINY.width}", f"data.features={self.features}"),
            *("train.epochs=2", "train.batch=2", "train.warmup_epochs=1", "train.lr=1e-2", "data.every_ms=5000"),
            *("data.mixup=0", "data.drop_windows=0", "data.boost={}", "emit.threshold=0.0"),
            *("train.backbone=finetune", f"finetune.videos={self.videos}", f"finetune.backbone={self.backbone}"),
        ]
        return load(Recipe, Path("paper"), [*base, *overrides])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("finetune")
    backbone = tiny_backbone()
    backbone.save_pretrained(folder / "backbone")
    for split, count, seed in (("train", 4, 1), ("valid", 2, 2)):
        make_clips(folder / "224p" / split, count, seed)
        extract(folder / "224p" / split, folder / "features" / split, backbone, device="cpu", workers=1)
    return Data(folder / "224p", folder / "features", folder / "backbone")


def run(data: Data, folder: Path, *overrides: str) -> FinetuneTask:
    task = open_trainer(data.recipe(*overrides), folder, device=CPU).task
    assert isinstance(task, FinetuneTask)
    return task


def features_of(pixels: WindowPixels, backbone: Backbone) -> np.ndarray:
    """(rows, N, D) float16 of the samples' windows, from their pixels."""
    return pixels.rows(BatchEncoder(backbone, compiled=False).clips).rows[0]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("stages", [0, 1, 5])
def test_windows_are_those_of_extraction_and_gradients_go_as_far_as_told(stages: int, recompute: bool) -> None:
    backbone = tiny_backbone()
    pixels = torch.randint(40, 80, (3, 125, 32, 64), dtype=torch.uint8)
    expected = BatchEncoder(backbone, compiled=False).windows(pixels[1], [0])[0]
    tuned = FinetuneEncoder(backbone, stages=stages, at_once=2, recompute=recompute)
    backbone.train()  # whoever did that: neither statistics of these few windows, nor dropped paths
    features = tuned(pixels)
    assert torch.allclose(features[1], expected, atol=1e-5)
    features.square().sum().backward()
    reached = {name for name, p in backbone.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    assert reached == set(learning(backbone))
    blocks = len(backbone.encoder.blocks)  # type: ignore[arg-type]
    assert {int(name.split(".")[2]) for name in reached if name.startswith("encoder.blocks.")} == set(
        range(blocks - stages, blocks)
    )
    assert not any(name.startswith(("encoder.conv_stem", "encoder.bn1", "classifier")) for name in reached)
    assert {name.split(".")[0] for name in reached} >= {"project2d", "blocks", "project3d", "pool"}


def test_pixels_are_the_frames_the_features_were_made_of(data: Data, tmp_path: Path) -> None:
    """Features of each batch's pixels, by the backbone as it was, are the stored ones."""
    made = run(data, tmp_path, "finetune.windows=3")
    engine = BatchEncoder(made.backbone, compiled=False)
    chosen = torch.tensor([[0, 3], [2, 1]])
    for batch in made.anticipation.samples.stream(chosen.unbind()):
        assert isinstance(batch, PixelBatch)
        assert batch.pixels.shape == (2, 3, 125, 32, 64)
        for sample, windows in enumerate(batch.pixels):
            again = torch.stack([engine.clips(window) for window in windows]).half()
            assert torch.equal(again, batch.features[sample, -3:])


def test_both_learn_and_what_is_saved_gives_the_score(data: Data, tmp_path: Path) -> None:
    before = Backbone.load(data.backbone)
    after: list[Backbone] = []  # each epoch; not the mean that is saved

    def show(moment: ProgressUpdate) -> None:
        if moment.ended:
            after.append(deepcopy(made.backbone))

    trainer = open_trainer(data.recipe("train.ema=0.5"), tmp_path / "run", device=CPU, show=show)
    made = trainer.task
    progress = trainer.fit()
    assert progress.finished
    assert made.anticipation.valid is not None
    assert made.valid_pixels is not None
    last = Backbone.load(tmp_path / "run" / "last_backbone")
    for windows, pixels, by in (
        (made.anticipation.samples.windows, made.train_pixels, after[0]),  # the second epoch's, anew before it
        (made.anticipation.valid.windows, made.valid_pixels, last),  # the last scoring's, of what is saved
    ):
        expected = features_of(pixels, by)
        assert np.array_equal(windows.rows[0], expected)
        assert not np.array_equal(features_of(pixels, before), expected)
    backbone = Backbone.load(tmp_path / "run" / "best_backbone")
    changed = {k for k, v in backbone.state_dict().items() if not torch.equal(v, before.state_dict()[k])}
    frozen = ("encoder.conv_stem", "encoder.bn1", "encoder.blocks.0", "classifier")
    assert not any(key.startswith(frozen) for key in changed)
    assert any(key.startswith("encoder.blocks.4") for key in changed)
    assert any(key.startswith("blocks.0.conv_dw") for key in changed)
    assert trained_size(backbone.metadata) == (HEIGHT, WIDTH)
    for key in (k for k in changed if "running_" in k):  # statistics stay, but for the rounding of their mean
        assert torch.allclose(backbone.state_dict()[key], before.state_dict()[key], rtol=1e-5, atol=1e-7)
    model = Anticipator.from_pretrained(tmp_path / "run" / "best")
    told = model.metadata["backbone"]
    assert told["hash"] == backbone.hash
    assert (tmp_path / "run" / "best" / told["folder"]).resolve() == (tmp_path / "run" / "best_backbone").resolve()

    for split in ("train", "valid"):
        extract(data.videos / split, tmp_path / "again" / split, backbone, device="cpu", workers=1)
    frozen_recipe = data.recipe("train.backbone=frozen", f"data.features={tmp_path / 'again'}")
    scored = open_trainer(frozen_recipe, tmp_path / "scored", device=CPU)
    assert scored.task.valid is not None
    assert evaluate(model, scored.task.valid, model.emit).avg == progress.best > 0


def test_when_features_are_computed_anew(data: Data, tmp_path: Path) -> None:
    for refresh, epochs in (("true", [False, True]), ("false", [False, False])):
        made = run(data, tmp_path / refresh, f"finetune.refresh={refresh}")
        assert made.valid_pixels is not None
        with torch.no_grad():
            made.backbone.project3d[0].weight.mul_(1.5)  # type: ignore[operator, union-attr]
        own = made.anticipation.samples
        for epoch, anew in enumerate(epochs):
            made.train_epoch(epoch, 0)
            assert (made.anticipation.samples is not own) == anew
    made.backbone.train()
    made.evaluate(0)
    assert made.anticipation.valid is not None
    assert np.array_equal(made.anticipation.valid.windows.rows[0], features_of(made.valid_pixels, made.backbone.eval()))


def test_a_fine_tuned_backbone_says_what_it_is(data: Data, tmp_path: Path) -> None:
    """Not what it started from: another name, the games of both, and no score that was the other's."""
    given = Backbone.load(data.backbone)
    made = run(data, tmp_path)
    made.model.metadata["epoch"] = 7
    made.save("best")
    tuned = Backbone.load(tmp_path / "best_backbone")
    assert tuned.name == "tiny fine-tuned"
    assert tuned.note == f"fine-tuned on train/clip_1 from tiny ({given.hash[:12]}); of that one: a note"
    assert tuned.metadata["start_hash"] == given.hash
    assert (tuned.metadata["epoch"], tuned.metadata["actions"]) == (7, ["PASS"])
    assert "validation" not in tuned.metadata
    assert tuned.identity.trained_on == ("train/clip_1", "match_001")
    told = Anticipator.from_pretrained(tmp_path / "best").metadata["backbone"]
    assert (told["name"], told["trained_on"]) == (tuned.name, ["train/clip_1", "match_001"])
    text = backbone_card("me/tuned", tuned, licence="mit")
    assert f"Initial weights: tiny (`{given.hash[:12]}…`), which were trained on `match_001`" in text
    assert "It was trained to spot ball actions, then to anticipate them" in text


def test_cut_between_epochs_it_ends_with_the_same_bytes(data: Data, tmp_path: Path) -> None:
    class Cut(Exception):
        pass

    def cut(moment: ProgressUpdate) -> None:
        if moment.epoch == 1:
            raise Cut

    recipe = data.recipe("train.epochs=3")
    train(recipe, tmp_path / "whole", device=CPU)
    with suppress(Cut):
        train(recipe, tmp_path / "cut", device=CPU, show=cut)
    torch.rand(3)
    train(recipe, tmp_path / "cut", device=CPU)
    for name in ("steps.csv", "state.safetensors", "last/model.safetensors", "last_backbone/model.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_the_backbone_learns_slower(data: Data, tmp_path: Path) -> None:
    made = run(data, tmp_path, "finetune.lr_factor=0.25")
    own = {id(p) for p in made.backbone.parameters()}
    factors = {group["factor"]: {id(p) in own for p in group["params"]} for group in made.optimizer.param_groups}
    assert factors == {1.0: {False}, 0.25: {True}}
    held = {id(p) for group in made.optimizer.param_groups for p in group["params"]}
    assert {id(p) for p in made.backbone.parameters() if p.requires_grad} == held & own


def test_it_starts_from_a_trained_anticipator(data: Data, tmp_path: Path) -> None:
    given = Anticipator(data.recipe().model)
    given.save_pretrained(tmp_path / "given")
    made = run(data, tmp_path / "run", f"finetune.anticipator={tmp_path / 'given'}")
    for key, value in made.model.state_dict().items():
        assert torch.equal(value, given.state_dict()[key])
    with pytest.raises(InputError, match="its sizes are not those of the recipe"):
        run(data, tmp_path / "run", f"finetune.anticipator={tmp_path / 'given'}", "model.slots=3")


def test_what_cannot_be_is_told(data: Data, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"needs finetune\.videos"):
        data.recipe('finetune.videos=""')
    other = Backbone(TINY, name="other")
    other.save_pretrained(tmp_path / "other")
    with pytest.raises(InputError, match=r"is other .* but the features are of tiny"):
        run(data, tmp_path / "run", f"finetune.backbone={tmp_path / 'other'}")
    with pytest.raises(InputError, match="after each epoch"):
        run(data, tmp_path / "run", "train.save_every=5")
    with pytest.raises(InputError, match="has 5 stages"):
        run(data, tmp_path / "run", "finetune.stages=9")
