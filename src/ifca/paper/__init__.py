"""The paper's experiments: units that become lines, and what their lines come to; no tables, no figures."""
