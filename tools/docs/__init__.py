"""Documentation tools: generated reference pages, link checks and the strict build of the site."""
