"""Reports on a batch run: a summary, and a page of HTML."""
