"""An index in the forms that other tools read: GraphML, and Microsoft GraphRAG's tables."""
