"""The program that `programs` describes, in each framework; importing one imports its framework."""
