"""What the server runs."""

from pathlib import Path

from task import make_model

from ifca.federation import server_app

app = server_app(Path(__file__).with_name("config.toml"), make_model)
