"""Constants: the ball actions in submission order, and the times of observation and anticipation."""

ACTIONS = (
    "PASS",
    "DRIVE",
    "HEADER",
    "HIGH PASS",
    "THROW IN",
    "CROSS",
    "SHOT",
    "OUT",
    "BALL PLAYER BLOCK",
    "PLAYER SUCCESSFUL TACKLE",
)
SHORT_NAMES = ("pass", "drive", "header", "high pass", "throw in", "cross", "shot", "out", "block", "tackle")
ACTION_INDEX = {label: i for i, label in enumerate(ACTIONS)}

# Labels of the spotting task on the same games that the anticipation task does not have; ignored without an error.
IGNORED_LABELS = frozenset({"FREE KICK", "GOAL"})

FPS = 25
OBSERVED_MS = 30_000  # length of the observation
HORIZON_MS = 5_000  # length of the anticipated time
END_MS = OBSERVED_MS + HORIZON_MS
FRAME_MS = 1000 // FPS
CLIP_FRAMES = OBSERVED_MS // FRAME_MS
WINDOW_FRAMES = 125  # the observation is read in windows of 5 s
MAX_EVENTS = 8  # a sample keeps its first 8 future events, the limit of the exact assignment
