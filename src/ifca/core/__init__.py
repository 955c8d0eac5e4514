"""The paper: no I/O, no choice of device, no global random state."""
