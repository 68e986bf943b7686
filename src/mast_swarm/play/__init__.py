"""The playground `mast play`: a page that runs exported policies in the browser itself, and the server that gives it.

The page is written in `web/` and built by `make web` into the folder `site` beside this file.
"""
