"""The vitals: figures computed from a recording, one group a file; `measure` puts them together."""
