"""How fast are the engines, on which shapes."""
