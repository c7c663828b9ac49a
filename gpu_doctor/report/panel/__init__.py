"""The panel's state, section by section, as plain data that a front end draws."""
