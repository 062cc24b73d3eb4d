"""Published checkpoints: the same numbers as the published network, whatever the wrapper, and never any code."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ballcast.core.backbone_config import trained_size
from ballcast.core.errors import InputError
from ballcast.features.backbone import Backbone, pad_frames
from ballcast.features.stack_index import snippet_count
from ballcast.video.luma import FrameResizer, fitted

Published = Callable[[str], dict[str, np.ndarray]]


def save(path: Path, state: dict[str, np.ndarray], prefix: str = "", **params: object) -> Path:
    path.parent.mkdir(exist_ok=True)
    weights = {prefix + key: torch.from_numpy(np.asarray(value)) for key, value in state.items()}
    arguments = {"model_name": "tf_efficientnetv2_b0.in1k", "stack_size": 3, "num_3d_blocks": 4}
    torch.save(
        {
            "model_name": "BallActionModel",
            "params": {"nn_module": ("multidim_stacker", arguments), **params},
            "nn_state_dict": weights,
        },
        path,
    )
    return path


def near(got: torch.Tensor, expected: np.ndarray) -> None:
    error = np.abs(got.numpy() - expected).max() / np.abs(expected).max()
    assert error < 1e-4, error


@pytest.mark.parametrize(
    ("name", "prefix", "frames", "clips"), [("tuning", "", 15, 33), ("long", "_orig_mod.module.", 33, 21)]
)
@pytest.mark.filterwarnings("ignore:.*SN-BAA")
def test_parity(
    published: Published, shared: Path, tmp_path: Path, name: str, prefix: str, frames: int, clips: int
) -> None:
    backbone = Backbone.from_lromul(save(tmp_path / "model.pth", published(name), prefix))
    assert (backbone.config.frames, snippet_count(backbone.config)) == (frames, clips)
    expected = np.load(shared / "fixtures" / "lromul" / f"expected_{name}.npz")
    pictures = torch.from_numpy(expected["frames"])
    padded = pad_frames(pictures, backbone.config.padding)
    assert tuple(padded.shape[-2:]) == tuple(expected["padded"])
    with torch.no_grad():
        stacks = (padded / 255).unflatten(1, (-1, 3)).flatten(0, 1)
        near(backbone.encode(stacks).unflatten(0, (2, -1)), expected["stacks"])
        near(backbone.features(pictures), expected["features"])
        near(backbone(pictures), expected["logits"])


PADDED = {"pad_mode": "constant", "fill_value": 0}


@pytest.mark.parametrize(
    ("params", "size"),
    [
        # as in ball_tuning_001 and ball_finetune_long_004: 1280×720 frames, padded by 8 rows above and below
        (
            {"image_size": (1280, 736), "frames_processor": ("pad_normalize", {"size": (1280, 736), **PADDED})},
            (720, 1280),
        ),
        ({"image_size": [1280, 736]}, (720, 1280)),
        ({"frames_processor": ["pad_normalize", {"size": [160, 96]}], "image_size": (1, 1)}, (90, 160)),
        ({"image_size": (128, 128)}, (128, 128)),  # no 16:9 picture is padded to it
        ({"image_size": (1280, 720)}, (720, 1280)),  # not a multiple of 32: as it is
        ({}, None),
        ({"frames_processor": "unknown"}, None),
    ],
)
@pytest.mark.filterwarnings("ignore:.*SN-BAA")
def test_the_size_of_its_frames(
    published: Published, tmp_path: Path, params: dict[str, object], size: tuple[int, int] | None
) -> None:
    backbone = Backbone.from_lromul(save(tmp_path / "model.pth", published("tuning"), **params))
    assert trained_size(backbone.metadata) == size
    backbone.save_pretrained(tmp_path / "saved")
    assert trained_size(Backbone.from_pretrained(tmp_path / "saved").metadata) == size


@pytest.mark.filterwarnings("ignore:.*SN-BAA")
def test_frames_of_1280_by_720_are_padded_and_not_stretched(published: Published, tmp_path: Path) -> None:
    backbone = Backbone.from_lromul(save(tmp_path / "model.pth", published("tuning"), image_size=(1280, 736)))
    size = trained_size(backbone.metadata)
    for own in ((720, 1280), (1080, 1920), (224, 398), (360, 640)):
        assert fitted(own, size) == (720, 1280)
    frame = np.full((720, 1280), 200, np.uint8)
    seen = FrameResizer(size)(frame)
    assert seen is frame
    padded = pad_frames(torch.from_numpy(seen), backbone.config.padding)
    assert padded.shape == (736, 1280)
    assert (padded[8:728] == 200).all()
    assert not padded[:8].any()
    assert not padded[728:].any()


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({"image_size": "large"}, "its image size is 'large' instead of a width and a height"),
        ({"image_size": (1280,)}, "instead of a width and a height"),
        ({"image_size": (0, 736)}, "instead of a width and a height"),
        ({"frames_processor": ("resize", {"size": (1280, 736)})}, "'frames_processor' is 'resize'"),
        ({"frames_processor": ("pad_normalize", {"size": (64, 64), "pad_mode": "reflect"})}, "padded with 0"),
        ({"frames_processor": ("pad_normalize", {"size": (64, 64), "fill_value": 128})}, "padded with 0"),
    ],
)
def test_frames_that_cannot_be_made(
    published: Published, tmp_path: Path, params: dict[str, object], fault: str
) -> None:
    with pytest.raises(InputError, match=f"model.pth: .*{fault}"):
        Backbone.from_lromul(save(tmp_path / "model.pth", published("tuning"), **params))


def test_the_leak_is_told_and_the_fold_recorded(published: Published, tmp_path: Path) -> None:
    path = save(tmp_path / "fold_3" / "model-031-0.84.pth", published("tuning"))
    with pytest.warns(UserWarning, match="SN-BAA's valid and test"):
        backbone = Backbone.from_lromul(path)
    assert backbone.identity.fold == "3"
    backbone.save_pretrained(tmp_path / "saved")
    again = Backbone.from_pretrained(tmp_path / "saved")
    assert again.identity == backbone.identity
    assert "valid and test" in again.note
    with pytest.warns(UserWarning, match="valid and test"):
        assert Backbone.from_lromul(path, fold="6").fold == "6"


def test_a_file_with_code_is_refused(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "sprung"),)

    path = tmp_path / "trap.pth"
    torch.save({"model_name": "x", "params": {}, "nn_state_dict": {}, "extra": Trap()}, path)
    with pytest.raises(InputError, match=r"trap\.pth: holds more than weights"):
        Backbone.from_lromul(path)
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match=r"trap\.pth"):
        Backbone.from_lromul(path)
    assert not (tmp_path / "sprung").exists()


def test_not_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.pth"
    with pytest.raises(InputError, match="no such file"):
        Backbone.from_lromul(path)
    path.write_bytes(b"hello")
    with pytest.raises(InputError, match=r"model\.pth"):
        Backbone.from_lromul(path)
    torch.save({"weights": 1}, path)
    with pytest.raises(InputError, match="has no 'nn_state_dict'"):
        Backbone.from_lromul(path)
    torch.save({"nn_state_dict": {"layer.weight": torch.zeros(2, 2)}}, path)
    with pytest.raises(InputError, match="is not a MultiDimStacker checkpoint"):
        Backbone.from_lromul(path)


@pytest.mark.filterwarnings("ignore:.*SN-BAA")
def test_a_weight_that_does_not_fit_is_named(published: Published, tmp_path: Path) -> None:
    state = published("tuning")
    del state["conv3d_encoder.2.bn1.bn3d.bias"]
    with pytest.raises(InputError, match=r"lacks weight 'blocks\.2\.bn1\.bias'"):
        Backbone.from_lromul(save(tmp_path / "model.pth", state))
    state = published("tuning")
    state["conv2d_encoder.bn1.bias"] = np.zeros(7, np.float32)
    with pytest.raises(InputError, match=r"encoder\.bn1\.bias has shape \(7,\) instead of \(32,\)"):
        Backbone.from_lromul(save(tmp_path / "model.pth", state))


def test_terabytes_out_of_a_few_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "hostile.pth"
    small = {"encoder.conv_stem.weight": torch.zeros(1).expand(9000, 3, 9000, 9000)}
    torch.save({"params": {}, "nn_state_dict": small}, path)
    assert path.stat().st_size < 4096
    with pytest.raises(InputError, match=r"hostile\.pth: .* has more numbers than the file stores; not loaded"):
        Backbone.load(path)
