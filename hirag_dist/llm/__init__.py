"""Everything between a stage and a paid model: ledger → retry → limit → endpoint."""
