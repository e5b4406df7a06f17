"""Word lists of the name rules.

Most words are English; common words of other scripts are included. A missing word costs recall only: its pair is left
to vectors or to a model.
"""

from __future__ import annotations


def words_in(text: str) -> frozenset[str]:
    """Return the words of a text, each once."""
    return frozenset(text.split())


def _numbered(text: str) -> dict[str, str]:
    """Return each word of a text and its place, from 0, in digits."""
    return {word: str(number) for number, word in enumerate(text.split())}


PARTICLES = words_in("de da di du la le van von der den ter al el bin ibn mac st")  # of surnames
ARTICLES = frozenset({"the", "a", "an"})
SMALL_WORDS = words_in("of the and for in on at to a an de la le les du des del di da der die das und et y")
TITLES = words_in(  # that say nothing of who is meant: the name without them is the same person's
    "mr mister dr doctor prof professor rev reverend sir hon monsieur herr señor signor 先生 さん 様 氏"
)
FEMALE_TITLES = words_in(
    "mrs ms miss madam madame mme mlle lady dame queen princess empress duchess duchesse countess comtesse baroness "
    "frau señora signora sister mother aunt"
)
MALE_TITLES = words_in(
    "mr mister sir monsieur herr señor signor lord king prince emperor duke duc count comte baron earl master brother "
    "father uncle"
)
RANKS = words_in(  # before a name and no given name; "Lady Macbeth" is not Macbeth, so they are not dropped
    "lord king prince emperor pope saint st president senator governor minister judge justice general colonel major "
    "captain lieutenant sergeant agent detective inspector officer commander admiral master old young little uncle "
    "aunt father mother brother sister cousin grandfather grandmother count countess duke duchess earl baron "
    "queen princess lady empress baroness duc duchesse comte comtesse"
)
LEGAL_FORMS = {  # of companies, as they are written → one spelling
    "inc": "inc",
    "incorporated": "inc",
    "corp": "corp",
    "corporation": "corp",
    "co": "co",
    "company": "co",
    "ltd": "ltd",
    "limited": "ltd",
    "llc": "llc",
    "llp": "llp",
    "plc": "plc",
    "gmbh": "gmbh",
    "ag": "ag",
    "sa": "sa",
    "sarl": "sarl",
    "spa": "spa",
    "bv": "bv",
    "nv": "nv",
    "ab": "ab",
    "asa": "asa",
    "oyj": "oyj",
    "kk": "kk",
    "pty": "pty",
    "ооо": "ооо",
    "оао": "оао",
    "ао": "ао",
    "пао": "пао",
}
UNSPACED_LEGAL_FORMS = ("株式会社", "有限公司", "股份公司", "集团", "公司")
NO_PLURALS = words_in(  # end in s and are no plural, or mean another thing without it
    "news series species means arms goods customs glasses thanks works lens gas bus mars christmas texas kansas"
)
NICKNAMES = {
    "bob": "robert",
    "bobby": "robert",
    "rob": "robert",
    "bill": "william",
    "billy": "william",
    "will": "william",
    "dick": "richard",
    "rick": "richard",
    "jim": "james",
    "jimmy": "james",
    "jack": "john",
    "johnny": "john",
    "joe": "joseph",
    "mike": "michael",
    "tom": "thomas",
    "ned": "edward",
    "ted": "edward",
    "teddy": "theodore",
    "harry": "henry",
    "hank": "henry",
    "chuck": "charles",
    "kate": "katherine",
    "kathy": "katherine",
    "liz": "elizabeth",
    "beth": "elizabeth",
    "betty": "elizabeth",
    "peggy": "margaret",
    "meg": "margaret",
    "sally": "sarah",
    "polly": "mary",
    "tony": "anthony",
    "steve": "stephen",
    "andy": "andrew",
    "larry": "lawrence",
    "gus": "augustus",
    "sasha": "alexander",
    "саша": "александр",
    "ваня": "иван",
}
NUMBER_WORDS = _numbered(
    "zero one two three four five six seven eight nine ten "
    "eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
)
ORDINALS = _numbered(
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth "
    "eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth"
)
ORDINAL_ENDINGS = ("st", "nd", "rd", "th")
NEGATIONS = words_in(  # or another office
    "vice deputy assistant ex not no non anti without never un counter contra не без анти 非 无 反 不"
)
NEGATING_PREFIXES = (
    "non",
    "anti",
    "un",
    "in",
    "im",
    "il",
    "ir",
    "dis",
    "a",
    "an",
    "counter",
    "mis",
    "de",
    "не",
    "анти",
)
FEMALE_ENDINGS = frozenset({"a", "e", "la", "le", "ne", "na", "ina", "ine", "ette", "elle"})  # Carl, Carla
OPPOSED_PREFIXES = (
    ("micro", "macro"),
    ("hyper", "hypo"),
    ("intra", "inter"),
    ("over", "under"),
    ("pre", "post"),
    ("endo", "exo"),
    ("homo", "hetero"),
    ("mono", "poly"),
    ("pro", "anti"),
    ("up", "down"),
    ("in", "out"),
    ("im", "ex"),
    ("sub", "super"),
)
CONTRASTS = tuple(  # two names that differ in words of one line are two things
    frozenset(line.split())
    for line in """
north south east west northeast northwest southeast southwest central
northern southern eastern western central
upper lower middle mid
top bottom
left right
inner outer
internal external
old new young
modern ancient
junior senior
jr sr
junior sr
jr senior
father mother son daughter brother sister husband wife uncle aunt nephew niece widow
grandfather grandmother grandson granddaughter
male female
man woman
men women
boy girl
boys girls
king queen prince princess
emperor empress
duke duchess
positive negative
major minor
high low
hot cold
warm cold
hard soft
big small
large small
great small
great lesser
long short
early late
fast slow
first last
past present future
past present yet
before after
summer winter spring autumn
summer winter spring fall
january february march april may june july august september october november december
monday tuesday wednesday thursday friday saturday sunday
white black red green blue yellow brown orange purple pink grey
white black red green blue yellow brown orange purple pink gray
gold silver bronze
golden silver bronze
input output
import export
imports exports
supply demand
buyer seller
buyers sellers
increase decrease
public private
active passive
direct indirect
primary secondary tertiary
single double triple
analog digital
wired wireless
acid base
egg larva pupa adult
eggs larvae pupae adults
queens drones workers
queen drone worker
democratic republican
house senate
catholic protestant orthodox
film book novel album song play
""".splitlines()
    if line
)
