"""Engines decide how the client function is mapped over clients: a loop, chunks at once, nodes of Flower."""
