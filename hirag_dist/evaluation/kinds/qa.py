"""`eval qa`: short answers to questions with gold ones, by mode, scored by EM and F1; or answers recorded elsewhere.

An answer is asked for with a prompt of its own (`short-answer`), since EM and F1 measure a phrase, not the cited
sentences that people read. What the answer depends on is in its unit; gold answers and definitions are not: another
gold answer or definition scores the same replies again without a call.

A question that can be answered is scored by EM and F1, one that cannot by whether the answer refuses; a question
without a gold answer is counted and not scored. The two are never averaged together: a system that refuses everything
is perfect on the one kind and nothing on the other.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

from hirag_dist.core.prompts.reply_parsing import parse_text
from hirag_dist.core.prompts.requests import short_answer_request
from hirag_dist.core.retrieval.context import RECORD_LETTERS, UNKNOWN_ANSWER
from hirag_dist.core.text.normalize import UNSPACED, count_noun, one_line
from hirag_dist.core.text.tokens import encoding
from hirag_dist.evaluation.answer_collections import AnswerCollections, add_recorded
from hirag_dist.evaluation.board import NOTE, Board, comparison, difference_table
from hirag_dist.evaluation.questions import Question, Questions
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, Trial, Value, json_line, trial_units
from hirag_dist.html import Cell, Section, Table, Text
from hirag_dist.llm.usage import UsageMeter, total_cost
from hirag_dist.retrieval.map_reduce import MAP_REDUCE, map_parts
from hirag_dist.retrieval.search import MODES
from hirag_dist.storage.store import Store
from hirag_dist.types import Query, Rejected

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = {ord(mark): None for mark in string.punctuation}
_NO_WORD_NO_SPACE = re.compile(r"[^\w\s]")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_SENTENCE_END = re.compile(r"[.!?\n。！？]")

REFUSALS = (
    "I do not know",
    "I don't know",
    "Insufficient information",
    "Not enough information",
    "No answer",
    "NoAnswer",
    "Unanswerable",
    "Unknown",
)


@dataclass(frozen=True, slots=True)
class AnswerScore:
    """One answer against its gold answers; every figure is the best over these, each by itself."""

    exact: float
    f1: float
    precision: float
    recall: float


@dataclass(frozen=True, slots=True)
class ScoreDefinition:
    """Definition of equal answers and of shared tokens, of the evaluations to compare with.

    Their scripts share one normalisation, that of SQuAD, and differ in three rules:

    | | several gold answers | yes, no, noanswer | nothing left of both answers |
    |---|---|---|---|
    | HotpotQA, `hotpot_evaluate_v1.py` | there is one | a whole: F1 is 0 or 1 | exact match 1, F1 0 |
    | 2WikiMultiHopQA, `2wikimultihop_evaluate_v1.1.py` | the best of each figure | as HotpotQA | as HotpotQA |
    | MuSiQue, `metrics/answer.py`, after SQuAD 2 | the best of each figure | ordinary words | exact match 1, F1 1 |

    The best over a single gold answer is its score, so `hotpotqa` is the definition of both. The normalisation is made
    for English: quotes like “ ” and « », full stops like 。 and articles of other languages stay, and a text without
    spaces is one token. `unicode` is a definition of our own for such texts; its figures are not comparable.

    Attributes:
        form: text → what must be equal for an exact match.
        tokens: text → what F1 counts, as a multiset.
        whole: forms of which F1 is 0 unless both answers are equal.
        f1_of_nothing: F1, precision and recall where neither answer has a token.
    """

    form: Callable[[str], str]
    tokens: Callable[[str], Sequence[Hashable]]
    whole: frozenset[str] = frozenset()
    f1_of_nothing: float = 0.0


def normalised(text: str) -> str:
    """Return a text in the form that HotpotQA, 2WikiMultiHopQA and MuSiQue compare.

    >>> normalised("The  Beatles' “Let It Be”!")
    'beatles “let it be”'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def unicode_normalised(text: str) -> str:
    """Return a text in composed form and without case, punctuation and symbols of any script; articles stay.

    >>> unicode_normalised("«Straße», 東京。")
    'strasse 東京'
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join("".join(mark for mark in folded if unicodedata.category(mark)[0] not in "PS").split())


def _words(text: str) -> list[str]:
    return normalised(text).split()


_HOTPOTQA = ScoreDefinition(normalised, _words, frozenset({"yes", "no", "noanswer"}))

DEFINITIONS: Mapping[str, ScoreDefinition] = {
    "hotpotqa": _HOTPOTQA,
    "musique": ScoreDefinition(normalised, _words, f1_of_nothing=1.0),
    # the HiRAG reference's evaluation (Table 2 of its paper): articles stay, and F1 is over cl100k tokens as written
    "hirag": ScoreDefinition(
        form=lambda text: " ".join(_NO_WORD_NO_SPACE.sub("", text.strip().lower()).split()),
        tokens=lambda text: encoding("cl100k_base").encode_ordinary(text),
    ),
    "unicode": ScoreDefinition(
        form=unicode_normalised,
        tokens=lambda text: _UNSPACED.sub(r" \g<0> ", unicode_normalised(text)).split(),
        f1_of_nothing=1.0,
    ),
}


def score_answer(answer: str, gold: Sequence[str], definition: ScoreDefinition = _HOTPOTQA) -> AnswerScore:
    """Return how near an answer comes to the nearest of its gold answers.

    Args:
        gold: answers that are each right; a question's answer and its aliases.

    Raises:
        ValueError: no gold answer.

    >>> score_answer("the year 1755", ["1755"])
    AnswerScore(exact=0.0, f1=0.6666666666666666, precision=0.5, recall=1.0)
    """
    if not gold:
        raise ValueError("an answer needs at least one gold answer to be scored")
    scores = [_against(answer, one, definition) for one in gold]
    return AnswerScore(
        max(score.exact for score in scores),
        max(score.f1 for score in scores),
        max(score.precision for score in scores),
        max(score.recall for score in scores),
    )


def is_refusal(answer: str, refusals: Sequence[str] = REFUSALS) -> bool:
    """Check for a refusal: the whole answer, or its first sentence, is one of `refusals`.

    An answer that says so in words of its own is not recognised; add the words that a model uses.

    >>> is_refusal("I do not know. The context names no year."), is_refusal("Unknown Pleasures"), is_refusal("")
    (True, False, True)
    """
    forms = {unicode_normalised(refusal) for refusal in refusals}
    first = _SENTENCE_END.split(answer.strip(), maxsplit=1)[0]
    return not unicode_normalised(answer) or bool({unicode_normalised(answer), unicode_normalised(first)} & forms)


def _against(answer: str, gold: str, definition: ScoreDefinition) -> AnswerScore:
    form, wanted = definition.form(answer), definition.form(gold)
    exact = float(form == wanted)
    if not exact and (form in definition.whole or wanted in definition.whole):
        return AnswerScore(0.0, 0.0, 0.0, 0.0)
    given, right = definition.tokens(answer), definition.tokens(gold)
    if not given and not right:
        nothing = definition.f1_of_nothing
        return AnswerScore(exact, nothing, nothing, nothing)
    shared = sum((Counter(given) & Counter(right)).values())
    if not shared:
        return AnswerScore(exact, 0.0, 0.0, 0.0)
    precision, recall = shared / len(given), shared / len(right)
    return AnswerScore(exact, 2 * precision * recall / (precision + recall), precision, recall)


_REFERENCE = re.compile(rf" ?\[([{RECORD_LETTERS}]\d+)\]")
_FILE = "scores.jsonl"
SCORES = ("exact", "f1", "precision", "recall")
_REFUSED, _WRONGLY_REFUSED = "refused", "refused though answerable"
_COSTS = {
    "calls": "calls",
    "input_tokens": "tokens in",
    "output_tokens": "tokens out",
    "usd": "US dollars",
    "context_tokens": "context tokens",
    "retrieval_ms": "retrieval ms",
    "seconds": "seconds",
}
Sort = Literal["answerable", "unanswerable", "without gold"]


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """Rules of scoring answers."""

    definition: str = "hotpotqa"
    refusals: tuple[str, ...] = REFUSALS

    def sort_of(self, question: Question) -> Sort:
        """Return how answers to a question are scored."""
        if question.answerable is False:
            return "unanswerable"
        if not question.answers:
            return "without gold"
        return "unanswerable" if all(is_refusal(each, self.refusals) for each in question.answers) else "answerable"


async def evaluate_answers(
    session: Session, questions: Questions, modes: Sequence[str], rules: ScoringRules
) -> Findings:
    """Ask every question in every mode and variant, score the answers, and leave them in OUT/scores.jsonl.

    Raises:
        ConfigError: no index, or an unknown mode.
    """
    systems = session.systems(modes, (*MODES, *MAP_REDUCE))
    session.refuse_records("questions", questions.unreadable)
    short = session.asks("answer", "short-answer")
    by_parts = session.asks("answer", "short-answer", "map-answer")
    snapshot_id = session.require_snapshot().manifest.snapshot_id
    context = {"snapshot": snapshot_id, "tokenizer": session.config.tokenizer}

    def decides(trial: Trial) -> Value:
        asks = by_parts if trial.system.mode in MAP_REDUCE else short
        return {"question": trial.question.text, **context, **trial.system.decides, **asks}

    units = trial_units(questions.items, systems, decides)
    outcomes = await session.map("answers", units, partial(_answer, session))
    scored = ScoredAnswers(questions.items, [system.name for system in systems], rules)
    with Store(session.order.out).create(_FILE) as file:
        async for outcome in outcomes:
            asked, value = outcome.item, outcome.value
            cost = _cost(value, outcome.usage, outcome.seconds)
            file.write(json_line(scored.add(asked.place, asked.system.name, value["answer"], cost)))
    return scored.findings(questions.counts)


async def score_recorded(session: Session, questions: Questions, path: str, rules: ScoringRules) -> Findings:
    """Score answers of a file; nothing is asked.

    A question that a system has no answer to counts as wrong, as in the official scripts, and is counted. An answer
    to a question that is not in the question file, and a second one to the same question in other words, is a dead
    letter.

    Args:
        path: of records with an answer, the id of its question, and the system that gave it where there are several.

    Raises:
        InputError: the file holds no answer to any of the questions.
    """
    session.refuse_records("questions", questions.unreadable)
    sets = AnswerCollections()
    session.refuse_records("answers", add_recorded(sets, [(None, path)], questions.items))
    scored = ScoredAnswers(questions.items, list(sets.answers), rules)
    with Store(session.order.out).create(_FILE) as file:
        for system, by_question in sets.answers.items():
            for place, question in enumerate(questions.items):
                line = scored.add(place, system, by_question.get(question.id))
                if question.id in by_question:
                    file.write(json_line(line))
    return scored.findings(questions.counts)


async def _answer(session: Session, asked: Trial) -> Value | Rejected:
    question, mode = asked.question, asked.system.mode
    engine, query = session.engine(asked.system), Query(question.text, mode=mode)
    if mode in MAP_REDUCE:  # its parts are asked about through the pool
        material = await engine.material(query)
        found = await map_parts(material, session.pool, session.prompts, session.count_tokens)
    else:
        found = await engine.retrieve(query, for_model=True)
    if found.map_work is not None and found.map_work.failed:
        work = found.map_work
        return Rejected(question.id, f"no usable reply for {work.failed:,} of {count_noun(work.parts, 'part')}", 1)
    value: Value = {
        "answer": UNKNOWN_ANSWER,
        "reply": None,  # no model is asked where nothing was found
        "context_tokens": found.context_tokens,
        "retrieval_ms": found.timings_ms["total"],
    }
    if not found.context_refs:
        return value
    request = short_answer_request(question.text, found.context, session.prompts)
    reply = await session.pool.ask(request, parse_text)
    if isinstance(reply, Rejected):
        return reply
    return value | {"answer": bare_answer(reply, found.context_refs), "reply": reply}


def bare_answer(reply: str, refs: Iterable[str]) -> str:
    r"""Return a reply on one line without the references that a model puts behind it although it should not.

    >>> bare_answer("Dundee [S1]\n", {"S1": "chunk"})
    'Dundee'
    """
    known = frozenset(refs)
    return one_line(_REFERENCE.sub(lambda mark: "" if mark[1] in known else mark[0], reply))


def _cost(value: Value, usage: UsageMeter, seconds: float) -> dict[str, float | None]:
    uses = usage.uses.values()
    return {
        **{name: sum(getattr(use, name) for use in uses) for name in ("calls", "input_tokens", "output_tokens")},
        "usd": total_cost(use.cost_usd for use in uses),
        "context_tokens": value["context_tokens"],
        "retrieval_ms": value["retrieval_ms"],
        "seconds": seconds,
    }


class ScoredAnswers:
    """Scores by question and system; none of the texts is kept."""

    def __init__(self, questions: Sequence[Question], systems: Sequence[str], rules: ScoringRules) -> None:
        self.questions, self.rules = questions, rules
        self.sorts = [rules.sort_of(question) for question in questions]
        measures = [*SCORES, _REFUSED, _WRONGLY_REFUSED, *_COSTS]
        self.board = Board([question.type for question in questions], systems, measures)
        self.missing: Counter[str] = Counter()

    def add(
        self, place: int, system: str, answer: str | None, cost: Mapping[str, float | None] | None = None
    ) -> dict[str, Any]:
        """Score the answer to the question at a place, None where it is missing; return it as a line of JSON.

        A missing answer to a question that can be answered scores zero, as in the official scripts.
        """
        question, sort = self.questions[place], self.sorts[place]
        refused = answer is not None and is_refusal(answer, self.rules.refusals)
        values: dict[str, float | None] = {_REFUSED if sort == "unanswerable" else _WRONGLY_REFUSED: float(refused)}
        if sort == "without gold":
            values = {}
        elif sort == "answerable" and answer is not None:
            values |= asdict(score_answer(answer, question.answers, DEFINITIONS[self.rules.definition]))
        elif sort == "answerable":
            values |= dict.fromkeys(SCORES, 0.0)
        self.missing[system] += answer is None
        self.board.add(place, system, values | dict(cost or {}))
        return {
            "question_id": question.id,
            "system": system,
            "question": question.text,
            "answer": answer,
            "gold_answers": list(question.answers),
            "type": question.type,
            "sort": sort,
            "refused": refused,
            "scores": {name: values[name] for name in SCORES if name in values},
            "cost": cost,
        }

    def findings(self, counts: Mapping[str, int]) -> Findings:
        """Return the report."""
        board = self.board
        sorts = {sort: self.sorts.count(sort) for sort in ("answerable", "unanswerable", "without gold")}
        results = board.results(SCORES) | {
            "definition": self.rules.definition,
            "questions": sorts,
            "answers": {
                system: {
                    "scored": len(board.known(system, "f1")),
                    "missing": self.missing[system],
                    "unanswerable": len(board.known(system, _REFUSED)),
                }
                for system in board.systems
            },
            "refusals": board.results([_REFUSED, _WRONGLY_REFUSED], ())["systems"],
            "costs": board.averages(list(_COSTS)),
        }
        scores = self._table(results)
        refusals = self._refusals(results) if sorts["unanswerable"] else []
        sections: list[Section] = [
            *comparison(f"Exact match and F1 ({self.rules.definition})", results, drawn=("exact", "f1")),
            scores,
            *refusals,
            *self._costs(results),
            Text(
                "How answers are scored",
                [_EXPLAINED[self.rules.definition], _ALL.format(", ".join(self.rules.refusals))],
            ),
        ]
        headline = [scores, *refusals, *difference_table(results, measures=("exact", "f1"))]
        return Findings(results, sections, headline, dict(counts))

    def _table(self, results: Mapping[str, Any]) -> Table:
        rows: list[list[Cell]] = [
            [system, counts["scored"], *(results["systems"][system][name] for name in SCORES), counts["missing"]]
            for system, counts in results["answers"].items()
        ]
        title = f"Answers by the definition of {self.rules.definition}"
        return Table(title, ["system", "questions", "EM", "F1", "precision", "recall", "no answer"], rows)

    def _refusals(self, results: Mapping[str, Any]) -> list[Table]:
        rows: list[list[Cell]] = [
            [system, results["answers"][system]["unanswerable"], found[_REFUSED], found[_WRONGLY_REFUSED]]
            for system, found in results["refusals"].items()
        ]
        columns = ["system", "questions without an answer", _REFUSED, _WRONGLY_REFUSED]
        return [Table("Refusals", columns, rows, "Questions without an answer are in no other figure.")]

    def _costs(self, results: Mapping[str, Any]) -> list[Table]:
        rows: list[list[Cell]] = [
            [system, *(costs[name] for name in _COSTS)]
            for system, costs in results["costs"].items()
            if costs["calls"] is not None
        ]
        note = "Of replies that an earlier run paid too. Times are those of several questions at a time."
        columns = ["system", *_COSTS.values()]
        return [Table("An answer costs, on average", columns, rows, note, ",.4g")] if rows else []


_OFFICIAL = (
    "lower case, without the punctuation of ASCII and the words a, an and the; F1 counts the words that both have as "
    "often as both have them"
)
_EXPLAINED = {
    "hotpotqa": f"hotpotqa: {_OFFICIAL}; yes, no and noanswer are right or wrong as a whole.",
    "musique": f"musique: {_OFFICIAL}; yes and no are words like others.",
    "hirag": (
        "hirag: exact match in lower case without punctuation, articles kept; F1 over cl100k_base tokens of the texts "
        "as they are written, as in the evaluation of the HiRAG reference."
    ),
    "unicode": (
        "unicode: without case, punctuation and symbols of any script, articles kept; letters of scripts without "
        "spaces count one by one. A definition of this program, not to be compared with published figures."
    ),
}
_ALL = (
    "With several gold answers each figure is the best over them. A refusal is an answer whose whole text or first "
    f"sentence is one of: {{}}. {NOTE}"
)
