from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import msgspec
import pytest

from inboxkit.codec import JSON, Codec
from inboxkit.errors import DeclarationError, DecodeError, EncodeError

pydantic = pytest.importorskip("pydantic", reason="pydantic is in the extra dev")


@dataclass
class Line:
    sku: str
    price: float


@dataclass
class Order:
    id: int
    lines: list[Line] = field(default_factory=list)
    note: str | None = None


class Struct(msgspec.Struct, tag="struct"):
    id: int


class Other(msgspec.Struct, tag="other"):
    name: str


class Typed(TypedDict):
    id: int
    name: str


class Pair(NamedTuple):
    a: int
    b: str


class Model(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    id: int
    when: datetime | None = None


@dataclass
class Holder:
    model: Model
    more: list[Model]


class Colour(enum.StrEnum):
    RED = "red"


Url = NewType("Url", str)
NOW = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

TRIPS: list[tuple[Any, Any]] = [
    (Order(1, [Line("a", 2.5)], "é🚀\0"), Order),
    (Struct(3), Struct),
    ({"id": 1, "name": "n"}, Typed),
    (Pair(1, "b"), Pair),
    (Model(id=2, when=NOW), Model),
    (Holder(Model(id=1), [Model(id=2)]), Holder),
    (b"\x00\xff raw", bytes),
    (b"", bytes),
    ("text, as it is", str),
    ("", str),
    ("null", str),
    ("x", Url),
    (None, int | None),
    (None, type(None)),
    ({}, dict),
    ([], list[int]),
    ({"a": [1, None, {"b": True}]}, Any),
    ({1: "a"}, dict[int, str]),
    ((1, 2), tuple[int, int]),
    ({1, 2}, set[int]),
    (2**53 + 1, int),
    (10**400, int),
    ({"n": -(10**30)}, dict[str, int]),
    (0.1, float),
    (Decimal("0.10"), Decimal),
    (NOW, datetime),
    (NOW.replace(tzinfo=None), datetime),
    (date(2030, 1, 2), date),
    (timedelta(days=1, microseconds=3), timedelta),
    (UUID(int=5), UUID),
    (Colour.RED, Colour),
    (Other("o"), Other | Struct | None),
    (Struct(1), Other | Struct | None),
    ([b"bytes inside"], list[bytes]),
    ({"note": None}, dict[str, str | None]),
]


@pytest.mark.parametrize(("message", "kind"), TRIPS, ids=repr)
def test_messages_come_back_equal(message: Any, kind: Any) -> None:
    JSON.check(kind)
    again = JSON.decode(JSON.encode(message), kind)
    assert again == message
    assert type(again) is type(message)


def test_it_is_a_codec() -> None:
    codec: Codec = JSON
    assert repr(codec) == "JSON"


def test_none_and_nothing_are_two_things() -> None:
    assert JSON.encode(None) == b"null"
    assert JSON.encode(b"") == JSON.encode("") == b""
    with pytest.raises(DecodeError, match="the payload is empty"):
        JSON.decode(b"", Order)


def test_text_is_stored_as_it_is() -> None:
    assert JSON.encode('say "hi"') == b'say "hi"'
    assert JSON.encode(bytearray(b"x")) == b"x"
    assert JSON.decode("é".encode(), Annotated[str, msgspec.Meta(max_length=3)]) == "é"
    with pytest.raises(DecodeError, match=r"Expected `str` of length <= 1 at \$"):
        JSON.decode(b"long", Annotated[str, msgspec.Meta(max_length=1)])


def test_unknown_fields_are_ignored() -> None:
    assert JSON.decode(b'{"id":1,"new":2}', Order) == Order(1)


NAN = float("nan")
SURROGATE = "a\ud800"


@pytest.mark.parametrize(
    ("message", "where", "what"),
    [
        (Order(1, [Line("a", 1), Line("b", NAN)]), "$.lines[1].price", "NaN or infinite"),
        (float("inf"), "$", "NaN or infinite"),
        ({"a": {"b": (1, -float("inf"))}}, "$.a.b[1]", "NaN or infinite"),
        ({NAN: 1}, "$.(key)", "NaN or infinite"),
        (Struct(NAN), "$.id", "NaN or infinite"),  # type: ignore[arg-type]
        ({"not a name": NAN}, "$[…]", "NaN or infinite"),
        (SURROGATE, "$", "lone surrogate (character 1)"),
        (Order(1, note=SURROGATE), "$.note", "lone surrogate"),
        ({SURROGATE: 1}, "$.(key)", "lone surrogate"),
        ([{"x": [SURROGATE]}], "$[0].x[0]", "lone surrogate"),
        (Holder(Model(id=1), [Model.model_construct(id=NAN)]), "$.more[0].id", "NaN or infinite"),
        (object(), "$", "a value of type object"),
        (Order(1, [object()]), "$.lines[0]", "a value of type object"),  # type: ignore[list-item]
        ({"f": lambda: 0}, "$.f", "a value of type function"),
        ({"c": 1j}, "$.c", "a value of type complex"),
    ],
    ids=range(15),
)
def test_what_json_cannot_hold_is_refused_by_place(message: Any, where: str, what: str) -> None:
    with pytest.raises(EncodeError) as caught:
        JSON.encode(message)
    assert caught.value.where == where
    assert what in str(caught.value)
    assert str(caught.value).endswith(f" at {where}")


def test_words_that_look_like_nan_are_fine() -> None:
    message = {"null": "nan", "infinity": ["inf", None], "nan": 1.5}
    assert JSON.decode(JSON.encode(message), Any) == message


def test_cycles_are_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(EncodeError, match="a cycle"):
        JSON.encode(cycle)


class Bad:
    def __init__(self) -> None:
        self.x = 1


@dataclass
class Picky:
    secret: str

    def __post_init__(self) -> None:
        if self.secret == "s3cret":
            raise ValueError(f"not {self.secret}")


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    kind: Literal["a", "b"] = "a"
    colour: Colour = Colour.RED
    id: UUID | None = None


@pytest.mark.parametrize(
    ("payload", "kind", "where", "what"),
    [
        (b'{"id":"s3cret"}', Order, "$.id", "Expected `int`, got `str`"),
        (
            b'{"id":1,"lines":[{"sku":"s3cret"}]}',
            Order,
            "$.lines[0]",
            "missing required field `price`",
        ),
        (b'{"id":1,"lines":{"s3cret":1}}', Order, "$.lines", "Expected `array`, got `object`"),
        (b"{s3cret", Order, "$", "malformed"),
        (b'{"id":1', Order, "$", "truncated"),
        (b"\xffs3cret", str, "$", "invalid UTF-8 at byte 0"),
        (b'{"id":1,"name":"\xffs3cret"}', Typed, "$", "UTF-8"),
        (b'{"secret":"s3cret"}', Picky, "$", "a value that it does not take"),
        (b'{"kind":"s3cret"}', Strict, "$.kind", "a value that it does not take"),
        (b'{"colour":"s3cret"}', Strict, "$.colour", "a value that it does not take"),
        (b'{"s3cret":1}', Strict, "$", "a value that it does not take"),
        (b'{"id":"s3cret"}', Strict, "$.id", "UUID"),
        (b'{"id":"s3cret"}', Model, "$.id", "int_parsing (1 in all)"),
        (
            b'{"model":{"id":"s3cret"},"more":[]}',
            Holder,
            "$.model",
            "a value that it does not take",
        ),
        (b"[" * 100_000, list, "$", "nested too deeply"),
        (b"1e400", float, "$", "out of range"),
        (b'{"type":"s3cret"}', Struct, "$.type", "a value that it does not take"),
        (b'"\\ud800"', list, "$", ""),
    ],
    ids=range(18),
)
def test_what_cannot_be_read_is_named_by_place_and_never_shown(
    payload: bytes, kind: Any, where: str, what: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        JSON.decode(payload, kind)
    error = caught.value
    assert error.where == where
    assert what in str(error)
    assert "s3cret" not in str(error)
    # A logged traceback shows the chain too.
    assert error.__cause__ is None
    assert error.__context__ is None


@pytest.mark.parametrize("kind", [str | None, bytes | int, str | bytes, Order | str])
def test_unions_with_raw_members_are_refused(kind: Any) -> None:
    with pytest.raises(DeclarationError, match="stored as it is"):
        JSON.check(kind)


@pytest.mark.parametrize("kind", [Bad, Order | Line, int | dict[str, int] | Typed])
def test_types_that_cannot_be_read_are_refused(kind: Any) -> None:
    with pytest.raises(DeclarationError, match="cannot be read from JSON"):
        JSON.check(kind)
