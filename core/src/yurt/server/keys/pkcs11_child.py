"""The process of one PKCS#11 call: reads a request (JSON) from standard input, writes the answer to standard output.

The request has the settings of the `keyring` block, `pin`, `operation` (encrypt or decrypt), `form`, `context` and
`data` (base64). The answer has `data` (base64), or `error` and its `kind`: `refused` (it cannot work with these
settings), `pin` (the token refused the PIN), `unavailable` (it may work later).

It imports nothing of Yurt: each call starts one.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

NONCE_BYTES: Final = 12
TAG_BITS: Final = 128
AES_GCM: Final = "AES_GCM"
TRIAL: Final = b"yurt tries whether this key works"[:32]


class TokenFailure(Exception):
    """A failure that an operator can remedy."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def fail(text: str, kind: str = "refused") -> NoReturn:
    raise TokenFailure(kind, text)


def answer(request: dict[str, Any]) -> bytes:
    """The encrypted or decrypted data of a request; raises TokenFailure."""
    try:
        import pkcs11
    except ImportError:
        fail("the Python package python-pkcs11 is missing; install it with Yurt: pip install 'yurt[pkcs11]'")
    lib = request["lib"]
    if not Path(lib).is_file():
        fail(f"module {lib} does not exist; install the token's PKCS#11 module, or correct lib")
    try:
        module = pkcs11.lib(lib)
    except RuntimeError as error:
        # What the module itself answers has an exception of its own; what the loader says has not.
        if isinstance(error, pkcs11.PKCS11Error) and type(error) is not pkcs11.PKCS11Error:
            fail(f"the module {lib} does not start: {_named(error)}", "unavailable")
        fail(f"{lib} cannot be loaded as a PKCS#11 module: {error}")
    try:
        token = _token(pkcs11, module, request)
        with _session(pkcs11, token, request) as session:
            return _worked(pkcs11, session, request)
    except pkcs11.PKCS11Error as error:
        fail(f"the token failed: {_named(error)}", "unavailable")


def _token(pkcs11: Any, module: Any, request: dict[str, Any]) -> Any:
    """The only token that matches the settings; an absent one may come back."""
    slots = list(module.get_slots(token_present=True))
    tokens = [(slot.slot_id, slot.get_token()) for slot in slots]
    label, slot_id = request.get("token_label", ""), request.get("slot", "")
    matching = [token for number, token in tokens
             if (not label or token.label.strip() == label) and (not slot_id or number == int(slot_id, 0))]  # fmt: skip
    description = " and ".join([f'the label "{label}"'] * bool(label) + [f"the slot {slot_id}"] * bool(slot_id))
    if not matching:
        present = ", ".join(f'"{token.label.strip()}" in slot {number}' for number, token in tokens) or "none"
        fail(f"no token with {description} is there (present: {present})", "unavailable")
    if len(matching) > 1:
        fail(f"{len(matching)} tokens have {description}; name one by its slot too")
    flags = pkcs11.constants.TokenFlag
    state = matching[0].flags
    if state & flags.USER_PIN_LOCKED:
        fail(
            f"the PIN of the token with {description} is locked after wrong tries; unlock it with the token's own tool"
        )
    if state & flags.USER_PIN_FINAL_TRY:
        fail(f"the token with {description} has one try for its PIN left, which is not used here; "
             "log in once with the token's own tool, and correct pin_file")  # fmt: skip
    return matching[0]


def _session(pkcs11: Any, token: Any, request: dict[str, Any]) -> Any:
    kinds = pkcs11.exceptions
    try:
        return token.open(user_pin=request["pin"])
    except (kinds.PinIncorrect, kinds.PinInvalid, kinds.PinLenRange):
        fail("the token refused the PIN", "pin")
    except kinds.PinLocked:
        fail("the PIN of the token is locked after wrong tries; unlock it with the token's own tool")
    except kinds.PinExpired:
        fail("the PIN of the token has expired; set a new one with the token's own tool")
    except kinds.UserPinNotInitialized:
        fail("the token has no user PIN yet; set one with the token's own tool")


def _worked(pkcs11: Any, session: Any, request: dict[str, Any]) -> bytes:
    """Perform the operation; after a failed decryption, decide whether the token or the data is the cause."""
    form, context = request["form"], request["context"].encode()
    data, is_decrypt = base64.b64decode(request["data"]), request["operation"] == "decrypt"
    encrypt, decrypt = _operations(pkcs11, session, request, form)
    kinds = pkcs11.exceptions
    try:
        return decrypt(data, context) if is_decrypt else encrypt(data, context)
    except (
        kinds.MechanismInvalid,
        kinds.MechanismParamInvalid,
        kinds.FunctionNotSupported,
        kinds.ArgumentsBad,
    ) as error:
        fail(f"the token does not support {form}: {_named(error)}; choose another mechanism or rsa_oaep_hash")
    except (kinds.KeyTypeInconsistent, kinds.KeyHandleInvalid) as error:
        fail(
            f"the key {_key_name(request)} must not {request['operation']}: {_named(error)}; "
            f"use one that has the right to {request['operation']}"
        )
    except pkcs11.PKCS11Error:
        if is_decrypt and _is_working(pkcs11, encrypt, decrypt):
            fail(f"the key {_key_name(request)} did not wrap it; put back the former key")
        raise


def _is_working(pkcs11: Any, encrypt: Callable[..., bytes], decrypt: Callable[..., bytes]) -> bool:
    try:
        return decrypt(encrypt(TRIAL, b""), b"") == TRIAL
    except pkcs11.PKCS11Error:
        return False


def _operations(
    pkcs11: Any, session: Any, request: dict[str, Any], form: str
) -> tuple[Callable[[bytes, bytes], bytes], Callable[[bytes, bytes], bytes]]:
    """The functions that encrypt and decrypt data in a context, with the keys that the settings name."""
    classes, mechanisms = pkcs11.ObjectClass, pkcs11.Mechanism
    if form == AES_GCM:
        key = _key(pkcs11, session, request, classes.SECRET_KEY)

        def gcm(nonce: bytes, context: bytes) -> dict[str, Any]:
            return {"mechanism": mechanisms.AES_GCM, "mechanism_param": pkcs11.GCMParams(nonce, context, TAG_BITS)}

        def encrypt(data: bytes, context: bytes) -> bytes:
            nonce = os.urandom(NONCE_BYTES)
            return nonce + bytes(key.encrypt(data, **gcm(nonce, context)))

        def decrypt(data: bytes, context: bytes) -> bytes:
            return bytes(key.decrypt(data[NONCE_BYTES:], **gcm(data[:NONCE_BYTES], context)))

        return encrypt, decrypt
    # A label for OAEP is refused by most tokens; the file of the root key binds it to its id all the same.
    hashed = mechanisms.SHA_1 if form.endswith("sha1") else mechanisms.SHA256
    mask = pkcs11.MGF.SHA1 if form.endswith("sha1") else pkcs11.MGF.SHA256
    oaep = {"mechanism": mechanisms.RSA_PKCS_OAEP, "mechanism_param": (hashed, mask, None)}
    public = _key(pkcs11, session, request, classes.PUBLIC_KEY)
    private = _key(pkcs11, session, request, classes.PRIVATE_KEY)
    return (
        lambda data, context: bytes(public.encrypt(data, **oaep)),
        lambda data, context: bytes(private.decrypt(data, **oaep)),
    )


def _key(pkcs11: Any, session: Any, request: dict[str, Any], kind: Any) -> Any:
    key_type = pkcs11.KeyType.AES if kind == pkcs11.ObjectClass.SECRET_KEY else pkcs11.KeyType.RSA
    noun = f"{key_type.name} {kind.name.lower().replace('_', ' ')}"
    attributes = {"label": request.get("key_label") or None, "id": bytes.fromhex(request.get("key_id", "")) or None}
    try:
        return session.get_key(object_class=kind, key_type=key_type, **attributes)
    except pkcs11.NoSuchKey:
        fail(f"the token has no {noun} {_key_name(request)}; make it, or correct key_label and key_id")
    except pkcs11.MultipleObjectsReturned:
        fail(f"the token has several of {noun} {_key_name(request)}; name one by its key_id too")


def _key_name(request: dict[str, Any]) -> str:
    label, key_id = request.get("key_label", ""), request.get("key_id", "")
    return " and ".join([f'with the label "{label}"'] * bool(label) + [f"with the id {key_id}"] * bool(key_id))


def _named(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()


def main() -> None:
    """Answer one request."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # The PIN is in this process.
    # Modules print what they like: the answer goes where standard output was, and they write to standard error.
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        data = answer(json.loads(sys.stdin.buffer.read()))
        document = {"data": base64.b64encode(data).decode()}
    except TokenFailure as error:
        document = {"error": str(error), "kind": error.kind}
    os.write(output, json.dumps(document).encode())
    os.close(output)


if __name__ == "__main__":
    main()
