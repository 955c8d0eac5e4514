"""What mkdocs calls while it builds the site: pages made from the code, links out of docs/ made plain."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from docs_reference import cli_page, config_page
from mkdocs.structure.files import File, Files

MADE = {"config.md": config_page, "cli.md": cli_page}
_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./(?!images)([^)\s]*)\)")


def on_config(config: Any) -> Any:
    """Leave out of the navigation what is not there."""
    config.nav = _present(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that the code's own docstrings make."""
    for name, make in MADE.items():
        files.append(File.generated(config, name, content=make()))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A link to a file outside of docs/ becomes its path."""
    return _OUTSIDE.sub(_plain, markdown)


def _plain(found: re.Match[str]) -> str:
    text, path = found.group(1), found.group(2)
    return f"`{path}`" if text.strip("`") == path or path.endswith(text.strip("`")) else f"{text} (`{path}`)"


def _present(nav: list[Any], docs: Path) -> list[Any]:
    kept = []
    for entry in nav:
        ((title, target),) = entry.items()
        if isinstance(target, list):
            kept.append({title: _present(target, docs)})
        elif target in MADE or (docs / target).is_file():
            kept.append(entry)
    return kept
