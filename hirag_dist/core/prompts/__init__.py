"""Prompt templates, requests, reply schemas and reply parsing."""
