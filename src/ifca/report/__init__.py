"""Run folders -> tables and figures; never trains."""
