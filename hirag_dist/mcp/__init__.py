"""Server of the Model Context Protocol (MCP) for agents: tools and resources over an index or a running service.

The modules import the extra `mcp`, except `backend`, `uris` and `options`.
"""
