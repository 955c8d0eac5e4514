"""The paper's experiments: units that need torch and numpy only, and what their lines come to."""
