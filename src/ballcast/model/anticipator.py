"""The public model: features of the last 30 seconds in, slots for the next 5 out; saved and loaded as plain data."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ballcast.core import hub
from ballcast.core.errors import InputError
from ballcast.core.recipe import EmitConfig, LossConfig, ModelConfig
from ballcast.model import pretrained
from ballcast.model.build import build
from ballcast.model.calibration import FILE_NAME, Calibration
from ballcast.model.card import write_card
from ballcast.model.slots import Slots


class Anticipator(nn.Module):
    """Either network behind one interface.

    - `config`: the network and its sizes; `emit`: how its slots become predictions.
    - `metadata`: plain JSON data that travels with the weights: class weights, scores, backbone, provenance.
    - `calibration`: what `ballcast tune` found, for submissions; None if it was not tuned.

    Shapes: B samples, W windows of 5 s in order of time, N clips a window, D features a clip, d the token width.
    """

    def __init__(
        self,
        config: ModelConfig | None = None,
        *,
        emit: EmitConfig | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.config = config or ModelConfig()
        self.metadata = metadata or {}
        self.emit = (emit or EmitConfig()).of_loss(self.pos_weight)
        self.calibration: Calibration | None = None
        self.network = build(self.config)

    @property
    def pos_weight(self) -> float:
        """How much a matched slot counted in the loss it was trained with; the paper's, if it does not say."""
        return float(self.metadata.get("pos_weight", LossConfig().pos_weight))

    def encode_window(self, features: Tensor) -> Tensor:
        """Features (..., N, D) of any float type → tokens (..., N, d).

        A window's tokens depend on no other window: live use computes them once and keeps them.
        """
        expected = (self.config.clips, self.config.width)
        if tuple(features.shape[-2:]) != expected:
            got = " × ".join(map(str, features.shape[-2:]))
            raise InputError(
                f"the model reads windows of {expected[0]} clips × {expected[1]} features, these are {got}; "
                "extract the features with the backbone the model was trained on"
            )
        return self.network.encode_window(features)

    def anticipate(self, tokens: Tensor, present: Tensor | None = None) -> Slots:
        """Tokens (B, W, N, d) → slots.

        `present` (B, W) bool: False for windows before the video began. Only early windows may be absent, never the
        last; what their tokens hold has no influence. None: all are present.
        """
        return self.network.anticipate(tokens, present)

    def forward(self, features: Tensor, present: Tensor | None = None) -> Slots:
        """Features (B, W, N, D) → slots; `present` as in `anticipate`."""
        if features.ndim != 4 or features.shape[1] != self.config.windows:
            raise InputError(
                f"the model reads (samples, {self.config.windows} windows, clips, features), "
                f"this is {tuple(features.shape)}"
            )
        lookback = self.network.lookback  # windows it does not read are not encoded either
        present = None if present is None else present[:, -lookback:]
        return self.anticipate(self.encode_window(features[:, -lookback:]), present)

    def save_pretrained(self, folder: Path | str) -> None:
        """Write `model.safetensors` and `config.json`, and a calibration if there is one, into `folder`."""
        pretrained.save(Path(folder), self.state_dict(), self.config, self.emit, self.metadata)
        if self.calibration is not None:
            pretrained.save_calibration(Path(folder), self.calibration)

    @classmethod
    def from_pretrained(cls, source: Path | str) -> "Anticipator":
        """The model in a folder, or of a hub id like "someone/ballcast", in eval mode on the CPU."""
        folder = hub.locate(source, (pretrained.CONFIG, pretrained.WEIGHTS), also=(FILE_NAME,))
        saved = pretrained.read_config(folder)
        weights = pretrained.read_weights(saved)  # checked before any memory is taken
        model = cls(saved.model, emit=saved.emit, metadata=saved.metadata)
        model.load_state_dict(weights)
        model.calibration = pretrained.read_calibration(folder)
        return model.eval()

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool = True,
        licence: str = "apache-2.0",
        backbone: str | None = None,
        folder: Path | None = None,
    ) -> str:
        """Upload what `save_pretrained` writes, and a card that tells what the metadata does; returns the address.

        `licence`: of the weights, by the hub's short name. `backbone`: the hub id of the one it reads, for the card.
        `folder`: where it was read from, if it has not changed since; then those files go as they are.
        """
        card = write_card(repo_id, self.config, self.metadata, self.calibration, licence=licence, backbone=backbone)
        names = (pretrained.CONFIG, pretrained.WEIGHTS, FILE_NAME)
        return hub.push_model(repo_id, names, self.save_pretrained, card, private=private, folder=folder)
