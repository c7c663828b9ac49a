"""What is read off a recording, one part a file; `measure` puts them together."""
