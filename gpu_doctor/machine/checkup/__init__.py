"""The check-up of a machine before any run: facts are gathered once, each judgement is a pure function of them."""
