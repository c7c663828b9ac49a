"""Rules of the family hardware: the card and the machine hold the loop back."""

from types import ModuleType

MODULES: tuple[ModuleType, ...] = ()
