"""Hypothesis strategies for every message, made from the field types and their ranges."""

from typing import Any

import msgspec
from hypothesis import assume
from hypothesis import strategies as st
from msgspec import inspect as mi

from bireme.errors import ConfigError
from bireme.wire.messages import MESSAGES, JobConfig

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def values(info: mi.Type) -> st.SearchStrategy[Any]:
    """Return a strategy for the values that the decoder takes for ``info``."""
    return _STRATEGIES[type(info)](info)


def _integers(info):
    high = info.le if info.le is not None else info.lt - 1
    return st.integers(info.ge, high) | st.integers(info.ge, info.ge + 3)


def _floats(info):
    low = info.ge if info.ge is not None else info.gt
    return st.floats(
        low, info.le, exclude_min=info.gt is not None, allow_nan=False, allow_infinity=False
    )


_STRATEGIES = {
    mi.Metadata: lambda info: values(info.type),
    mi.BoolType: lambda _info: st.booleans(),
    mi.NoneType: lambda _info: st.none(),
    mi.IntType: _integers,
    mi.FloatType: _floats,
    mi.StrType: lambda info: st.text(max_size=min(12, info.max_length)),
    mi.EnumType: lambda info: st.sampled_from(list(info.cls)),
    mi.VarTupleType: lambda info: st.lists(values(info.item_type), max_size=4).map(tuple),
    mi.DictType: lambda _info: st.dictionaries(st.text(max_size=4), PLAIN, max_size=3),
    mi.UnionType: lambda info: st.one_of([values(each) for each in info.types]),
    mi.StructType: lambda info: structs(info.cls),
}


@st.composite
def structs(draw, cls: type[msgspec.Struct]):
    """Draw an instance of ``cls`` whose fields are all within their ranges."""
    info = mi.type_info(cls)
    assert isinstance(info, mi.StructType)
    fields = {field.name: draw(values(field.type)) for field in info.fields}
    if cls is JobConfig:
        fields["num_shards"] = fields["num_workers"]
    try:
        return cls(**fields)
    except ConfigError:
        assume(False)


MESSAGES_OF_ANY_KIND = st.one_of([structs(cls) for cls in MESSAGES.values()])
