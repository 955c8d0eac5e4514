"""python -m ifca is the command line."""

from ifca.cli import main

main()
