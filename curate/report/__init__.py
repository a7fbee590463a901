"""The report: one HTML file that shows a run, opens from disk and needs no network.

This room knows how a page is put together from figures, columns and dialogues; `curate.run.report` reads them from a run.
The page's program lies in `page/`, and bundled in `built/` (`make page`).
"""
