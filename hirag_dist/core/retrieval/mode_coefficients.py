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
        "intercept": 0.768,
        "one name": 0.628,
        "several names": 0.558,
        "words of fact": 0.5,
        "words of comparison": -1.302,
        "words of path": -1.297,
        "words of corpus-wide": -1.139,
    },
    "comparison": {
        "intercept": -1.148,
        "one name": -0.176,
        "several names": 0.686,
        "words of fact": 0.185,
        "words of comparison": 2.77,
        "words of path": -0.678,
        "words of corpus-wide": -0.481,
    },
    "path": {
        "intercept": -1.056,
        "one name": 0.224,
        "several names": 0.26,
        "words of fact": -0.512,
        "words of comparison": -0.531,
        "words of path": 3.262,
        "words of corpus-wide": 0.003,
    },
    "corpus-wide": {
        "intercept": 1.436,
        "one name": -0.677,
        "several names": -1.504,
        "words of fact": -0.172,
        "words of comparison": -0.938,
        "words of path": -1.288,
        "words of corpus-wide": 1.618,
    },
}

# Questions without.
BY_NAMES: Final = {
    "fact": {
        "intercept": -0.012,
        "one name": 0.509,
        "several names": 0.016,
    },
    "comparison": {
        "intercept": -0.713,
        "one name": -0.393,
        "several names": 1.04,
    },
    "path": {
        "intercept": -0.483,
        "one name": 0.706,
        "several names": 0.63,
    },
    "corpus-wide": {
        "intercept": 1.208,
        "one name": -0.822,
        "several names": -1.686,
    },
}
