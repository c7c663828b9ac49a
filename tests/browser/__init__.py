"""A real JupyterLab in headless Chromium."""
