"""The panel's script: its bundle, its types, its own tests in Node."""
