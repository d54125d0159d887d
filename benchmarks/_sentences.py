# SPDX-License-Identifier: BSD-3-Clause
"""Dates, measures and amounts of money as they are written in ten countries, and their meaning.

babel writes a sentence with the Unicode consortium's data of a country, and num2words often puts
words in the place of its digits: "drei April neunzehnhundertdreiundsiebzig" is 1973-04-03, "doce
kilómetros" 12 kilometer, "1 234,50 $" 1234.50 CAD. Nothing tells the country. So 4/3/25 is a day in
April or in March, of 1925 or of 2025, and $12.50 is money of one of three countries.

Sources are pieces of words, by sentencepiece. Targets are characters, but for a unit or currency,
which is one token.
"""

from __future__ import annotations

import datetime
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from functools import cache
from itertools import islice, product
from typing import NamedTuple

import numpy as np
import sentencepiece
from babel.dates import format_date
from babel.numbers import format_currency
from babel.units import format_unit
from num2words import num2words

# Countries, and their money.
LOCALES = {
    **{"en_US": "USD", "en_GB": "GBP", "en_AU": "AUD", "fr_FR": "EUR", "fr_CA": "CAD"},
    **{"es_ES": "EUR", "es_MX": "MXN", "de_DE": "EUR", "de_CH": "CHF", "pl_PL": "PLN"},
}
# Languages that no one has learnt: some like those above, others not, and others to learn from
# without labels.
NEAR = {"it_IT": "EUR", "nl_NL": "EUR"}
FAR = {"fi_FI": "EUR", "id_ID": "IDR"}
MORE = {"pt_PT": "EUR", "da_DK": "DKK", "ro_RO": "RON", "cs_CZ": "CZK", "tr_TR": "TRY"}
# Words that no known sentence has, alone or in a longer one.
UNKNOWN = (
    *("seventy", "quarante", "ochenta", "sechzig", "trzydzieści"),
    *("october", "juillet", "febrero", "märz", "czerwca"),
    *("mile", "semaine", "dólares canadienses", "pfund", "koron"),
)
UNITS = (
    *("acre", "hectare", "square-meter", "gigabyte", "day", "hour", "minute", "month", "week"),
    *("year", "volt", "calorie", "kilowatt-hour", "megahertz", "pixel", "foot", "inch", "meter"),
    *("kilometer", "mile", "millimeter", "gram", "kilogram", "ounce", "pound", "tonne", "watt"),
    *("horsepower", "hectopascal", "knot", "mile-per-hour", "kilometer-per-hour", "celsius"),
    *("fahrenheit", "barrel", "cubic-meter", "gallon", "liter", "pint", "tablespoon"),
)
CURRENCIES = (
    *("AED", "ARS", "AUD", "BRL", "CAD", "CHF", "CLP", "CNY", "COP", "CZK", "DKK", "EGP", "EUR"),
    *("GBP", "HKD", "HUF", "IDR", "ILS", "INR", "JPY", "KES", "KRW", "MAD", "MXN", "NGN", "NOK"),
    *("NZD", "PHP", "PKR", "PLN", "RON", "RUB", "SAR", "SEK", "SGD", "THB", "TRY", "TWD", "UAH"),
    *("USD", "ZAR"),
)
TARGETS = ["pad", "begin", "end", *"0123456789-.", *UNITS, *CURRENCIES]
N_PIECES = 1000
LONGEST_SOURCE, LONGEST_TARGET = 24, 11  # of known sentences
FIRST_DAY, N_DAYS = datetime.date(1910, 1, 1), 43_830  # 120 years
LARGEST = 1_000  # of measures and amounts
WORD = re.compile(r"[^\W\d]+")

DOMAINS = {"ambiguous": LOCALES, "word": LOCALES, "near": NEAR, "far": FAR}


class Sentence(NamedTuple):
    """A text, what it means in symbols of `TARGETS`, and whether it could mean something else."""

    text: str
    meaning: list[str]
    is_ambiguous: bool = False


def make_sentences(n_samples: int, domain: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of sentences (n, S), and of what they mean (n, T), padded with 0.

    "known" sentences are to learn from, and "ambiguous" ones are those of them that have several
    meanings. Others are sentences with an unknown "word", and in unknown languages, "near" to known
    ones or "far" from them, or in "more" languages. Those in unknown languages have words.
    """
    found = list(islice(sentences(domain, seed), n_samples))
    codes = {symbol: code for code, symbol in enumerate(TARGETS)}
    return (
        padded(pieces().encode([sentence.text for sentence in found]), LONGEST_SOURCE),
        padded([[codes[name] for name in (*s.meaning, "end")] for s in found], LONGEST_TARGET),
    )


def padded(rows: list[list[int]], longest: int) -> np.ndarray:
    """Rows of one length, cut or filled up with 0."""
    found = np.zeros((len(rows), longest), dtype=np.int64)
    for row, tokens in zip(found, rows, strict=True):
        row[: len(tokens)] = tokens[:longest]
    return found


def words(X: np.ndarray) -> list[list[str]]:
    """Words of each sentence, given its pieces."""
    return [WORD.findall(text) for text in pieces().decode([row[row > 0].tolist() for row in X])]


@cache
def pieces() -> sentencepiece.SentencePieceProcessor:
    """What splits texts into pieces of words, learnt from known sentences; it lowers letters."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(s.text for s in islice(sentences("known", 10**6), 4_000)),
        model_writer=model,
        model_type="bpe",
        vocab_size=N_PIECES,
        normalization_rule_name="nmt_nfkc_cf",
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        num_threads=1,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def sentences(domain: str, seed: int) -> Iterator[Sentence]:
    """Sentences of a domain, without end."""
    rng = np.random.default_rng(seed)
    locales = {"known": LOCALES, "more": MORE, **DOMAINS}[domain]
    kinds, chances = zip(*KINDS.items(), strict=True)
    while True:
        locale = str(rng.choice(list(locales)))
        sentence = kinds[rng.choice(len(kinds), p=chances)](rng, locale, locales[locale])
        has_unknown = any(word in sentence.text.lower() for word in UNKNOWN)
        if domain == "word":
            is_wanted = has_unknown
        elif locales is LOCALES:
            is_wanted = not has_unknown and (domain == "known" or sentence.is_ambiguous)
        else:
            is_wanted = any(len(word) > 3 for word in WORD.findall(sentence.text))
        if is_wanted:
            yield sentence


def date(rng: np.random.Generator, locale: str, money: str) -> Sentence:
    """A day, in one of four styles."""
    day = FIRST_DAY + datetime.timedelta(int(rng.integers(N_DAYS)))
    style = str(rng.choice(["short", "medium", "long", "full"]))
    text = format_date(day, style, locale=locale)
    if style == "long" and rng.random() < 0.5:
        text = in_words(text, locale, to="year")
    is_ambiguous = any(
        format_date(other, "short", locale=known) == text
        for other in other_days(day)
        for known in LOCALES
    )
    return Sentence(text, list(day.isoformat()), is_ambiguous)


def other_days(day: datetime.date) -> Iterator[datetime.date]:
    """Days with the same numbers: month and day exchanged, of another century."""
    for century, (month, of_month) in product(
        (-100, 0, 100), ((day.month, day.day), (day.day, day.month))
    ):
        with suppress(ValueError):  # not all exist
            other = datetime.date(day.year + century, month, of_month)
            if other != day and 0 <= (other - FIRST_DAY).days < N_DAYS:
                yield other


def measure(rng: np.random.Generator, locale: str, money: str) -> Sentence:
    """A number of units."""
    number, unit = whole_number(rng), str(rng.choice(UNITS))
    text = format_unit(number, unit, "long", format="0", locale=locale)
    return Sentence(maybe_in_words(rng, text, locale), [*str(number), unit])


def amount(rng: np.random.Generator, locale: str, money: str) -> Sentence:
    """A whole amount of any currency, which is named."""
    number, currency = whole_number(rng), str(rng.choice(CURRENCIES))
    text = format_currency(
        number, currency, "0", locale=locale, format_type="name", currency_digits=False
    )
    return Sentence(maybe_in_words(rng, text, locale), [*str(number), currency])


def price(rng: np.random.Generator, locale: str, money: str) -> Sentence:
    """An amount of the country's own money, with its sign."""
    number = f"{whole_number(rng)}.{rng.integers(100):02}"
    texts = {
        (format_currency(Decimal(number), of, locale=known), of)
        for known, of in {**LOCALES, locale: money}.items()
    }
    text = format_currency(Decimal(number), money, locale=locale)
    is_ambiguous = len({of for written, of in texts if written == text}) > 1
    return Sentence(text, [*number, money], is_ambiguous)


KINDS = {date: 0.4, measure: 0.25, amount: 0.25, price: 0.1}


def whole_number(rng: np.random.Generator) -> int:
    """A number whose logarithm is uniform."""
    return int(LARGEST ** rng.random())


def maybe_in_words(rng: np.random.Generator, text: str, locale: str) -> str:
    """The text, as often as not without digits."""
    return in_words(text, locale) if rng.random() < 0.5 else text


def in_words(text: str, locale: str, to: str = "cardinal") -> str:
    """The text with words for its numbers."""
    language = locale[:2]
    return re.sub(r"(\d+)\.?", lambda found: num2words(int(found[1]), lang=language, to=to), text)
