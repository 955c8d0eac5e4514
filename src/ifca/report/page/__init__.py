"""One self-contained HTML page about one run, or several: for someone who did not run it."""

from ifca.report.page.build import article, page, write_page

__all__ = ["article", "page", "write_page"]
