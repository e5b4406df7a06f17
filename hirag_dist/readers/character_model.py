"""Probabilities of characters in text of a given language, to distinguish legacy encodings.

A model gives each non-ASCII character a log-probability. Bytes decoded with the wrong encoding give rare
characters:
Chinese read as Korean gives Hanja, Russian read as Western European gives rows of accented letters. The
encoding whose characters are likeliest wins (`legacy.py`). Letters are listed from frequent to rare; an
ideograph counts as common by the level that its national standard gives it.
"""

from __future__ import annotations

import math
from functools import cache

RARE = math.log(1e-7)
"""Log-probability of a character that a model does not know."""

REPLACED = math.log(1e-6)
"""Log-probability of U+FFFD: a byte that the encoding does not have."""

_TYPOGRAPHY = "’“”–—\xa0‘…°•«»„£€©§®±·²µ½³×¿¡™¼¾º‚›‹÷†´ª"
_CJK_MARKS = "，。、“”《》：！？；（）「」『』・ー…—‘’【】〈〉·　［］～％０１２３４５６７８９"


_WESTERN = "éèàöäüçñáíóêâôãßåøæîûëïúùòõìœÉÀÖÄÜÇÑÁÍÓÊÂÔÃÅØÆÎÛËÏÚÙÒÕÌŒýþðÿÝÞÐ"
_POLISH = "ąęłóśżćńźŁŚŻÓĆŹĄĘŃ"
_CZECH = "áíéěřčžýšůúťďňľôäŠČŽÚŘÁŇÍÉŤĎÝĽÔĺŕ"
_DANUBIAN = "áéöăóüâîțşţőșíúűÉÁÖŐÍŞŢÎÂÚÜÓŰțäßčćšžđŠŽČĆĐ"
_TURKISH = "ıüşğöçiİÖÜŞÇĞâîû"
_BALTIC = "āēīšėųžūčęįąķļņģŠŽČŪĀĒĪĖŲĮĄĶĻŅĢõäöüÕÄÖÜ"
_CYRILLIC = "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфіїєґёъўјљњђћџ"
_GREEK = "αοιετνσςρκπμλυηωήάίόδέύγθχβφώξζψϊϋΐΰ"
_HEBREW = "יהולאמרבתשנכםדקחפןטצגסזעךץף"
_ARABIC = "اليمنورتبةعدسفهكقحأجشىصطخإضذزءثغظئؤآ"
_THAI = "านรอกเงยมลวดสทตะปบค่้ัีิุูใไแโำ์ขหชจพถผซณษศธภญฉึืฐฎฏฒฑฌฟฝฬฮๆ็ฯๅ๑๒๓๔๕"

_FREQUENT = {  # ideographs and syllables from frequent to rare
    "chinese": (
        "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后"
        "作里用道行所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因"
        "只从想实日军者意无力它与长把机十民第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应"
        "战向头文体政美相见被利什二等产或新己制身果加西斯月话合回特代内信表化老给世位次度门任"
    ),
    "taiwanese": (
        "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過發後"
        "作裡用道行所然家種事成方多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心她本前開但因"
        "只從想實日軍者意無力它與長把機十民第公此已工使情明性知全三又關點正業外將兩高間由問很最重並物手應"
        "戰向頭文體政美相見被利什二等產或新己制身果加西斯月話合回特代內信表化老給世位次度門任"
    ),
    "korean": (
        "이다의는에을가고를은한지하도사로기어나서대자인그들아리시해정일스게수있상부전라으주과구원보장여제"
        "조연비만와동무공소신관성선안거면우했었중니"
    ),
    "japanese": (
        "日一国人年大十二本中長出三時行見月後前生五間上東四今金九入学高円子外八六下来気小七山話女北午百書"
        "先名会同事自社発者地業方新場員立開手力問代明動京目通言理体田主題意不作用度強公持野以思家世多正安"
        "院心界教文元重近考画海売知道集別物使品計死特私始運無真有口少"
    ),
}

_ALPHABETS: dict[str, tuple[str, float]] = {  # letters from frequent to rare; share of non-ASCII characters
    "western": (_WESTERN, 0.65),
    "polish": (_POLISH, 0.85),
    "czech": (_CZECH, 0.85),
    "danubian": (_DANUBIAN, 0.85),
    "turkish": (_TURKISH, 0.80),
    "baltic": (_BALTIC, 0.80),
    "cyrillic": (_CYRILLIC, 0.93),
    "greek": (_GREEK, 0.93),
    "hebrew": (_HEBREW, 0.97),
    "arabic": (_ARABIC, 0.95),
    "thai": (_THAI, 0.98),
}
_CAPITALS = {"cyrillic": _CYRILLIC.upper(), "greek": "ΑΟΙΕΤΝΣΡΚΠΜΛΥΗΩΉΆΊΌΔΈΎΓΘΧΒΦΏΞΖΨ"}


@cache
def character_model(language: str) -> dict[str, float]:
    """Return the log-probability of each known non-ASCII character of a language.

    Args:
        language: western, polish, cyrillic, chinese, … as `legacy.ENCODINGS` uses them.

    Returns:
        Natural logs; a character that is not there has `RARE`.

    Raises:
        KeyError: the language is not known.
    """
    if language in _ALPHABETS:
        letters, share = _ALPHABETS[language]
        capitals = _CAPITALS.get(language, "")
        classes = [(share, _zipf(letters)), (0.95 * (1 - share), _zipf(_TYPOGRAPHY)), (0.04, _even(capitals))]
        classes.append((0.002, _even("".join(map(chr, range(0xA1, 0x100))))))  # rare signs
    else:
        classes = _ideographic_classes(language)
    model = {"\ufffd": REPLACED}
    for mass, weights in classes:
        for character, weight in weights.items():
            model.setdefault(character, math.log(mass * weight))
    return model


def _ideographic_classes(language: str) -> list[tuple[float, dict[str, float]]]:
    """Return classes of characters, each as its share of the text and the weights within it."""
    marks, frequent = _even(_CJK_MARKS), _zipf(_FREQUENT[language])
    if language == "chinese":
        common, rest = _rows("gb2312", 0xB0, 0xD7), _rows("gb2312", 0xD8, 0xF7)
        return [(0.40, frequent), (0.44, _even(common)), (0.12, marks), (0.03, _even(rest))]
    if language == "taiwanese":
        common, rest = _rows("big5", 0xA4, 0xC6, 0x40), _rows("big5", 0xC9, 0xF9, 0x40)
        return [(0.40, frequent), (0.46, _even(common)), (0.12, marks), (0.01, _even(rest))]
    if language == "korean":
        common, rest = _rows("euc_kr", 0xB0, 0xC8), _rows("euc_kr", 0xCA, 0xFD)
        return [(0.50, frequent), (0.46, _even(common)), (0.02, marks), (0.01, _even(rest))]
    hiragana, katakana = _rows("euc_jp", 0xA4, 0xA4), _rows("euc_jp", 0xA5, 0xA5)
    common, rest = _rows("euc_jp", 0xB0, 0xCF), _rows("euc_jp", 0xD0, 0xF4)
    halfwidth = "".join(map(chr, range(0xFF61, 0xFFA0)))
    kanji = [(0.12, frequent), (0.20, _even(common)), (0.01, _even(rest))]
    kana = [(0.46, _even(hiragana)), (0.10, _even(katakana)), (0.001, _even(halfwidth))]
    return [(0.10, marks), *kana, *kanji]


def _zipf(letters: str) -> dict[str, float]:
    """Return weights that fall with the rank and add up to 1."""
    total = sum(1 / (rank + 3) for rank in range(len(letters)))
    return {letter: 1 / (rank + 3) / total for rank, letter in enumerate(letters)}


def _even(characters: str) -> dict[str, float]:
    """Return equal weights that add up to 1."""
    return {character: 1 / len(characters) for character in characters}


def _rows(codec: str, first: int, last: int, first_trail: int = 0xA1) -> str:
    """Return the characters of some rows of a double-byte character set."""
    pairs = (bytes((lead, trail)) for lead in range(first, last + 1) for trail in range(first_trail, 0xFF))
    return "".join(pair.decode(codec, errors="ignore") for pair in pairs)
