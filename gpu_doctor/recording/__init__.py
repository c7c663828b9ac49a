"""The recording of a run: its frozen columns and facts, its file, and the feed for readers that follow the run live.

It connects the code that observes runs with the code that evaluates them, and depends on neither: of other packages it
needs only numpy. The facts about a run are in `setup`, its columns in `steps`.
"""

from gpu_doctor.recording.feed import Cursor, Feed, News, Replay, readings_since, series_key
from gpu_doctor.recording.npz import RecordingError, check_place
from gpu_doctor.recording.place import UNKNOWN, devices_of, here, is_elsewhere
from gpu_doctor.recording.recording import (
    AFTER,
    BEFORE,
    CLEAN,
    OUTCOMES,
    Fetch,
    LineCost,
    Losses,
    Metric,
    Recording,
    Series,
    Settings,
    SettingValue,
    Timed,
    describe,
    load,
)
from gpu_doctor.recording.setup import DeviceSetup, LoaderSetup, Setup
from gpu_doctor.recording.steps import PHASES, Column, Steps

__all__ = [
    "AFTER",
    "BEFORE",
    "CLEAN",
    "OUTCOMES",
    "PHASES",
    "UNKNOWN",
    "Column",
    "Cursor",
    "DeviceSetup",
    "Feed",
    "Fetch",
    "LineCost",
    "LoaderSetup",
    "Losses",
    "Metric",
    "News",
    "Recording",
    "RecordingError",
    "Replay",
    "Series",
    "SettingValue",
    "Settings",
    "Setup",
    "Steps",
    "Timed",
    "check_place",
    "describe",
    "devices_of",
    "form",
    "here",
    "is_elsewhere",
    "load",
    "readings_since",
    "series_key",
]
