"""Keeps a trial's side effects (files, trackers, threads, workers) away from the user's own."""
