"""The functions, one line each: call and result."""

from __future__ import annotations

import base64
import re

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from yurt_jobspec.diagnostics import EvaluationError, SourceText
from yurt_jobspec.evaluator import Evaluator, NameScope
from yurt_jobspec.functions.encoding import json_text
from yurt_jobspec.functions.hashing import _crypt
from yurt_jobspec.functions.registry import TABLE, lookup
from yurt_jobspec.syntax.parser import parse_expression

CALLS = r"""
chomp("line\n\n")                                       => "line"
format("%s is %d%% of %.1f", "a", 5, 2.25)              => "a is 5% of 2.2"
format("%05d|%-4s|%4s|%x|%q", 42, "a", "b", 255, "c")   => "00042|a   |   b|ff|\"c\""
formatlist("%s:%s", ["a", "b"], "x")                    => ["a:x","b:x"]
indent(2, "a\nb")                                       => "a\n  b"
join("-", ["a", "b"], ["c"])                            => "a-b-c"
upper("ab") == "AB" && lower("AB") == "ab"              => true
title("two words")                                      => "Two Words"
regex_replace("v1.2", "v(\\d+)\\.(\\d+)", "$2.$1")      => "2.1"
replace("a-b-c", "-", "+")                              => "a+b+c"
strrev("abc")                                           => "cba"
split(",", "a,b,,c")                                    => ["a","b","","c"]
strlen("häuser")                                        => 6
substr("kubernetes", -4, 3)                             => "ete"
trim("--a--", "-")                                      => "a"
trimprefix("api-web", "api-")                           => "web"
trimsuffix("web.old", ".old")                           => "web"
trimspace("  a\t\n")                                    => "a"
chunklist([1, 2, 3], 2)                                 => [[1,2],[3]]
coalesce(null, "a", "b")                                => "a"
coalescelist([], [1])                                   => [1]
compact(["a", "", "b"])                                 => ["a","b"]
concat([1], ["a"], [])                                  => [1,"a"]
contains(["a", "b"], "b")                               => true
distinct(["a", "b", "a"])                               => ["a","b"]
element(["a", "b"], 3)                                  => "b"
flatten([[1, [2]], [], 3])                              => [1,2,3]
index(["a", "b"], 1)                                    => "b"
keys({ b = 1, a = 2 })                                  => ["a","b"]
values({ b = 1, a = 2 })                                => [2,1]
length(["a"])                                           => 1
lookup({ a = "x" }, "b", "none")                        => "none"
merge({ a = 1 }, { b = 2, a = 3 })                      => {"a":3,"b":2}
range(1, 7, 2)                                          => [1,3,5]
setintersection(["a", "b"], ["b", "c"])                 => ["b"]
setunion(["b"], ["a"])                                  => ["a","b"]
setproduct(["a", "b"], [1, 2])                          => [["a",1],["a",2],["b",1],["b",2]]
slice(["a", "b", "c"], 1, 3)                            => ["b","c"]
sort(["b", "a"])                                        => ["a","b"]
zipmap(["a", "b"], [1, 2])                              => {"a":1,"b":2}
abs(-3) + ceil(1.2) + floor(1.8) + signum(-9)           => 5
log(8, 2)                                               => 3
max(1, 3, 2) - min(1, 3, 2)                             => 2
parseint("ff", 16)                                      => 255
pow(2, 8)                                               => 256
base64decode(base64encode("hällo"))                     => "hällo"
csvdecode("a,b\n1,2\n")                                 => [{"a":"1","b":"2"}]
jsondecode("{\"a\": [1, null]}")                        => {"a":[1,null]}
jsonencode({ b = "<", a = 1.50 })                       => "{\"a\":1.5,\"b\":\"\\u003c\"}"
urlencode("a b/c")                                      => "a+b%2Fc"
yamldecode("a:\n- 1\n- {b: yes}\nc: |\n  x\n  y\n")     => {"a":[1,{"b":true}],"c":"x\ny\n"}
yamldecode(yamlencode({ a = [1, "x: y"], b = "l\nm\n" })) => {"a":[1,"x: y"],"b":"l\nm\n"}
md5("") == "d41d8cd98f00b204e9800998ecf8427e"           => true
length(split("", sha1("a"))) + strlen(sha256("a")) + strlen(sha512("a")) => 232
uuidv5("dns", "example.com")                            => "cfbff0d1-9375-5685-968c-48ce8b15ae17"
cidrhost("10.1.0.0/16", 258)                            => "10.1.1.2"
cidrnetmask("10.1.0.0/20")                              => "255.255.240.0"
cidrsubnet("10.1.0.0/16", 8, 7)                         => "10.1.7.0/24"
cidrsubnets("10.1.0.0/16", 4, 8)                        => ["10.1.0.0/20","10.1.16.0/24"]
formatdate("DD MMM YYYY 'at' hh:mm Z", "2024-03-05T17:08:09Z") => "05 Mar 2024 at 17:08 Z"
timeadd("2024-02-28T23:00:00Z", "25h30m")               => "2024-03-01T00:30:00Z"
basename("/a/b.txt")                                    => "b.txt"
dirname("/a/b.txt")                                     => "/a"
"""

BAD_CALLS = r"""
element([], 0)
lookup([], "a", 1)
range(1, 2, 0)
range(2000)
slice([1], 2, 1)
zipmap(["a"], [])
parseint("z", 10)
base64decode("*")
jsondecode("{")
yamldecode("a: [")
yamldecode("\ta: 1")
csvdecode("a,a")
cidrhost("10.0.0.0/30", 9)
cidrsubnet("10.0.0.0/30", 4, 0)
formatdate("QQ", "2024-03-05T17:08:09Z")
timeadd("today", "1h")
format("%d")
format("%d", "x")
format("a", 1)
log(0, 2)
file("x")
regex_replace("a", "(", "")
uuidv5("no", "x")
rsadecrypt("AA==", "none")
bcrypt("x", 99)
merge(1)
setproduct([1])
coalesce(null)
join(",")
"""

LINES = [re.split(r"\s+=> ", line, maxsplit=1) for line in CALLS.strip().splitlines()]


def evaluate(text: str) -> str:
    return json_text(Evaluator(text).evaluate(parse_expression(SourceText("test", text)), NameScope({})))


@pytest.mark.parametrize(("call", "result"), LINES)
def test_a_call_has_its_result(call: str, result: str) -> None:
    assert evaluate(call) == result


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_every_function_of_the_table_can_be_loaded(line: str) -> None:
    function = lookup(line.split(maxsplit=1)[0])
    assert function is not None and callable(function.run)


@pytest.mark.parametrize("call", BAD_CALLS.strip().splitlines())
def test_a_bad_call_is_an_evaluation_error(call: str) -> None:
    with pytest.raises(EvaluationError):
        evaluate(call)


def test_random_identifiers_differ() -> None:
    assert evaluate("uuidv4()") != evaluate("uuidv4()")


def test_a_cast_of_another_language_gets_a_hint() -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluate('tonumber("1")')
    assert caught.value.problems[0].hint == "Write convert(value, number)."


def call(text: str, **variables: str) -> str:
    return str(Evaluator(text).evaluate(parse_expression(SourceText("test", text)), NameScope({"var": variables})))


def test_bcrypt_makes_a_hash_that_the_password_fits() -> None:
    hashed = call('bcrypt("correct horse", 4)')

    assert re.fullmatch(r"\$2a\$04\$[./A-Za-z0-9]{53}", hashed)
    assert _crypt("correct horse", hashed) == hashed
    assert _crypt("wrong horse", hashed) != hashed


def test_two_bcrypt_hashes_of_one_password_differ() -> None:
    assert call('bcrypt("x", 4)') != call('bcrypt("x", 4)')


@pytest.mark.parametrize("form", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8])
def test_rsadecrypt_reads_what_was_encrypted_for_the_key(form: PrivateFormat) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(Encoding.PEM, form, NoEncryption()).decode()
    cipher = base64.b64encode(key.public_key().encrypt("geheim ✓".encode(), padding.PKCS1v15())).decode()

    assert call("rsadecrypt(var.cipher, var.pem)", cipher=cipher, pem=pem) == "geheim ✓"


def test_rsadecrypt_refuses_another_key() -> None:
    mine, theirs = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    pem = mine.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    cipher = base64.b64encode(theirs.public_key().encrypt(b"x", padding.PKCS1v15())).decode()

    with pytest.raises(EvaluationError):
        call("rsadecrypt(var.cipher, var.pem)", cipher=cipher, pem=pem)


def test_slow_functions_share_a_budget() -> None:
    with pytest.raises(EvaluationError, match="may work on"):
        call('[for n in range(1000) : bcrypt("x", 15)]')
