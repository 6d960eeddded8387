"""`python -m mainstem.cli`, the same as the command `mainstem`."""

from mainstem.cli import main

main()
