"""The documentation as it is built (`make docs`), read as files and in Chromium."""
