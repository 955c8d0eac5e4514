"""One self-contained HTML page about one run, or several: for someone who did not run it."""

from ifca.report.page.build import REPORT, article, page, write_page, write_report

__all__ = ["REPORT", "article", "page", "write_page", "write_report"]
