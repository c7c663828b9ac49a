"""A real IPython shell or Jupyter kernel."""
