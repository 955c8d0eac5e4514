"""python -m ifca is the command line."""

from ifca.cli.main import main

main()
