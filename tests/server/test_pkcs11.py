"""Root keys wrapped by a PKCS#11 token: SoftHSM, and a module that fails in the ways of hardware."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from yurt.sdk.errors import Invalid, Unavailable
from yurt.server.config import KeyProviderConfig
from yurt.server.keys import pkcs11
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.pkcs11 import Pkcs11Provider
from yurt.testing import factories
from yurt.testing.login.softhsm import PIN, SoftHsm, softhsm_missing, softhsm_module

KEY_ID = factories.number_id(1, kind=8)
KEY = bytes(range(32))
needs_softhsm = pytest.mark.skipif(bool(softhsm_missing()), reason=softhsm_missing())


def pin_file(folder: Path, pin: str = PIN) -> Path:
    path = folder / "pin"
    path.write_text(f"{pin}\n")
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return path


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> SoftHsm:
    """A token with an AES key, an RSA key pair and two keys of one label."""
    hsm = SoftHsm(tmp_path_factory.mktemp("softhsm"), softhsm_module())
    hsm.make_token("cluster")
    twins = dict.fromkeys(("03", "04"), ("twin", "AES"))
    hsm.make_keys("cluster", {"01": ("root-keys", "AES"), "02": ("pair", "RSA"), **twins})
    return hsm


@pytest.fixture
def settings(token: SoftHsm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of a block that works."""
    for name, value in token.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(pkcs11, "TIMEOUT_S", 240.0)  # Only the test of a module that hangs is about time.
    return {"lib": str(token.module), "token_label": "cluster", "key_label": "root-keys",
            "pin_file": str(pin_file(tmp_path))}  # fmt: skip


def provider(settings: dict[str, str], **changed: str) -> Pkcs11Provider:
    return Pkcs11Provider("pkcs11", {key: value for key, value in {**settings, **changed}.items() if value})


def block(settings: dict[str, str], name: str = "", *, active: bool = True) -> KeyProviderConfig:
    block_id = f"pkcs11.{name}" if name else "pkcs11"
    return KeyProviderConfig(kind="pkcs11", id=block_id, is_active=active, settings=settings)


@needs_softhsm
@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"key_label": "", "key_id": "01"},
        {"key_label": "twin", "key_id": "04"},
        {"key_label": "pair", "mechanism": "RSA_PKCS_OAEP", "rsa_oaep_hash": "sha1"},
    ],
)
def test_a_token_wraps_and_unwraps(settings: dict[str, str], changed: dict[str, str]) -> None:
    made = provider(settings, **changed)
    wrapped = made.wrap(KEY, context="a")
    assert made.unwrap(wrapped, context="a") == KEY


@needs_softhsm
def test_a_wrapped_key_opens_in_its_own_context_only(settings: dict[str, str]) -> None:
    made = provider(settings)
    with pytest.raises(Invalid, match='the key with the label "root-keys" did not wrap it; put back'):
        made.unwrap(made.wrap(KEY, context="a"), context="b")


@needs_softhsm
@pytest.mark.parametrize(
    ("changed", "kind", "told"),
    [
        ({"lib": "/nowhere/module.so"}, Invalid, r'^keyring "pkcs11": module /nowhere/module\.so does not exist'),
        ({"lib": __file__}, Invalid, "cannot be loaded as a PKCS#11 module: "),
        ({"token_label": "other"}, Unavailable, r'no token with the label "other" is there \(present: "cluster" in'),
        ({"slot": "77"}, Unavailable, 'no token with the label "cluster" and the slot 77 is there'),
        ({"key_label": "lost"}, Invalid, 'the token has no AES secret key with the label "lost"; make it, or correct'),
        ({"key_label": "twin"}, Invalid, 'several of AES secret key with the label "twin"; name one by its key_id too'),
        ({"mechanism": "RSA_PKCS_OAEP"}, Invalid, 'has no RSA public key with the label "root-keys"'),
        ({"key_label": "pair", "mechanism": "RSA_PKCS_OAEP"}, Invalid, "does not support RSA_PKCS_OAEP_sha256"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_told(
    settings: dict[str, str], changed: dict[str, str], kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        provider(settings, **changed).wrap(KEY, context="a")


@needs_softhsm
def test_a_wrong_pin_stops_the_start_and_is_tried_once(settings: dict[str, str], tmp_path: Path) -> None:
    Keyring(tmp_path, (block(settings),)).create(KEY_ID)
    before = (tmp_path / "keystore" / f"{KEY_ID}.key.json").read_bytes()
    path = pin_file(tmp_path, "999999")
    with pytest.raises(Invalid, match=f"the token refused the PIN in {path}; it is not tried again until"):
        Keyring(tmp_path, (block(settings),)).open()
    assert (tmp_path / "keystore" / f"{KEY_ID}.key.json").read_bytes() == before
    made, runs = provider(settings), []
    run = made._run
    made._run = lambda request: runs.append(1) or run(request)  # type: ignore[method-assign, func-returns-value]
    for _ in range(3):
        with pytest.raises(Invalid, match="refused the PIN"):
            made.wrap(KEY, context="a")
    assert len(runs) == 1
    pin_file(tmp_path, PIN)
    os.utime(path, ns=(1, 1))
    assert made.wrap(KEY, context="a")
    assert len(runs) == 2


@needs_softhsm
def test_the_active_key_is_tried_at_the_start_of_an_empty_keystore(settings: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(Invalid, match='no AES secret key with the label "typo"'):
        Keyring(tmp_path, (block({**settings, "key_label": "typo"}),)).open()
    Keyring(tmp_path, (block(settings),)).open()


@needs_softhsm
def test_a_token_that_is_taken_out_locks_keys_until_it_is_back(
    settings: dict[str, str], token: SoftHsm, tmp_path: Path
) -> None:
    key = Keyring(tmp_path, (block(settings),)).create(KEY_ID)
    away = token.tokens.with_name("away")
    token.tokens.rename(away)
    token.tokens.mkdir()
    try:
        keyring = Keyring(tmp_path, (block(settings),))
        keyring.open()
        with pytest.raises(Unavailable, match=r'cannot be opened now: .*no token with the label "cluster" is there'):
            keyring.get(KEY_ID)
    finally:
        shutil.rmtree(token.tokens)
        away.rename(token.tokens)
    keyring.retry()
    assert keyring.get(KEY_ID) == key


@needs_softhsm
def test_the_key_in_the_token_is_rotated_by_two_blocks(settings: dict[str, str], tmp_path: Path) -> None:
    old = block(settings, "2025")
    new = block({**settings, "key_label": "pair", "mechanism": "RSA_PKCS_OAEP", "rsa_oaep_hash": "sha1"}, "2026")
    key = Keyring(tmp_path, (old,)).create(KEY_ID)
    Keyring(tmp_path, (block(settings, "2025", active=False), new)).open()
    keyring = Keyring(tmp_path, (new,))
    keyring.open()
    assert keyring.get(KEY_ID) == key
    with pytest.raises(Invalid, match=r'wrapped by the keyring "pkcs11\.2026", which is not configured'):
        Keyring(tmp_path, (old,)).open()
    stored = json.loads((tmp_path / "keystore" / f"{KEY_ID}.key.json").read_bytes().splitlines()[0])
    assert stored["Wrapped"].startswith("RSA_PKCS_OAEP_sha1:")


FAKE = """
import enum, os, types
FAULT = os.environ["PKCS11_FAULT"]
class PKCS11Error(RuntimeError): ...
exceptions = types.SimpleNamespace()
for name in ("PinIncorrect PinInvalid PinLenRange PinLocked PinExpired UserPinNotInitialized MechanismInvalid "
             "MechanismParamInvalid FunctionNotSupported ArgumentsBad KeyTypeInconsistent KeyHandleInvalid "
             "DeviceRemoved GeneralError NoSuchKey MultipleObjectsReturned").split():
    setattr(exceptions, name, type(name, (PKCS11Error,), {}))
NoSuchKey, MultipleObjectsReturned = exceptions.NoSuchKey, exceptions.MultipleObjectsReturned
class TokenFlag(enum.IntFlag):
    USER_PIN_FINAL_TRY = 0x20000
    USER_PIN_LOCKED = 0x40000
constants = types.SimpleNamespace(TokenFlag=TokenFlag)
ObjectClass = enum.Enum("ObjectClass", "SECRET_KEY PUBLIC_KEY PRIVATE_KEY")
KeyType = enum.Enum("KeyType", "AES RSA")
Mechanism = enum.Enum("Mechanism", "AES_GCM")
GCMParams = lambda nonce, context, tag_bits: ()
def fault(*names):
    if FAULT in names:
        raise getattr(exceptions, FAULT)
class Key:
    def encrypt(self, data, **given):
        fault("DeviceRemoved", "MechanismInvalid", "KeyHandleInvalid", "GeneralError")
        return data
    decrypt = encrypt
class Session:
    def __enter__(self): return self
    def __exit__(self, *error): pass
    def get_key(self, **wanted): return Key()
class Token:
    label = "cluster"
    flags = getattr(TokenFlag, FAULT, 0)
    def open(self, user_pin):
        fault("PinLocked", "PinExpired", "UserPinNotInitialized", "PinLenRange")
        print("a module that prints")
        return Session()
class Slot:
    slot_id = 1
    def get_token(self): return Token()
class lib:
    def __init__(self, path):
        if FAULT == "crash": os.kill(os.getpid(), 11)
        if FAULT == "hang": __import__("signal").pause()
        if FAULT == "exit": os._exit(3)
        if FAULT == "initialize": raise exceptions.GeneralError
    def get_slots(self, token_present): return [Slot()] * (2 if FAULT == "twins" else 1)
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of a block whose library fails as the variable PKCS11_FAULT says."""
    package = tmp_path / "packages" / "pkcs11"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    return {"lib": __file__, "token_label": "cluster", "key_label": "k", "pin_file": str(pin_file(tmp_path))}


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        ("crash", Invalid, "the process that loaded the module .* ended by signal 11 without an answer"),
        ("exit", Invalid, "ended with exit code 3 without an answer"),
        ("hang", Unavailable, "did not answer within 1 s"),
        ("initialize", Unavailable, "does not start: GeneralError"),
        ("twins", Invalid, '2 tokens have the label "cluster"; name one by its slot too'),
        ("USER_PIN_LOCKED", Invalid, "is locked after wrong tries; unlock it with the token's own tool"),
        ("USER_PIN_FINAL_TRY", Invalid, "has one try for its PIN left, which is not used here"),
        ("PinLocked", Invalid, "is locked after wrong tries"),
        ("PinExpired", Invalid, "has expired; set a new one"),
        ("PinLenRange", Invalid, "refused the PIN in .*; it is not tried again"),
        ("UserPinNotInitialized", Invalid, "has no user PIN yet"),
        ("DeviceRemoved", Unavailable, "the token failed: DeviceRemoved"),
        ("GeneralError", Unavailable, "the token failed: GeneralError"),
        ("MechanismInvalid", Invalid, "does not support AES_GCM: MechanismInvalid; choose another mechanism"),
        ("KeyHandleInvalid", Invalid, 'the key with the label "k" must not decrypt: KeyHandleInvalid'),
    ],
)
def test_faults_of_hardware_are_told_apart(
    fake: dict[str, str], monkeypatch: pytest.MonkeyPatch, fault: str, kind: type[Exception], told: str
) -> None:
    monkeypatch.setenv("PKCS11_FAULT", fault)
    if fault == "hang":
        monkeypatch.setattr(pkcs11, "TIMEOUT_S", 1.0)
    with pytest.raises(kind, match=told) as caught:
        provider(fake).unwrap("AES_GCM:" + "A" * 64, context="a")
    assert PIN not in str(caught.value)


def test_a_module_that_prints_disturbs_no_answer(fake: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKCS11_FAULT", "none")
    made = provider(fake)
    assert made.unwrap(made.wrap(KEY, context="a"), context="a") == KEY


def test_without_the_library_the_package_to_install_is_named(
    fake: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "packages" / "pkcs11" / "__init__.py").write_text("raise ImportError")
    with pytest.raises(Invalid, match=r"python-pkcs11 is missing; install it with Yurt: pip install 'yurt\[pkcs11\]'"):
        provider(fake).wrap(KEY, context="a")


@pytest.mark.parametrize("wrapped", ["", "AES_GCM:", "AES_GCM:?", "AES_CBC:AAAA", "vault:v1:AAAA"])
def test_a_damaged_form_is_told_before_the_token_is_asked(fake: dict[str, str], wrapped: str) -> None:
    with pytest.raises(Invalid, match="its file has been changed; restore it"):
        provider(fake).unwrap(wrapped, context="a")


def test_a_pin_that_others_can_read_is_refused(fake: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pin").chmod(0o644)
    with pytest.raises(Invalid, match=f'^keyring "pkcs11": {tmp_path}/pin can be read by others; chmod 600'):
        provider(fake).wrap(KEY, context="a")
