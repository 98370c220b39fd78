"""Reports on a batch: a summary, and a page of HTML."""
