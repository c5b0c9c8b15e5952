"""Runners that read text and tables from documents."""
