"""Evaluations: a kind makes units, says how one is done, and draws what came of all; the rest is here.

`session.open_session` holds a folder in which steps of units are journaled (`Session.map`), asked through pool and
ledger; `questions.read_questions` reads question files; `Findings` and its sections become `report.json` and
`report.html`.
"""
