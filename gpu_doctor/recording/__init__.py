"""What one run leaves behind: frozen columns and facts, saved and loaded, and the feed that readers follow meanwhile.

The one record between the two halves of the house. It knows numpy and no more: nothing of how a run is watched, and
nothing of what is read off it. The facts about a run stand in `setup`, its columns in `steps`.
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
