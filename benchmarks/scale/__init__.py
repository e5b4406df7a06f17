"""Builds of one to a hundred million tokens, measured by stage, and the tables of large builds."""
