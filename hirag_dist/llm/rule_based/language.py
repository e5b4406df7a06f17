"""What single words are: function words, verbs, nouns; their plain forms; and which script a text is in."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from hirag_dist.llm.rule_based.word_lists import (
    ADJECTIVES,
    ADVERBS,
    EVERYDAY,
    FOREIGN,
    FUNCTION,
    GENERIC,
    IRREGULAR,
    NOUN_TOO,
    VERBS,
    word_set,
)

STOP, VERB, ADJECTIVE, NOUN, PARTICIPLE, GERUND = range(6)

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
HAN_RUN = re.compile(f"[{_HAN}]+")
KANA = re.compile("[\u3040-\u30ff\u31f0-\u31ff]")
UNSPACED = re.compile(f"[{_HAN}\u3040-\u30ff\u31f0-\u31ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")

_ED_NOUNS = word_set("bed seed breed speed need shed weed feed deed reed steed creed greed bleed hundred red embed led")
_ING_NOUNS = word_set(
    "king ring spring string thing wing being evening morning ceiling building painting wedding meeting learning",
    "training engineering processing programming clustering embedding housing recording banking mining farming",
    "riding racing boxing wrestling swimming advertising marketing planning teaching reasoning modeling modelling",
    "sampling computing scattering screening coupling spelling lightning pudding clothing feeding breeding",
    "offspring sibling ending opening beginning setting rating ranking finding drawing writing reading singing",
    "dancing acting hunting streaming gaming coding networking wiring cycling skiing climbing fencing brewing",
    "weaving knitting baking cooking lending spending pricing lighting tracking mapping monitoring filtering",
    "smoothing averaging indexing hashing caching bonding binding folding splicing sequencing cloning signaling",
    "signalling masking pooling pruning tuning quenching annealing trading fishing shipping trading gambling",
    "printing publishing broadcasting testing encoding decoding tagging parsing",
)
_LY_NOUNS = word_set(
    "family assembly anomaly fly supply reply butterfly monopoly ally belly jelly bully italy july rally homily",
    "folly lily tally doily gully dolly holly fireflies",
)
_AL_NOUNS = word_set(
    "animal hospital capital metal material signal journal festival goal proposal potential manual approval arrival",
    "crystal cathedral canal rival total interval proposal removal refusal denial trial official mineral criminal",
    "individual terminal funeral general admiral cardinal integral coral medal pedal portal survival withdrawal",
    "renewal appeal deal meal seal steal heal real mammal carnival arsenal tribunal retrieval referral betrayal",
    "disposal burial principal editorial tutorial memorial colonial musical",
)
_IC_NOUNS = word_set(
    "music topic public traffic clinic logic fabric republic mechanic critic metric epidemic panic pandemic comic",
    "magic picnic attic lyric graphic arithmetic heretic rhetoric plastic ceramic organic classic mosaic relic",
    "tunic cynic ethic characteristic statistic heuristic diagnostic antibiotic arsenic aquatic catholic skeptic",
    "mystic",
)
_IVE_NOUNS = word_set(
    "initiative archive detective executive perspective alternative objective narrative derivative olive motive",
    "native representative collective directive incentive hive drive dive five relative operative locomotive",
    "adjective",
)
_ABLE_NOUNS = word_set("table cable variable vegetable bible constable timetable fable stable syllable crucible")
_ARY_NOUNS = word_set(
    "library dictionary boundary secretary salary anniversary vocabulary commentary documentary summary diary",
    "missionary estuary glossary itinerary military sanctuary revolutionary functionary february january obituary",
    "granary",
)
_EST_NOUNS = word_set(
    "forest interest harvest request protest contest conquest tempest priest guest breast chest test rest quest",
    "nest west crest pest arrest vest fest digest manifest soldier barrier frontier carrier courier supplier",
    "cashier premier terrier glacier pier tier amplifier classifier identifier multiplier fourier earlier atelier",
)
_VERBISH_NOUNS = word_set(
    "climate estate candidate senate certificate substrate predicate template coordinate carbonate nitrate",
    "phosphate sulfate chocolate pirate magistrate mandate delegate graduate undergraduate associate advocate",
    "aggregate duplicate surrogate triumvirate sultanate consulate emirate caliphate palatinate electorate",
    "directorate doctorate conglomerate covariate isolate condensate precipitate primate inmate syndicate syllabate",
    "filtrate glutamate electroplate roommate exercise expertise enterprise franchise premise promise surprise",
    "paradise merchandise compromise cruise disguise bruise treatise tortoise demise turquoise precise concise",
    "likewise otherwise clockwise debate private corporate ultimate intimate moderate delicate accurate adequate",
    "separate desperate elaborate fortunate alternate appropriate approximate multivariate univariate bivariate",
    "degenerate conjugate intermediate immediate subordinate noise poise",
)
_ADJECTIVE_ENDS: tuple[tuple[tuple[str, ...], frozenset[str]], ...] = (
    (
        ("ous", "ful", "less", "ish", "esque"),
        word_set("fish dish wish radish finish handful census famous british"),
    ),
    (("able", "ible"), _ABLE_NOUNS),
    (("al",), _AL_NOUNS),
    (("ic",), _IC_NOUNS),
    (("ive",), _IVE_NOUNS),
    (("ary",), _ARY_NOUNS),
    (("est", "ier"), _EST_NOUNS),
)
_KEEP_S = word_set(
    "series species means news always perhaps physics mathematics economics politics ethics statistics dynamics",
    "mechanics thanks headquarters gas bus lens plus thus virus status corpus chaos bias atlas canvas christmas",
    "texas paris james charles kansas arkansas illinois athens brussels wales analysis basis crisis thesis",
    "hypothesis axis oasis emphasis synthesis diagnosis tennis genius campus census focus bonus radius nucleus",
    "stimulus consensus apparatus cosmos his this its was has is us yes ourselves themselves rhinoceros alias iris",
    "pelvis does goes netherlands",
)
_PLURALS = {
    "men": "man", "women": "woman", "children": "child", "mice": "mouse", "feet": "foot", "teeth": "tooth",
    "geese": "goose", "wives": "wife", "lives": "life", "knives": "knife", "leaves": "leaf", "wolves": "wolf",
    "halves": "half", "shelves": "shelf", "thieves": "thief", "loaves": "loaf", "criteria": "criterion",
    "phenomena": "phenomenon", "indices": "index", "matrices": "matrix", "vertices": "vertex", "analyses": "analysis",
    "hypotheses": "hypothesis", "crises": "crisis", "theses": "thesis", "bases": "basis", "axes": "axis",
    "movies": "movie", "cookies": "cookie", "zombies": "zombie", "gases": "gas", "buses": "bus", "viruses": "virus",
    "oxen": "ox", "heroes": "hero", "potatoes": "potato", "tomatoes": "tomato", "shoes": "shoe", "nuclei": "nucleus",
    "stimuli": "stimulus", "fungi": "fungus", "bacteria": "bacterium", "genera": "genus", "corpora": "corpus",
    "gentlemen": "gentleman", "noblemen": "nobleman", "horses": "horse", "houses": "house", "causes": "cause",
    "cases": "case", "phases": "phase", "diseases": "disease", "responses": "response", "nurses": "nurse",
    "courses": "course", "databases": "database", "purposes": "purpose", "increases": "increase", "noises": "noise",
    "universes": "universe", "licenses": "license", "expenses": "expense", "senses": "sense", "pulses": "pulse",
    "verses": "verse", "roses": "rose", "bees": "bee", "aches": "ache", "caches": "cache", "niches": "niche",
    "axles": "axle", "ties": "tie", "lies": "lie", "pies": "pie",
}  # fmt: skip


def _with_forms(verbs: frozenset[str], plain: Callable[[str], bool]) -> frozenset[str]:
    forms: list[str] = []
    for verb in verbs:
        stem = verb.removesuffix("e")
        doubled = verb + verb[-1]
        past = [verb[:-1] + "ied"] if verb.endswith("y") and verb[-2] not in "aeiou" else [stem + "ed", doubled + "ed"]
        forms += [*past, stem + "ing", doubled + "ing"]
        if plain(verb):
            third = verb[:-1] + "ies" if verb.endswith("y") and verb[-2] not in "aeiou" else verb + "s"
            forms += [verb, third, verb + "es"]
    return frozenset(forms)


_VERB_FORMS = _with_forms(VERBS, lambda verb: verb not in NOUN_TOO) | IRREGULAR


@lru_cache(maxsize=65536)
def singular(word: str) -> str:
    """Return a lower-case noun in the singular, by rule.

    >>> singular("colonies"), singular("queens"), singular("bus")
    ('colony', 'queen', 'bus')
    """
    if word in _PLURALS:
        return _PLURALS[word]
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is", "'s")) or word in _KEEP_S:
        return word
    if "-" in word:
        head, _, tail = word.rpartition("-")
        return f"{head}-{singular(tail)}"
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("uses") and (word[:-2] in _KEEP_S or word.endswith("viruses")):
        return word[:-2]
    if word.endswith(("sses", "xes", "ches", "shes", "zzes")):
        return word[:-2]
    if word.endswith("ics"):
        return word
    return word[:-1]


@lru_cache(maxsize=65536)
def word_class(word: str) -> int:
    """Return what a lower-case word most likely is: STOP, VERB, ADJECTIVE, PARTICIPLE (-ed), GERUND or NOUN."""
    if word in FUNCTION or word in ADVERBS or word in FOREIGN or len(word) < 2 or word[0].isdigit():
        return STOP
    if "'" in word or "’" in word:
        return STOP if word.replace("’", "'") in FUNCTION else NOUN
    if word in _VERB_FORMS and word not in _ING_NOUNS:
        return VERB
    if word in ADJECTIVES:
        return ADJECTIVE
    if word.endswith("ly") and len(word) > 3 and word not in _LY_NOUNS:
        return STOP
    if word.endswith("ed") and len(word) > 3 and word not in _ED_NOUNS:
        return PARTICIPLE
    if word.endswith("ing") and len(word) > 4 and word not in _ING_NOUNS:
        return GERUND
    if len(word) > 5 and word.endswith(("ate", "ize", "ise", "ify", "ates", "izes", "ises", "ifies")):
        return NOUN if singular(word) in _VERBISH_NOUNS else VERB
    for ends, nouns in _ADJECTIVE_ENDS:
        if word.endswith(ends):
            return NOUN if word in nouns else ADJECTIVE
    return NOUN


@lru_cache(maxsize=65536)
def is_common(word: str) -> bool:
    """Whether a lower-case word is too ordinary to be an entity by itself."""
    kind = word_class(word)
    return kind != NOUN or word in GENERIC or singular(word) in GENERIC or word in VERBS or word in NOUN_TOO


@lru_cache(maxsize=65536)
def is_everyday(word: str) -> bool:
    """Whether a lower-case word is no term by itself: too common, or an everyday thing.

    >>> is_everyday("songs"), is_everyday("plague")
    (True, False)
    """
    return is_common(word) or word in EVERYDAY or singular(word) in EVERYDAY


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return a lower-case word without its commonest endings: only good for comparing words.

    >>> stem("layered") == stem("layers")
    True
    """
    word = word.replace("’", "'").removesuffix("'s").removesuffix("'")
    if len(word) < 4 or not word.isascii():
        return word
    word = singular(word)
    for end in ("ingly", "edly", "ings", "ing", "ed", "ly"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            word = word[: -len(end)]
            if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "ls":
                word = word[:-1]
            break
    if word.endswith("e") and len(word) > 3:
        word = word[:-1]
    return word[:-1] + "i" if word.endswith("y") and len(word) > 3 else word


def is_unspaced(text: str) -> bool:
    """Whether most of a text is in a script that writes no spaces between words."""
    sample = text[:20000]
    letters = sum(map(str.isalpha, sample))
    return letters > 0 and len(UNSPACED.findall(sample)) * 3 > letters


def content_words(text: str) -> list[str]:
    """Return the stems of the words that carry meaning, in order; for unspaced scripts, pairs of characters."""
    words = [stem(word) for word in WORD.findall(text.lower()) if word_class(word) != STOP]
    if UNSPACED.search(text):
        pairs = [run[at : at + 2] for run in HAN_RUN.findall(text) for at in range(max(len(run) - 1, 1))]
        words = [word for word in words if not UNSPACED.search(word)] + pairs
    return words
