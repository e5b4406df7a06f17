"""Contents of an index: in numbers (`summary.inspect_tables`) and as a page (`page.outline`, `page.render_page`)."""
