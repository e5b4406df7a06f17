"""Coefficients of the choice of a mode (`mode_choice`).

Written by `python -m benchmarks.mode_choice --write`, not edited by hand. Trained on half the questions of
chains, connections, hotpotqa, hotpotqa50, lihua, mix, musique, ordinary, themes.
"""

from typing import Final

# Mode of each class.
CLASS_MODES: Final = {
    "fact": "local",
    "comparison": "local",
    "path": "bridge",
    "corpus-wide": "global",
}

# Questions with listed words.
BY_WORDS: Final = {
    "fact": {
        "intercept": 0.722,
        "one name": 0.493,
        "several names": 0.424,
        "words of fact": 0.52,
        "words of comparison": -1.17,
        "words of path": -1.153,
        "words of corpus-wide": -1.045,
    },
    "comparison": {
        "intercept": -1.043,
        "one name": -0.156,
        "several names": 0.621,
        "words of fact": 0.215,
        "words of comparison": 2.55,
        "words of path": -0.63,
        "words of corpus-wide": -0.417,
    },
    "path": {
        "intercept": -0.944,
        "one name": 0.2,
        "several names": 0.263,
        "words of fact": -0.515,
        "words of comparison": -0.517,
        "words of path": 2.964,
        "words of corpus-wide": -0.016,
    },
    "corpus-wide": {
        "intercept": 1.264,
        "one name": -0.536,
        "several names": -1.307,
        "words of fact": -0.22,
        "words of comparison": -0.863,
        "words of path": -1.18,
        "words of corpus-wide": 1.479,
    },
}

# Questions without.
BY_NAMES: Final = {
    "fact": {
        "intercept": 0.005,
        "one name": 0.422,
        "several names": -0.012,
    },
    "comparison": {
        "intercept": -0.621,
        "one name": -0.357,
        "several names": 0.922,
    },
    "path": {
        "intercept": -0.438,
        "one name": 0.598,
        "several names": 0.573,
    },
    "corpus-wide": {
        "intercept": 1.054,
        "one name": -0.664,
        "several names": -1.484,
    },
}
