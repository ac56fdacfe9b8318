"""The formatter: what it does, that it does it once, and that it changes no meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt_jobspec import JobspecError, format_source, parse_body

UGLY = """
job "x"   {
a=1
longer   =   [ 1,2 ] # why
   # own line
obj = {a=1
 bb=2}



  group "g" {
      t = "a${ b }c"   // tail
  list = [
  1,
    2 ]
  data = <<-EOT
     kept   as is
   EOT
 c=x?1:-2
  }
}
"""

PRETTY = """\
job "x" {
  a      = 1
  longer = [1, 2] # why
  # own line
  obj = { a = 1
    bb = 2 }

  group "g" {
    t = "a${ b }c" // tail
    list = [
      1,
      2]
    data = <<-EOT
     kept   as is
   EOT
    c    = x ? 1 : -2
  }
}
"""


def test_a_file_gets_its_canonical_layout() -> None:
    assert format_source(UGLY) == PRETTY


def test_formatting_twice_changes_nothing() -> None:
    assert format_source(PRETTY) == PRETTY


def test_a_file_that_cannot_be_parsed_is_refused() -> None:
    with pytest.raises(JobspecError):
        format_source("job {")


EXPRESSIONS = st.recursive(
    st.sampled_from(["1", "x", '"s"', "true", "a.b[0]", '"t${x}"', "f(1, [2]...)", "-3", "!y"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "&&", "==", "<="]), inner).map(lambda t: f"({t[0]}){t[1]}({t[2]})"),
        st.lists(inner, max_size=3).map(lambda items: "[" + " ,".join(items) + "]"),
        st.tuples(inner, inner).map(lambda t: f"{{a={t[0]},b : {t[1]}}}"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]})?{t[1]}:{t[2]}"),
        inner.map(lambda text: f"[for k,v in {text}:v if k]"),
    ),
    max_leaves=6,
)
BODIES = st.recursive(
    st.tuples(st.sampled_from("ab"), EXPRESSIONS).map(lambda t: f"{t[0]}  ={t[1]}\n"),
    lambda inner: st.one_of(
        inner.map(lambda text: f'block "l"{{\n{text}}}\n'), inner.map(lambda text: f"# note\n\n\n{text} /* end */\n")
    ),
    max_leaves=4,
)


@given(BODIES)
def test_formatting_is_idempotent_and_keeps_the_tokens(source: str) -> None:
    once = format_source(source)
    assert format_source(once) == once
    assert "".join(once.split()) == "".join(source.split())


@given(st.dictionaries(st.sampled_from(["a", "bb", "ccc"]), st.integers() | st.text('xyz \\"$%{}', max_size=6)))
def test_formatting_keeps_the_meaning(data: dict[str, object]) -> None:
    import json

    rows = [f"{key}={json.dumps(value).replace('${', '$${').replace('%{', '%%{')}\n" for key, value in data.items()]
    source = "".join(rows)
    assert parse_body(format_source(source), filename="a") == parse_body(source, filename="a")
