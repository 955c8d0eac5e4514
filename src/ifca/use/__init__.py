"""Finished runs put to use: assign, predict, export."""
