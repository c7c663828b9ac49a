"""What a trial leaves outside of the user's variables: files, trackers, workers."""
