"""All targets, and the corpus of what was found."""

from pathlib import Path

from tools.fuzzing import feeds, media, models, serving, stores, texts
from tools.fuzzing.target import Target

TARGETS: tuple[type[Target], ...] = (
    *(texts.Labels, texts.HalvesLabels, texts.Matches, texts.OslJson, texts.Submission, texts.SubmissionZip),
    *(texts.RecipeYaml, texts.PretrainYaml, texts.Overrides, texts.Variants, texts.Wyscout, texts.EventTable),
    *(stores.Manifest, stores.ShardFile, stores.StoreLabels, stores.EventsFile, stores.Imported, stores.PartsHeader),
    *(stores.Model, stores.ModelWeights, stores.CalibrationFile, stores.BackboneFolder, stores.BackboneWeights),
    *(stores.PublishedCheckpoint, stores.SavedRun, stores.SavedSteps),
    *(media.Video, media.Playlist, media.Stdin, media.Upload, media.UploadedLabels, media.Request),
    *(feeds.StatsBomb, feeds.StatsPerform, feeds.DataFactory, feeds.WyscoutV3, feeds.Opta, feeds.Sportec),
    *(feeds.SecondFile, feeds.FeedModel, feeds.FeedGraph, feeds.FeedWeights),
    *(serving.StreamsFile, serving.TokensFile, serving.Addresses, serving.Form),
    *(serving.StreamBody, serving.RawRequest, serving.UploadedFeed),
    *(models.PrecisionFile, models.PartOfPrediction, models.OnnxGraph, models.EmbeddedGraphs, models.LoadedModel),
    *(models.FrameEncoder, models.Verified, models.VerifiedWeights, models.VerifiedConfig, models.VerifiedSamples),
    *(models.TwoSystems, models.DamagedVideo),
)
NEW = tuple(target for target in TARGETS if target.__module__.endswith((".feeds", ".serving", ".models")))
KINDS = tuple(dict.fromkeys(target.kind for target in TARGETS))
CORPUS = Path(__file__).parents[2] / "tests" / "corpus"


def corpus_files(name: str) -> list[Path]:
    """What was found for the target of this name."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
