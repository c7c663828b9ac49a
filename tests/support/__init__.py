"""What tests are made of; README.md says which to take."""
