"""Server of the Model Context Protocol (MCP) for agents: tools and resources over an index or a running service.

`tools` and `run` import the extra `mcp`.
"""
