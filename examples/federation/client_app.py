"""What every node runs."""

from pathlib import Path

from task import load_client, make_model

from ifca.federation import client_app

app = client_app(Path(__file__).with_name("config.toml"), load_client, make_model)
